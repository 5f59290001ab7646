package io.fluxgate.client;

/**
 * The service refused a call as wrong (4xx): an address that is none, a rule that does not exist.
 * It is thrown whatever {@link OnError} says, as the program has to change.
 */
public final class InvalidCallException extends FluxGateException {
    private static final long serialVersionUID = 1;

    private final int status;

    InvalidCallException(int status, String detail) {
        super("the service answers " + status + ": " + detail, null);
        this.status = status;
    }

    /** Returns the status of the answer. */
    public int status() {
        return status;
    }
}
