package io.fluxgate.spring.health;

import io.fluxgate.client.FluxGateClient;
import org.springframework.boot.health.contributor.Health;
import org.springframework.boot.health.contributor.HealthIndicator;

/** Shows the health of the service in Spring Boot 4. */
public final class Boot4HealthIndicator implements HealthIndicator {
    private final FluxGateClient client;

    public Boot4HealthIndicator(FluxGateClient client) {
        this.client = client;
    }

    @Override
    public Health health() {
        ServiceHealth health = ServiceHealth.of(client);
        return Health.status(health.status())
                .withDetail("url", health.url())
                .withDetail("onError", health.onError())
                .build();
    }
}
