package io.fluxgate.testing;

import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** Every case of a client, against the real service. */
class ClientConformanceTest {
    private static List<String> threads;
    private static long sockets;

    @BeforeAll
    static void count() {
        threads = Leaks.threads();
        sockets = Leaks.sockets();
    }

    @TestFactory
    Stream<DynamicTest> cases() throws Exception {
        Cases cases = new Cases();
        WarmUp.run(cases);
        return cases.of("client").stream().map(one -> DynamicTest.dynamicTest((String) one.get("name"), () -> {
            try (CaseRun run = new CaseRun(cases, one, null)) {
                run.run();
            }
        }));
    }

    @AfterAll
    static void nothingIsLeft() {
        Leaks.await(
                "threads or sockets are left",
                () -> threads.containsAll(Leaks.threads()) && Leaks.sockets() <= sockets);
    }
}
