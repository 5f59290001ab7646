package io.fluxgate.client;

import java.time.Duration;

/** Decides whether a request waits. */
public interface WaitPolicy {
    /** Lets every request wait for as long as its rule says. */
    WaitPolicy UNBOUNDED = wait -> true;

    /** Lets a request wait this long at most. */
    static WaitPolicy atMost(Duration bound) {
        return wait -> wait.compareTo(bound) <= 0;
    }

    /**
     * Returns whether a request may wait this long. If it returns true, {@link #end} is called once
     * when the wait is over.
     */
    boolean begin(Duration wait);

    default void end() {}

    /**
     * Returns whether a request that a limit denies waits until it would pass and is decided once
     * more, although its rule does not let it wait.
     */
    default boolean repeatsDenied() {
        return false;
    }
}
