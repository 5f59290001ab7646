package io.fluxgate.spring.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.fluxgate.client.Decision;
import io.fluxgate.client.FluxGateClient;
import io.fluxgate.testing.Delay;
import io.fluxgate.testing.FaultProxy;
import io.fluxgate.testing.Leaks;
import io.fluxgate.testing.Load;
import io.fluxgate.testing.RawRequest;
import io.fluxgate.testing.ServerUnderTest;
import io.fluxgate.testing.Service;
import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Outages of the service under the load of each server. */
class ServerFaultTest {
    private static final int PER_SECOND = 200;
    private static final long DEADLINE_MS = 100;
    /** For how long a service that has failed is not asked. */
    private static final long PAUSE_MS = 500;
    /** What a decision takes besides waiting for the service. */
    private static final long SLACK_MS = 50;

    /** How long a request takes at most with all that the server does. */
    private static final long REQUEST_MS = 2000;

    private static final int SLOTS = 1000;
    private static final List<String> CONFIG = List.of(
            "listen: { api: \"${API}\" }",
            "rule_sets:",
            "  slots:",
            "    rules:",
            "      - { id: running, scope: per_user, algorithm: concurrency, hold: 1m, bands: [ { capacity: " + SLOTS
                    + " } ] }");

    @ParameterizedTest
    @ValueSource(strings = {"servlet", "webflux", "gateway"})
    void requestsAreServedOnceAndInTime(String kind) throws Exception {
        List<String> threads = Leaks.threads();
        try (Service service = Service.start(CONFIG);
                FaultProxy proxy = new FaultProxy(service.port(), "up");
                ServerUnderTest server = start(kind);
                FluxGateClient direct = FluxGateClient.builder(service.url())
                        .deadline(Duration.ofSeconds(20))
                        .build()) {
            server.use(Map.of(
                    "fluxgate.url",
                    proxy.url(),
                    "fluxgate.deadline",
                    DEADLINE_MS + "ms",
                    "fluxgate.ratelimit.default-rule-set-id",
                    "slots"));
            AtomicInteger sent = new AtomicInteger();
            // The first requests of a program load its classes.
            Load.run(PER_SECOND, 1000, () -> request(server, sent));
            server.decisions().clear();
            for (String fault : List.of("down", "slow", "reset", "garbage", "restart")) {
                proxy.setMode(fault);
                Load load = Load.run(PER_SECOND, 700, () -> request(server, sent));
                proxy.setMode("up");
                Delay delay = new Delay(service);
                load.check(REQUEST_MS);
                assertRecovers(server, sent, fault, delay);
            }
            server.decisions().check(DEADLINE_MS + SLACK_MS);
            assertEquals(sent.get(), server.runs().size(), "requests were not served");
            assertTrue(server.runs().values().stream().allMatch(runs -> runs == 1), "a request ran twice");
            Leaks.await("slots are held", () -> {
                Decision left = direct.peek("slots", context -> context.user("ann"));
                return left.remaining().orElse(0) >= SLOTS - proxy.lost();
            });
            server.unuse();
        }
        Leaks.await("threads are left", () -> threads.containsAll(Leaks.threads()));
    }

    private static ServerUnderTest start(String kind) {
        return switch (kind) {
            case "servlet" -> new ServletServer();
            case "webflux" -> new WebFluxServer();
            default -> new GatewayServer();
        };
    }

    private static RawRequest.Response request(ServerUnderTest server, AtomicInteger sent) throws IOException {
        List<List<String>> headers = List.of(
                List.of("X-User-Id", "ann"), List.of(ServerUnderTest.ID_HEADER, "r" + sent.incrementAndGet()));
        RawRequest.Response response = RawRequest.send(server.port(), "GET", "/x", headers).finish();
        assertEquals(200, response.status());
        return response;
    }

    private static void assertRecovers(ServerUnderTest server, AtomicInteger sent, String fault, Delay delay)
            throws IOException {
        long began = System.nanoTime();
        while (!request(server, sent).headers().containsKey("x-ratelimit-limit")) {
            long elapsed = (System.nanoTime() - began) / 1_000_000;
            long most = delay.recoveryMillis(DEADLINE_MS, PAUSE_MS);
            assertTrue(elapsed <= most, () -> "no decision " + elapsed + " of " + most + " ms after " + fault);
            Service.sleep(5);
        }
    }
}
