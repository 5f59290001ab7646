package io.fluxgate.testing;

import java.util.Map;
import java.util.Set;

/** A server with a middleware. One server runs all cases, each with its own client and middleware. */
public interface ServerUnderTest extends AutoCloseable {
    /** The header by which the handler tells the requests of a case apart. */
    String ID_HEADER = "X-Test-Id";

    /** Returns what it can do of what cases need. */
    Set<String> abilities();

    int port();

    /** Uses another client and middleware from now on, made of these properties. */
    void use(Map<String, String> properties);

    /** Closes the client and the middleware of the last case. */
    void unuse();

    /** Returns the ids of the requests that the handler has run for since {@link #use}. */
    Map<String, Integer> runs();

    /** Returns how long the decisions took since {@link #use}. */
    Durations decisions();

    /** Stops the server. */
    @Override
    void close();
}
