package io.fluxgate.client;

/** What a decision is if the service does not answer in time. */
public enum OnError {
    /** Allowed, with the outcome {@link Outcome#FAILED_OPEN}. */
    ALLOW,
    /** Denied, with the outcome {@link Outcome#FAILED_CLOSED} and the status 503. */
    DENY,
    /** None: the call throws {@link UnavailableException}. */
    RAISE
}
