package io.fluxgate.client;

/**
 * Stops calling a service that fails, so that not every request pays the deadline. After three
 * failures in a row no call is made for half a second, then one at a time until one succeeds.
 *
 * <p>Times are those of {@link System#nanoTime}.
 */
final class Circuit {
    static final long OPEN_NANOS = 500_000_000;
    private static final int MAX_FAILURES = 3;

    /** Whether a call may be made, and as what. */
    enum Entry {
        REFUSED,
        ORDINARY,
        PROBE
    }

    private int failures;
    private boolean isOpen;
    private boolean isProbing;
    private long openUntil;

    synchronized Entry enter(long now) {
        if (!isOpen) {
            return Entry.ORDINARY;
        }
        if (isProbing || now - openUntil < 0) {
            return Entry.REFUSED;
        }
        isProbing = true;
        return Entry.PROBE;
    }

    /** Records a success. Returns whether the calls before it had failed. */
    synchronized boolean succeeded(Entry entry) {
        boolean hadFailed = failures > 0;
        failures = 0;
        isOpen = false;
        isProbing = false;
        return hadFailed;
    }

    /** Records a failure. Returns whether it is the first in a row. */
    synchronized boolean failed(Entry entry, long now) {
        if (entry == Entry.PROBE) {
            isProbing = false;
            openUntil = now + OPEN_NANOS;
            return false;
        }
        failures++;
        // Calls that began before the circuit opened must not keep it open.
        if (!isOpen && failures >= MAX_FAILURES) {
            isOpen = true;
            openUntil = now + OPEN_NANOS;
        }
        return failures == 1;
    }

    /** Records that a call was given up before its answer, which says nothing about the service. */
    synchronized void cancelled(Entry entry) {
        if (entry == Entry.PROBE) {
            isProbing = false;
        }
    }

    synchronized boolean isOpen() {
        return isOpen;
    }
}
