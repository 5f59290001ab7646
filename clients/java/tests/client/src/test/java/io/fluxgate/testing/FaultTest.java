package io.fluxgate.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.fluxgate.client.Decision;
import io.fluxgate.client.FluxGateClient;
import io.fluxgate.client.Hold;
import io.fluxgate.client.Outcome;
import io.fluxgate.client.RequestContext;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Outages under load. */
class FaultTest {
    private static final int PER_SECOND = 200;
    private static final long DEADLINE_MS = 100;
    /** What threads of a busy machine may come late. */
    private static final long SLACK_MS = 150;

    private static final int CAPACITY = 100_000;
    private static final List<String> CONFIG = List.of(
            "listen: { api: \"${API}\" }",
            "rule_sets:",
            "  units:",
            "    rules:",
            "      - { id: units, scope: per_user, algorithm: fixed_window, bands: [ { id: day, capacity: " + CAPACITY
                    + ", window: 30d } ] }",
            "  slots:",
            "    rules:",
            "      - { id: running, scope: per_user, algorithm: concurrency, hold: 1m, bands: [ { capacity: 1000 } ] }");

    @ParameterizedTest
    @ValueSource(strings = {"down", "slow", "reset", "garbage", "cut", "error", "restart"})
    void callsKeepTheirDeadlineAndRecover(String fault) throws Exception {
        try (Service service = Service.start(CONFIG);
                FaultProxy proxy = new FaultProxy(service.port(), "up");
                FluxGateClient client = FluxGateClient.create(proxy.url())) {
            AtomicLong allowed = new AtomicLong();
            AtomicLong failedOpen = new AtomicLong();
            Load.Call check = () -> {
                Decision decision = client.check("units", it -> it.user("ann"));
                assertTrue(decision.allowed());
                (decision.outcome() == Outcome.FAILED_OPEN ? failedOpen : allowed).incrementAndGet();
            };
            // The first calls of a program load its classes.
            Load.run(PER_SECOND, 300, check);
            proxy.setMode(fault);
            Load during = Load.run(PER_SECOND, 1200, check);
            proxy.setMode("up");
            during.check(DEADLINE_MS + SLACK_MS);
            assertTrue(failedOpen.get() > 0, "nothing has failed");
            assertRecovers(client);
            long calls = proxy.takeAsked();
            try (FluxGateClient direct = FluxGateClient.create(service.url())) {
                Decision left = direct.check("units", it -> it.user("ann").cost(0));
                long charged = CAPACITY - left.remaining().orElseThrow();
                assertTrue(charged >= allowed.get(), "an allowed call was not charged");
                assertTrue(charged <= calls, charged + " units were charged by " + calls + " calls");
            }
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"down", "slow", "reset", "swallow"})
    void noSlotIsLeaked(String fault) throws Exception {
        try (Service service = Service.start(CONFIG);
                FaultProxy proxy = new FaultProxy(service.port(), "up");
                FluxGateClient client = FluxGateClient.create(proxy.url());
                FluxGateClient direct = FluxGateClient.builder(service.url())
                        .deadline(Duration.ofSeconds(2))
                        .build()) {
            Load.Call work = () -> {
                try (Hold hold = client.hold("slots", it -> it.user("ann"))) {
                    Thread.sleep(20);
                }
            };
            Load.run(PER_SECOND, 300, work);
            proxy.setMode(fault);
            Load.run(PER_SECOND, 500, work);
            proxy.setMode("up");
            assertRecovers(client);
            Load.run(PER_SECOND, 300, work).check(2000);
            // A call whose answer was swallowed may have a slot that no one knows of.
            long unknown = fault.equals("swallow") ? 10 : 0;
            Leaks.await("slots are held", () -> {
                Decision left = direct.peek("slots", it -> it.user("ann"));
                return left.remaining().orElse(0) >= 999 - unknown;
            });
            assertEquals(0, client.openHolds());
        }
    }

    @Test
    void aCallThatIsCancelledGivesItsSlotBack() throws Exception {
        try (Service service = Service.start(CONFIG);
                FaultProxy proxy = new FaultProxy(service.port(), "slow");
                FluxGateClient client =
                        FluxGateClient.builder(proxy.url()).deadline(Duration.ofSeconds(3)).build();
                FluxGateClient direct = FluxGateClient.create(service.url())) {
            var held = client.holdAsync(
                    "slots", RequestContext.builder().user("ann").build(), Duration.ofSeconds(60));
            Service.sleep(500);
            held.cancel(false);
            Service.sleep(700);
            Leaks.await("the slot is held", () -> direct.peek("slots", it -> it.user("ann"))
                            .remaining()
                            .orElse(0)
                    == 999);
        }
    }

    @Test
    void connectionsAreBounded() throws Exception {
        try (Service service = Service.start(CONFIG);
                FaultProxy proxy = new FaultProxy(service.port(), "up");
                FluxGateClient client = FluxGateClient.builder(proxy.url())
                        .maxConnections(4)
                        .deadline(Duration.ofSeconds(5))
                        .build()) {
            Load.run(2000, 500, () -> assertEquals(
                            Outcome.ALLOWED,
                            client.check("units", it -> it.user("ann")).outcome()))
                    .check(5000);
            // Two sockets each, as the proxy has one to the service; and one connection that a new client opens.
            assertTrue(proxy.connectionCount() <= 10, proxy.connectionCount() + " sockets");
        }
    }

    private static void assertRecovers(FluxGateClient client) {
        long began = System.nanoTime();
        while (client.peek("units", it -> it.user("ann")).outcome() != Outcome.ALLOWED) {
            long elapsed = (System.nanoTime() - began) / 1_000_000;
            assertTrue(elapsed < 1000, "no decision " + elapsed + " ms after the fault");
            Service.sleep(5);
        }
    }
}
