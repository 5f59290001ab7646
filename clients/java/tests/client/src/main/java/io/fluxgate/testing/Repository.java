package io.fluxgate.testing;

import java.nio.file.Files;
import java.nio.file.Path;

/** Where things are in the checkout. */
public final class Repository {
    private Repository() {}

    public static Path root() {
        Path folder = Path.of("").toAbsolutePath();
        while (!Files.exists(folder.resolve("clients/conformance.json"))) {
            folder = folder.getParent();
            if (folder == null) {
                throw new IllegalStateException("the tests must run in the checkout");
            }
        }
        return folder;
    }

    /** Returns the program under test: that of {@code FLUXGATE}, or the debug build. */
    public static Path program() {
        String named = System.getenv("FLUXGATE");
        Path program = named == null ? root().resolve("target/debug/fluxgate") : Path.of(named).toAbsolutePath();
        if (!Files.isExecutable(program)) {
            throw new IllegalStateException(program + " is missing; run `cargo build` or set FLUXGATE");
        }
        return program;
    }
}
