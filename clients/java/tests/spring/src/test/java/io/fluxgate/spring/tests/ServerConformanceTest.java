package io.fluxgate.spring.tests;

import io.fluxgate.testing.CaseRun;
import io.fluxgate.testing.Cases;
import io.fluxgate.testing.ServerUnderTest;
import io.fluxgate.testing.WarmUp;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DynamicContainer;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;
import org.opentest4j.TestAbortedException;

/** Every case of a middleware, on each server. */
class ServerConformanceTest {
    private static final Map<String, ServerUnderTest> SERVERS = new LinkedHashMap<>();
    private static ExecutorService threads;

    @BeforeAll
    static void start() {
        SERVERS.put("servlet", new ServletServer());
        SERVERS.put("WebFlux", new WebFluxServer());
        SERVERS.put("gateway", new GatewayServer());
        threads = Executors.newFixedThreadPool(SERVERS.size());
    }

    @AfterAll
    static void stop() {
        threads.shutdown();
        SERVERS.values().forEach(ServerUnderTest::close);
        SERVERS.clear();
    }

    /** The servers run a case at the same time, as most of it is waiting. */
    @TestFactory
    Stream<DynamicContainer> cases() throws Exception {
        Cases cases = new Cases();
        WarmUp.run(cases);
        return cases.of("http").stream().map(one -> {
            Map<String, Future<Void>> runs = new LinkedHashMap<>();
            SERVERS.forEach((name, server) -> runs.put(name, threads.submit(() -> run(cases, one, server))));
            return DynamicContainer.dynamicContainer(
                    (String) one.get("name"),
                    runs.entrySet().stream()
                            .map(run -> DynamicTest.dynamicTest(run.getKey(), () -> get(run.getKey(), run.getValue()))));
        });
    }

    private static Void run(Cases cases, Map<String, Object> one, ServerUnderTest server) throws Exception {
        List<?> needs = (List<?>) one.getOrDefault("needs", List.of());
        if (!server.abilities().containsAll(needs)) {
            throw new TestAbortedException(one.get("name") + ": the server lacks one of " + needs);
        }
        try (CaseRun run = new CaseRun(cases, one, server)) {
            run.run();
        }
        return null;
    }

    private static void get(String server, Future<Void> run) throws Throwable {
        try {
            run.get();
        } catch (ExecutionException e) {
            if (e.getCause() instanceof AssertionError failure) {
                throw new AssertionError(server + ": " + failure.getMessage(), failure);
            }
            throw e.getCause();
        }
    }
}
