package io.fluxgate.client;

/** A call failed, or a request was denied. */
public abstract class FluxGateException extends RuntimeException {
    private static final long serialVersionUID = 1;

    FluxGateException(String message, Throwable cause) {
        super(message, cause);
    }
}
