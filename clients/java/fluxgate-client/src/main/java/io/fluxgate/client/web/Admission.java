package io.fluxgate.client.web;

import io.fluxgate.client.Decision;
import io.fluxgate.client.Hold;
import java.util.Map;
import java.util.Optional;

/** What a filter does with a request: serve it, with limit headers, or refuse it. */
public final class Admission implements AutoCloseable {
    private final Decision decision;
    private final Refusal refusal;
    private final Map<String, String> headers;
    /** Null if the request holds nothing. */
    private final Hold hold;

    private Admission(Decision decision, Refusal refusal, Map<String, String> headers, Hold hold) {
        this.decision = decision;
        this.refusal = refusal;
        this.headers = headers;
        this.hold = hold;
    }

    static Admission refused(Decision decision, Refusal refusal) {
        return new Admission(decision, refusal, Map.of(), null);
    }

    static Admission admitted(Decision decision, boolean withHeaders, Hold hold) {
        return new Admission(decision, null, withHeaders ? decision.headers() : Map.of(), hold);
    }

    public Decision decision() {
        return decision;
    }

    /** Returns how to answer, if the request is refused. */
    public Optional<Refusal> refusal() {
        return Optional.ofNullable(refusal);
    }

    /** Returns the limit headers to add to the response of a request that is served. */
    public Map<String, String> headers() {
        return headers;
    }

    /** Returns the hold of a request that takes slots, so that it can be settled with the real cost. */
    public Optional<Hold> hold() {
        return Optional.ofNullable(hold);
    }

    /** Frees the slots: call it when the response has ended, in any way. It does not block. */
    @Override
    public void close() {
        if (hold != null) {
            hold.finishAsync();
        }
    }
}
