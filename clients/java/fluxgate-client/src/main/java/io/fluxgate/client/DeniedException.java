package io.fluxgate.client;

/** A hold was denied. */
public class DeniedException extends FluxGateException {
    private static final long serialVersionUID = 1;

    private final transient Decision decision;

    public DeniedException(Decision decision) {
        super("denied: " + decision, null);
        this.decision = decision;
    }

    /** Returns the decision. */
    public Decision decision() {
        return decision;
    }
}
