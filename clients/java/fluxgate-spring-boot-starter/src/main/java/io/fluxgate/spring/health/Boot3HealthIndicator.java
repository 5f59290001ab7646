package io.fluxgate.spring.health;

import io.fluxgate.client.FluxGateClient;
import org.springframework.boot.actuate.health.Health;
import org.springframework.boot.actuate.health.HealthIndicator;

/** Shows the health of the service in Spring Boot 3. */
public final class Boot3HealthIndicator implements HealthIndicator {
    private final FluxGateClient client;

    public Boot3HealthIndicator(FluxGateClient client) {
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
