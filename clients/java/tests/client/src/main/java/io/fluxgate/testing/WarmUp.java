package io.fluxgate.testing;

import io.fluxgate.client.FluxGateClient;
import java.io.IOException;
import java.time.Duration;

/** Loads what the first call of a JVM loads, so that times in cases are those of a program that runs. */
public final class WarmUp {
    private static boolean isDone;

    private WarmUp() {}

    public static synchronized void run(Cases cases) throws IOException {
        if (isDone) {
            return;
        }
        try (Service service = Service.start(cases.config("main"));
                FaultProxy proxy = new FaultProxy(service.port(), "up");
                FluxGateClient client = FluxGateClient.builder(proxy.url())
                        .deadline(Duration.ofSeconds(10))
                        .build()) {
            for (int i = 0; i < 50; i++) {
                client.check("api-limits", it -> it.user("ann"));
            }
            client.hold("slots", it -> it.user("ann")).close();
        }
        isDone = true;
    }
}
