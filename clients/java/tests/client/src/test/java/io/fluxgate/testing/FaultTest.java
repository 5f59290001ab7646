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
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Outages under load. */
@ExtendWith(LeakCheck.class)
class FaultTest {
    private static final int PER_SECOND = 200;
    private static final long DEADLINE_MS = 100;
    /** For how long a service that has failed is not asked. */
    private static final long PAUSE_MS = 500;
    /** What a call does besides waiting for the service. */
    private static final long SLACK_MS = 50;

    private static final int CAPACITY = 100_000;
    private static final int SLOTS = 1000;
    private static final List<String> CONFIG = List.of(
            "listen: { api: \"${API}\" }",
            "rule_sets:",
            "  units:",
            "    rules:",
            "      - { id: units, scope: per_user, algorithm: fixed_window, bands: [ { id: day, capacity: " + CAPACITY
                    + ", window: 30d } ] }",
            "  slots:",
            "    rules:",
            "      - { id: running, scope: per_user, algorithm: concurrency, hold: 1m, bands: [ { capacity: " + SLOTS
                    + " } ] }");

    @ParameterizedTest
    @ValueSource(strings = {"down", "slow", "reset", "garbage", "cut", "error", "restart"})
    void callsKeepTheirDeadlineAndRecover(String fault) throws Exception {
        try (Service service = Service.start(CONFIG);
                FaultProxy proxy = new FaultProxy(service.port(), "up");
                FluxGateClient client = FluxGateClient.create(proxy.url());
                FluxGateClient direct = patient(service.url())) {
            AtomicLong allowed = new AtomicLong();
            AtomicLong failedOpen = new AtomicLong();
            Load.Call check = () -> {
                Decision decision = client.check("units", it -> it.user("ann"));
                assertTrue(decision.allowed());
                (decision.outcome() == Outcome.FAILED_OPEN ? failedOpen : allowed).incrementAndGet();
            };
            // The first calls of a program load its classes.
            Load.run(PER_SECOND, 300, check);
            failedOpen.set(0);
            proxy.setMode(fault);
            Load during = Load.run(PER_SECOND, 1200, check);
            proxy.setMode("up");
            Delay delay = new Delay(service);
            during.check(DEADLINE_MS + SLACK_MS);
            assertTrue(failedOpen.get() > 0, "nothing has failed");
            assertRecovers(client, delay);
            long calls = proxy.takeAsked();
            Decision left = direct.check("units", it -> it.user("ann").cost(0));
            long charged = CAPACITY - left.remaining().orElseThrow();
            assertTrue(charged >= allowed.get(), "an allowed call was not charged");
            assertTrue(charged <= calls, charged + " units were charged by " + calls + " calls");
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"down", "slow", "reset", "swallow"})
    void noSlotIsLeaked(String fault) throws Exception {
        try (Service service = Service.start(CONFIG);
                FaultProxy proxy = new FaultProxy(service.port(), "up");
                FluxGateClient client = FluxGateClient.create(proxy.url());
                FluxGateClient direct = patient(service.url())) {
            Load.Call work = () -> {
                try (Hold hold = client.hold("slots", it -> it.user("ann"))) {
                    Thread.sleep(20);
                }
            };
            Load.run(PER_SECOND, 300, work);
            proxy.setMode(fault);
            Load.run(PER_SECOND, 500, work);
            proxy.setMode("up");
            assertRecovers(client, new Delay(service));
            Load.run(PER_SECOND, 300, work).check(2000);
            Leaks.await("slots are held", () -> freeSlots(direct) >= SLOTS - proxy.lost());
            assertEquals(0, client.openHolds());
        }
    }

    @Test
    void aCallThatIsCancelledGivesItsSlotBack() throws Exception {
        try (Service service = Service.start(CONFIG);
                FaultProxy proxy = new FaultProxy(service.port(), "slow");
                FluxGateClient client =
                        FluxGateClient.builder(proxy.url()).deadline(Duration.ofSeconds(3)).build();
                FluxGateClient direct = patient(service.url())) {
            RequestContext ann = RequestContext.builder().user("ann").build();
            CompletableFuture<Hold> held = client.holdAsync("slots", ann, Duration.ofSeconds(60));
            Leaks.await("the call is not sent", () -> proxy.asked() == 1);
            held.cancel(false);
            Leaks.await("the slot is not released", () -> proxy.asked() == 2);
            Leaks.await("the slot is held", () -> freeSlots(direct) == SLOTS);
        }
    }

    @Test
    void connectionsAreBounded() throws Exception {
        try (Service service = Service.start(CONFIG);
                FaultProxy proxy = new FaultProxy(service.port(), "up");
                FluxGateClient client = FluxGateClient.builder(proxy.url())
                        .maxConnections(4)
                        .deadline(Duration.ofSeconds(60))
                        .build()) {
            Load.run(2000, 250, () -> assertEquals(
                            Outcome.ALLOWED,
                            client.check("units", it -> it.user("ann")).outcome()))
                    .check(60_000);
            // Idle connections are kept. A fifth is the one that a new client opens; the proxy has as many.
            Leaks.await("there are more connections", () -> proxy.connectionCount() <= 2 * 5);
        }
    }

    /** Returns a client for questions that a busy machine may answer late. */
    private static FluxGateClient patient(String url) {
        return FluxGateClient.builder(url).deadline(Duration.ofSeconds(20)).build();
    }

    private static long freeSlots(FluxGateClient client) {
        return client.peek("slots", it -> it.user("ann")).remaining().orElse(0);
    }

    private static void assertRecovers(FluxGateClient client, Delay delay) {
        long began = System.nanoTime();
        while (client.peek("units", it -> it.user("ann")).outcome() != Outcome.ALLOWED) {
            long elapsed = (System.nanoTime() - began) / 1_000_000;
            long most = delay.recoveryMillis(DEADLINE_MS, PAUSE_MS);
            assertTrue(elapsed <= most, () -> "no decision " + elapsed + " of " + most + " ms after the fault");
            Service.sleep(5);
        }
    }
}
