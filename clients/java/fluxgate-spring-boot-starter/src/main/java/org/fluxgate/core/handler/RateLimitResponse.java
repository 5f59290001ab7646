package org.fluxgate.core.handler;

/** The answer of a {@link FluxgateRateLimitHandler}. */
public final class RateLimitResponse {
    private final boolean allowed;
    private final long remainingTokens;
    private final long retryAfterMillis;

    private RateLimitResponse(boolean allowed, long remainingTokens, long retryAfterMillis) {
        this.allowed = allowed;
        this.remainingTokens = remainingTokens;
        this.retryAfterMillis = retryAfterMillis;
    }

    public static RateLimitResponse allowed(long remainingTokens, long retryAfterMillis) {
        return new RateLimitResponse(true, remainingTokens, retryAfterMillis);
    }

    public static RateLimitResponse rejected(long retryAfterMillis) {
        return new RateLimitResponse(false, 0, retryAfterMillis);
    }

    public boolean isAllowed() {
        return allowed;
    }

    public long getRemainingTokens() {
        return remainingTokens;
    }

    public long getRetryAfterMillis() {
        return retryAfterMillis;
    }
}
