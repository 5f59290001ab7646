package io.fluxgate.testing;

import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;

/** How long calls took, and how long the machine paused while they ran. */
public final class Durations {
    private final Queue<Measured> all = new ConcurrentLinkedQueue<>();

    private record Measured(long nanos, long pauseNanos) {
        long overrunNanos(long mostMillis) {
            return nanos - mostMillis * 1_000_000 - Heartbeat.HANDOVERS * pauseNanos;
        }

        @Override
        public String toString() {
            return nanos / 1_000_000 + " ms, with pauses of " + pauseNanos / 1_000_000 + " ms";
        }
    }

    /** Adds a call that has just ended. */
    public void add(long nanos) {
        all.add(new Measured(nanos, Heartbeat.longestPauseNanos(System.nanoTime() - nanos)));
    }

    public void clear() {
        all.clear();
    }

    public int count() {
        return all.size();
    }

    /** Checks that no call took longer than this, pauses of the machine aside. */
    public void check(long mostMillis) {
        all.stream().filter(it -> it.overrunNanos(mostMillis) > 0).findFirst().ifPresent(late -> {
            throw new AssertionError("a call took " + late + "; " + mostMillis + " ms are allowed");
        });
    }
}
