package io.fluxgate.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

class CallLimitTest {
    private final AtomicInteger started = new AtomicInteger();

    @Test
    void callsWaitForAFreeConnection() {
        CallLimit limit = new CallLimit(2);
        for (int i = 0; i < 5; i++) {
            limit.acquire(() -> started.incrementAndGet() > 0);
        }
        assertEquals(2, started.get());
        limit.release();
        assertEquals(3, started.get());
    }

    @Test
    void callsThatWereGivenUpNeedNoConnection() {
        CallLimit limit = new CallLimit(1);
        limit.acquire(() -> true);
        for (int i = 0; i < 100_000; i++) {
            limit.acquire(() -> false);
        }
        limit.acquire(() -> started.incrementAndGet() > 0);
        limit.release();
        assertEquals(1, started.get());
        limit.release();
        limit.acquire(() -> started.incrementAndGet() > 0);
        assertEquals(2, started.get());
    }
}
