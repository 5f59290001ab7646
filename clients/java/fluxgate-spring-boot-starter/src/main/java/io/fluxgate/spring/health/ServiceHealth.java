package io.fluxgate.spring.health;

import io.fluxgate.client.FluxGateClient;
import io.fluxgate.client.OnError;
import java.util.Locale;

/** The health of the service, as the program sees it. */
record ServiceHealth(String status, String url, String onError) {
    /**
     * Calls the service, within the deadline. A program that works without it is not down: its
     * status is {@code DEGRADED}, which does not change the status of the program.
     */
    static ServiceHealth of(FluxGateClient client) {
        boolean isReady = client.isReady().join();
        String failed = client.onError() == OnError.ALLOW ? "DEGRADED" : "DOWN";
        String onError = client.onError().name().toLowerCase(Locale.ROOT);
        return new ServiceHealth(isReady ? "UP" : failed, client.address().toString(), onError);
    }
}
