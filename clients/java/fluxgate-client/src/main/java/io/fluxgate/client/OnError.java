package io.fluxgate.client;

/** What a decision is if the service does not answer in time. */
public enum OnError {
    /** Allowed, with the outcome {@link Outcome#FAILED_OPEN}. */
    ALLOW,
    /** Denied, with the outcome {@link Outcome#FAILED_CLOSED} and the status 503. */
    DENY,
    /** None: the call throws {@link UnavailableException}. */
    RAISE;

    /** Returns what happens to requests that the service does not decide, for logs. */
    public String effect() {
        return switch (this) {
            case ALLOW -> "requests are allowed (on_error=allow)";
            case DENY -> "requests are denied (on_error=deny)";
            case RAISE -> "requests fail (on_error=raise)";
        };
    }
}
