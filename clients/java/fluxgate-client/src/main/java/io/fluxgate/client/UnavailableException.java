package io.fluxgate.client;

/** The service did not answer in time, or its answer was not one. The cause says why. */
public final class UnavailableException extends FluxGateException {
    private static final long serialVersionUID = 1;

    UnavailableException(String message) {
        this(message, null);
    }

    UnavailableException(String message, Throwable cause) {
        super(message, cause);
    }
}
