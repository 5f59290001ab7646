package io.fluxgate.spring;

import io.fluxgate.client.Decision;
import io.fluxgate.client.web.Refusal;
import java.util.Optional;

/** A call of a limited method was denied. In an HTTP request it is answered by {@link #refusal()}. */
public final class RateLimitExceededException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private final transient Refusal refusal;
    private final transient Decision decision;

    public RateLimitExceededException(Refusal refusal, Decision decision) {
        super(decision == null ? "the request is ambiguous" : "denied: " + decision);
        this.refusal = refusal;
        this.decision = decision;
    }

    /** Returns the answer that the gateway would send. */
    public Refusal refusal() {
        return refusal;
    }

    /** Returns the decision, unless the request was not decided because it is ambiguous. */
    public Optional<Decision> decision() {
        return Optional.ofNullable(decision);
    }
}
