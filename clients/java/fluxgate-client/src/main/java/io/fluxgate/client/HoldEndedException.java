package io.fluxgate.client;

/** The hold was settled or released before, or has expired. */
public final class HoldEndedException extends FluxGateException {
    private static final long serialVersionUID = 1;

    HoldEndedException() {
        super("the hold was settled, was released or has expired", null);
    }
}
