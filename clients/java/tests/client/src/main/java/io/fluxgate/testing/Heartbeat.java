package io.fluxgate.testing;

import java.util.Iterator;
import java.util.concurrent.ConcurrentLinkedDeque;

/**
 * Measures how late threads wake up. A test that bounds a time adds what the machine, and not the
 * client, has delayed in the same interval.
 */
public final class Heartbeat {
    /**
     * How many threads take part in a call one after another, of the client, the proxy and the
     * service. A busy machine may delay each of them.
     */
    public static final int HANDOVERS = 6;

    private static final long BEAT_NANOS = 1_000_000;
    /** Pauses that are shorter are usual. */
    private static final long SHORTEST_NANOS = 1_000_000;

    private static final long KEPT_NANOS = 300_000_000_000L;
    private static final ConcurrentLinkedDeque<Pause> PAUSES = new ConcurrentLinkedDeque<>();
    private static final Beat[] BEATS = {new Beat(), new Beat()};

    private record Pause(Beat beat, long end, long nanos) {}

    private Heartbeat() {}

    /** Returns the longest pause since a time of {@link System#nanoTime}, up to now. */
    public static long longestPauseNanos(long since) {
        long longest = 0;
        for (Iterator<Pause> pauses = PAUSES.descendingIterator(); pauses.hasNext(); ) {
            Pause pause = pauses.next();
            if (pause.end - since <= 0) {
                break;
            }
            longest = Math.max(longest, pause.nanos);
        }
        long now = System.nanoTime();
        for (Beat beat : BEATS) {
            longest = Math.max(longest, now - beat.last - BEAT_NANOS);
        }
        return longest;
    }

    /** Returns the longest pause since a time of {@link System#nanoTime}, in milliseconds. */
    public static long longestPauseMillis(long since) {
        return longestPauseNanos(since) / 1_000_000;
    }

    /** Returns how late a thread that only sleeps was in all since a time of {@link System#nanoTime}. */
    public static long stalledNanos(long since) {
        long now = System.nanoTime();
        long most = 0;
        for (Beat beat : BEATS) {
            long sum = Math.max(0, Math.min(now - beat.last - BEAT_NANOS, now - since));
            for (Pause pause : PAUSES) {
                if (pause.beat == beat && pause.end - since > 0) {
                    sum += Math.min(pause.nanos, pause.end - since);
                }
            }
            most = Math.max(most, sum);
        }
        return most;
    }

    private static final class Beat {
        private volatile long last = System.nanoTime();

        Beat() {
            Thread thread = new Thread(this::run, "heartbeat");
            thread.setDaemon(true);
            thread.start();
        }

        private void run() {
            while (true) {
                Service.sleep(BEAT_NANOS / 1_000_000);
                long now = System.nanoTime();
                long late = now - last - BEAT_NANOS;
                last = now;
                if (late >= SHORTEST_NANOS) {
                    PAUSES.add(new Pause(this, now, late));
                }
                for (Pause oldest = PAUSES.peek(); oldest != null && now - oldest.end > KEPT_NANOS; ) {
                    PAUSES.remove(oldest);
                    oldest = PAUSES.peek();
                }
            }
        }
    }
}
