package io.fluxgate.testing;

import io.fluxgate.client.FluxGateClient;
import io.fluxgate.client.RequestContext;
import java.time.Duration;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Compares a call of the client with one plain request. */
class ClientBench {
    @Test
    void compare() throws Exception {
        try (Service service = Bench.startService();
                FluxGateClient client = FluxGateClient.builder(service.url())
                        .deadline(Duration.ofSeconds(5))
                        .build()) {
            RequestContext context =
                    RequestContext.builder().user("ann").path("/x").build();
            Map<String, Double> medians = new Bench()
                    .addPlainRequest(service)
                    .add("check", () -> client.check("units", context))
                    .medians();
            double plain = medians.get("plain");
            double check = medians.get("check");
            System.out.printf("bench client: plain request %.1f us, check %.1f us: ratio %.2f%n", plain, check, check / plain);
        }
    }
}
