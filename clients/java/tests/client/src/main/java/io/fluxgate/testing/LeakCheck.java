package io.fluxgate.testing;

import java.io.IOException;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/** Fails a test class that leaves threads of clients or sockets behind. */
public final class LeakCheck implements BeforeAllCallback, AfterAllCallback {
    private long sockets;

    @Override
    public void beforeAll(ExtensionContext context) throws IOException {
        // The first connection of a JVM opens a socket that stays open.
        WarmUp.run(new Cases());
        Leaks.await("the first client is not closed", () -> Leaks.threads().isEmpty());
        sockets = Leaks.sockets();
    }

    @Override
    public void afterAll(ExtensionContext context) {
        Leaks.await(
                "threads or sockets are left",
                () -> Leaks.threads().isEmpty() && Leaks.sockets() <= sockets);
    }
}
