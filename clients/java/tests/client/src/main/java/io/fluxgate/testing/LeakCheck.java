package io.fluxgate.testing;

import java.util.List;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/** Fails a test class that leaves threads of clients or sockets behind. */
public final class LeakCheck implements BeforeAllCallback, AfterAllCallback {
    private List<String> threads;
    private long sockets;

    @Override
    public void beforeAll(ExtensionContext context) {
        threads = Leaks.threads();
        sockets = Leaks.sockets();
    }

    @Override
    public void afterAll(ExtensionContext context) {
        Leaks.await(
                "threads or sockets are left",
                () -> threads.containsAll(Leaks.threads()) && Leaks.sockets() <= sockets);
    }
}
