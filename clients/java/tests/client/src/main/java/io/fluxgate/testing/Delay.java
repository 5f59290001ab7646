package io.fluxgate.testing;

import java.util.Map;

/** What the machine delays from a time on: this process, and a service. */
public final class Delay {
    private final long since = System.nanoTime();
    private final Service service;
    private final Map<String, Long> waits;

    public Delay(Service service) {
        this.service = service;
        waits = service.waits();
    }

    /**
     * Returns for how many milliseconds a thread that only sleeps was late, or a thread of the
     * service has waited for a processor.
     */
    public long millis() {
        long most = Heartbeat.stalledNanos(since);
        for (Map.Entry<String, Long> wait : service.waits().entrySet()) {
            most = Math.max(most, wait.getValue() - waits.getOrDefault(wait.getKey(), 0L));
        }
        return most / 1_000_000;
    }

    /**
     * Returns within which time a service decides again that was not asked for {@code pauseMillis}
     * after its failures. A call that the machine makes late fails, and costs another pause.
     */
    public long recoveryMillis(long deadlineMillis, long pauseMillis) {
        long delayed = millis();
        long lateCalls = delayed / (deadlineMillis / 2);
        return 1000 + delayed + lateCalls * (deadlineMillis + pauseMillis);
    }
}
