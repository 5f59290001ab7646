package io.fluxgate.client.web;

/**
 * Servers may read a request in different ways, so the limiter could count another request than the
 * one that is served. It is answered with 400.
 */
public final class AmbiguousRequestException extends Exception {
    private static final long serialVersionUID = 1;

    AmbiguousRequestException(String reason) {
        // Clients cause it at will, so it must be cheap.
        super(reason, null, false, false);
    }
}
