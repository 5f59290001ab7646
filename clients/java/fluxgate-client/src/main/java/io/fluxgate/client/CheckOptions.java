package io.fluxgate.client;

import java.time.Duration;

/**
 * How a request is decided.
 *
 * @param peek decides without charging
 * @param waits true lets a request wait, with a reservation that can be cancelled; false denies a
 *     request that would have to wait; null lets it wait without a reservation
 * @param again whether the request was denied before and is sent once more: rules with
 *     {@code charge: always} do not charge it again
 * @param hold how long to hold the charge, or null: only requests that take slots have a hold
 */
public record CheckOptions(boolean peek, Boolean waits, boolean again, Duration hold) {
    public static final CheckOptions DEFAULT = new CheckOptions(false, null, false, null);
    public static final CheckOptions PEEK = new CheckOptions(true, null, false, null);

    public CheckOptions withWaits(boolean value) {
        return new CheckOptions(peek, value, again, hold);
    }

    public CheckOptions withHold(Duration span) {
        return new CheckOptions(peek, waits, again, span);
    }

    /** Returns the options to decide a denied request once more. */
    public CheckOptions repeated() {
        return new CheckOptions(peek, waits, true, hold);
    }
}
