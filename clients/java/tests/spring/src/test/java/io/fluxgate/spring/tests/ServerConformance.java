package io.fluxgate.spring.tests;

import io.fluxgate.testing.CaseRun;
import io.fluxgate.testing.Cases;
import io.fluxgate.testing.ServerUnderTest;
import io.fluxgate.testing.WarmUp;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.TestInstance;

/** Every case of a middleware, on one server. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class ServerConformance<S extends ServerUnderTest & AutoCloseable> {
    private final S server = start();

    abstract S start();

    @TestFactory
    Stream<DynamicTest> cases() throws Exception {
        Cases cases = new Cases();
        WarmUp.run(cases);
        return cases.of("http").stream().map(one -> DynamicTest.dynamicTest((String) one.get("name"), () -> {
            List<?> needs = (List<?>) one.getOrDefault("needs", List.of());
            Assumptions.assumeTrue(server.abilities().containsAll(needs), () -> "it needs " + needs);
            try (CaseRun run = new CaseRun(cases, one, server)) {
                run.run();
            }
        }));
    }

    @AfterAll
    void close() throws Exception {
        server.close();
    }
}
