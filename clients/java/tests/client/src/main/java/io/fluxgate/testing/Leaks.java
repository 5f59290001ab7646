package io.fluxgate.testing;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;

/** Counts what must not be left behind. */
public final class Leaks {
    private Leaks() {}

    /** Returns the names of the client's threads, those of the JDK's HTTP client included. */
    public static List<String> threads() {
        return Thread.getAllStackTraces().keySet().stream()
                .map(Thread::getName)
                .filter(name -> name.startsWith("fluxgate-") || name.startsWith("HttpClient-"))
                .sorted()
                .toList();
    }

    /** Returns how many sockets this process has open. */
    public static long sockets() {
        try (Stream<Path> descriptors = Files.list(Path.of("/proc/self/fd"))) {
            return descriptors.filter(Leaks::isSocket).count();
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Waits until something holds. Before Java 21 an HTTP client ends only when it is garbage. */
    public static void await(String what, BooleanSupplier holds) {
        for (int i = 0; i < 150; i++) {
            if (holds.getAsBoolean()) {
                return;
            }
            System.gc();
            Service.sleep(100);
        }
        throw new AssertionError(what + ": " + threads() + ", " + sockets() + " sockets");
    }

    private static boolean isSocket(Path descriptor) {
        try {
            return Files.readSymbolicLink(descriptor).toString().startsWith("socket:");
        } catch (IOException e) {
            // It was closed after it was listed.
            return false;
        }
    }
}
