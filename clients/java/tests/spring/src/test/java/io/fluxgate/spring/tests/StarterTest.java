package io.fluxgate.spring.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.fluxgate.client.FluxGateClient;
import io.fluxgate.spring.RateLimit;
import io.fluxgate.spring.RateLimitExceededException;
import io.fluxgate.spring.ReactiveRequestContextCustomizer;
import io.fluxgate.spring.RequestContextCustomizer;
import io.fluxgate.testing.Leaks;
import io.fluxgate.testing.RawRequest;
import io.fluxgate.testing.Service;
import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.test.system.CapturedOutput;
import org.springframework.boot.test.system.OutputCaptureExtension;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.stereotype.Component;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** Programs that have nothing but the starter and its properties. */
@ExtendWith(OutputCaptureExtension.class)
class StarterTest {
    private Service service;

    enum Kind {
        SERVLET,
        WEBFLUX
    }

    @BeforeEach
    void start() throws IOException {
        service = Limits.start();
    }

    @AfterEach
    void stop() throws IOException {
        service.close();
    }

    private Program program(Kind kind, String... properties) {
        Map<String, String> all = new HashMap<>();
        all.put("fluxgate.url", service.url());
        all.put("fluxgate.deadline", "20s");
        all.put("management.endpoints.web.exposure.include", "*");
        all.put("management.endpoint.health.show-details", "always");
        for (int i = 0; i < properties.length; i += 2) {
            all.put(properties[i], properties[i + 1]);
        }
        return kind == Kind.SERVLET ? Program.servlet(Main.class, all) : Program.webFlux(Main.class, all);
    }

    @ParameterizedTest
    @EnumSource
    void propertiesAreEnough(Kind kind) throws IOException {
        try (Program program = program(
                kind,
                "fluxgate.on-error",
                "allow",
                "fluxgate.ratelimit.default-rule-set-id",
                "api-limits",
                "fluxgate.ratelimit.include-patterns",
                "/api/**")) {
            for (int left : new int[] {1, 0}) {
                RawRequest.Response response = Limits.get(program.port(), "/api/hello", "X-User-Id", "ann");
                assertEquals(200, response.status());
                assertEquals("hello", response.text());
                assertEquals(String.valueOf(left), response.headers().get("x-ratelimit-remaining"));
                assertEquals("\"per-user/burst\";q=2;w=60", response.headers().get("ratelimit-policy"));
            }
            RawRequest.Response denied = Limits.get(program.port(), "/api/hello", "X-User-Id", "ann");
            assertEquals(429, denied.status());
            assertEquals("application/problem+json", denied.headers().get("content-type"));
            Limits.assertRetryAfter(30, denied);
            assertEquals(
                    "https://iana.org/assignments/http-problem-types#quota-exceeded",
                    Limits.json(denied).get("type"));
            assertEquals(200, Limits.get(program.port(), "/api/hello", "X-User-Id", "bob").status());
            RawRequest.Response other = Limits.get(program.port(), "/other", "X-User-Id", "ann");
            assertEquals(200, other.status());
            assertNull(other.headers().get("x-ratelimit-limit"));
        }
    }

    @ParameterizedTest
    @EnumSource
    void withoutARuleSetNothingIsLimited(Kind kind) throws IOException {
        try (Program program = program(kind)) {
            for (int i = 0; i < 4; i++) {
                assertEquals(200, Limits.get(program.port(), "/api/hello").status());
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void theFilterCanBeSwitchedOff(Kind kind) throws IOException {
        for (String property : new String[] {"fluxgate.ratelimit.enabled", "fluxgate.ratelimit.filter-enabled"}) {
            try (Program program =
                    program(kind, "fluxgate.ratelimit.default-rule-set-id", "api-limits", property, "false")) {
                for (int i = 0; i < 4; i++) {
                    assertEquals(200, Limits.get(program.port(), "/api/hello").status());
                }
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void healthAndMetricsShowTheService(Kind kind) throws IOException {
        try (Program program = program(
                kind,
                "fluxgate.ratelimit.default-rule-set-id",
                "api-limits",
                "fluxgate.ratelimit.include-patterns",
                "/api/**")) {
            for (int i = 0; i < 3; i++) {
                Limits.get(program.port(), "/api/hello", "X-User-Id", "ann");
            }
            assertEquals("UP", serviceHealth(program));
            String allowed = "/actuator/metrics/fluxgate.requests?tag=result:allowed&tag=rule_set:api-limits";
            assertTrue(Limits.get(program.port(), allowed).text().contains("\"value\":2"));
            String rejected = "/actuator/metrics/fluxgate.requests?tag=result:rejected&tag=outcome:denied";
            assertTrue(Limits.get(program.port(), rejected).text().contains("\"value\":1"));
            String duration = Limits.get(program.port(), "/actuator/metrics/fluxgate.requests.duration").text();
            assertTrue(duration.contains("\"value\":3"), duration);
            assertEquals(200, Limits.get(program.port(), "/actuator/metrics/fluxgate.holds").status());
            service.close();
            // The program works without the service, so it is not down.
            assertEquals("DEGRADED", serviceHealth(program));
            assertEquals("UP", Limits.json(Limits.get(program.port(), "/actuator/health")).get("status"));
            service = Limits.start();
        }
    }

    private static Object serviceHealth(Program program) throws IOException {
        Map<String, Object> health = Limits.json(Limits.get(program.port(), "/actuator/health"));
        Map<?, ?> components = (Map<?, ?>) health.get("components");
        return ((Map<?, ?>) components.get("fluxgate")).get("status");
    }

    @ParameterizedTest
    @EnumSource
    void customizersChangeWhatRulesSee(Kind kind) throws IOException {
        try (Program program = program(kind, "fluxgate.ratelimit.default-rule-set-id", "tenants")) {
            assertEquals(200, Limits.get(program.port(), "/api/hello", "X-Tenant-Id", "t1").status());
            assertEquals(429, Limits.get(program.port(), "/api/hello", "X-Tenant-Id", "t1").status());
            assertEquals(200, Limits.get(program.port(), "/api/hello", "X-Tenant-Id", "t2").status());
        }
    }

    @ParameterizedTest
    @EnumSource
    void requestsWithoutARuleCanBeRefused(Kind kind) throws IOException {
        try (Program program = program(
                kind,
                "fluxgate.ratelimit.default-rule-set-id",
                "unknown",
                "fluxgate.ratelimit.missing-rule-behavior",
                "DENY")) {
            RawRequest.Response denied = Limits.get(program.port(), "/api/hello");
            assertEquals(429, denied.status());
            assertNull(Limits.json(denied).get("retry_after_ms"));
        }
        try (Program program = program(
                kind,
                "fluxgate.ratelimit.default-rule-set-id",
                "posts",
                "fluxgate.ratelimit.missing-rule-behavior",
                "DENY")) {
            RawRequest.Response denied = Limits.get(program.port(), "/api/hello");
            assertEquals(429, denied.status());
            assertEquals("no rule applies to it", Limits.json(denied).get("detail"));
        }
    }

    @ParameterizedTest
    @EnumSource
    void aProgramWithLimitedMethodsOnlyIsNotWarned(Kind kind, CapturedOutput output) {
        String[] logs = {"logging.level.io.fluxgate", "info"};
        program(kind, logs).close();
        assertTrue(output.getOut().contains(" INFO "), output.getOut());
        assertTrue(output.getOut().contains("only methods with @RateLimit are limited"), output.getOut());
        assertFalse(output.getOut().contains("requests are not limited"), output.getOut());
    }

    @Test
    void aBadAddressIsShownWithoutAStackTrace(CapturedOutput output) {
        assertThrows(RuntimeException.class, () -> program(Kind.SERVLET, "fluxgate.url", "localhost:8081"));
        String shown = output.getAll();
        assertTrue(shown.contains("APPLICATION FAILED TO START"), shown);
        String reason = "fluxgate.url: expected the address of a service, such as http://127.0.0.1:8081, "
                + "found \"localhost:8081\"";
        assertTrue(shown.contains(reason), shown);
        assertTrue(shown.contains("Change the property fluxgate.url"), shown);
        assertFalse(shown.contains("\tat "), shown);
    }

    @ParameterizedTest
    @EnumSource
    void limitHeadersCanBeLeftOut(Kind kind) throws IOException {
        try (Program program = program(
                kind,
                "fluxgate.ratelimit.default-rule-set-id",
                "api-limits",
                "fluxgate.ratelimit.include-headers",
                "false")) {
            assertNull(Limits.get(program.port(), "/api/hello").headers().get("x-ratelimit-limit"));
        }
    }

    @ParameterizedTest
    @EnumSource
    void trustNeedsNamedProxies(Kind kind) throws IOException {
        String[] trust = {
            "fluxgate.ratelimit.default-rule-set-id", "methods", "fluxgate.ratelimit.trust-client-ip-header", "true"
        };
        try (Program program = program(kind, trust)) {
            assertEquals(200, Limits.get(program.port(), "/api/hello", "X-Forwarded-For", "192.0.2.1").status());
            assertEquals(429, Limits.get(program.port(), "/api/hello", "X-Forwarded-For", "192.0.2.2").status());
        }
        try (Program program = program(
                kind,
                trust[0],
                trust[1],
                trust[2],
                trust[3],
                "fluxgate.ratelimit.trusted-proxies",
                "127.0.0.0/8",
                "fluxgate.ratelimit.client-ip-header",
                "X-Real-IP")) {
            assertEquals(200, Limits.get(program.port(), "/api/hello", "X-Real-IP", "192.0.2.1").status());
            assertEquals(200, Limits.get(program.port(), "/api/hello", "X-Real-IP", "192.0.2.2").status());
            assertEquals(429, Limits.get(program.port(), "/api/hello", "X-Real-IP", "192.0.2.2").status());
        }
    }

    @ParameterizedTest
    @EnumSource
    void deniedRequestsCanWait(Kind kind) throws IOException {
        try (Program program = program(
                kind,
                "fluxgate.ratelimit.default-rule-set-id",
                "refills",
                "fluxgate.ratelimit.wait-for-refill.enabled",
                "true")) {
            long began = System.nanoTime();
            assertEquals(200, Limits.get(program.port(), "/api/hello", "X-User-Id", "ann").status());
            assertEquals(200, Limits.get(program.port(), "/api/hello", "X-User-Id", "ann").status());
            assertTrue(System.nanoTime() - began > 290_000_000, "it did not wait");
        }
    }

    @ParameterizedTest
    @EnumSource
    void methodsAreLimited(Kind kind) throws IOException {
        try (Program program = program(kind)) {
            for (String path : List.of("/limited", "/mono", "/flux", "/future")) {
                // In WebFlux the request is known only to what is returned.
                if (kind == Kind.WEBFLUX && List.of("/limited", "/future").contains(path)) {
                    continue;
                }
                RawRequest.Response allowed = Limits.get(program.port(), path, "X-User-Id", path);
                assertEquals(200, allowed.status(), path);
                assertEquals("0", allowed.headers().get("x-ratelimit-remaining"), path);
                RawRequest.Response denied = Limits.get(program.port(), path, "X-User-Id", path);
                assertEquals(429, denied.status(), path);
                assertEquals("application/problem+json", denied.headers().get("content-type"), path);
                Limits.assertRetryAfter(60, denied);
            }
        }
    }

    @Test
    void callsOutsideOfARequestAreLimitedToo() {
        try (Program program = program(Kind.SERVLET)) {
            Work work = program.bean(Work.class);
            assertEquals("done", work.once());
            RateLimitExceededException denied = assertThrows(RateLimitExceededException.class, work::once);
            assertEquals(429, denied.refusal().status());
            assertEquals("done", work.unlimited());
        }
    }

    @Test
    void aMethodHoldsItsSlotUntilItsResultIsThere() throws Exception {
        try (Program program = program(Kind.SERVLET)) {
            Work work = program.bean(Work.class);
            CompletableFuture<String> result = new CompletableFuture<>();
            CompletableFuture<String> first = work.slot(result);
            assertThrows(RateLimitExceededException.class, () -> work.slot(result));
            result.complete("x");
            first.get();
            FluxGateClient client = program.bean(FluxGateClient.class);
            Leaks.await("the slot is held", () -> client.peek("slots", it -> it).allowed());
        }
    }

    @Test
    void aServiceOverTlsNeedsItsAuthority() {
        // The file is read at the start, and says what is wrong.
        RuntimeException error =
                assertThrows(RuntimeException.class, () -> program(Kind.SERVLET, "fluxgate.ca", "/does/not/exist"));
        assertTrue(causes(error).contains("fluxgate.ca: there is no file /does/not/exist"), causes(error));
    }

    private static String causes(Throwable error) {
        return error == null ? "" : error + "\n" + causes(error.getCause());
    }

    @Configuration
    @EnableAutoConfiguration
    @Import({Pages.class, Work.class})
    static class Main {
        @Bean
        RequestContextCustomizer tenant() {
            return (context, request) -> context.attribute("tenant", request.getHeader("X-Tenant-Id"));
        }

        @Bean
        ReactiveRequestContextCustomizer reactiveTenant() {
            return (context, exchange) -> Mono.just(context.attribute(
                    "tenant", exchange.getRequest().getHeaders().getFirst("X-Tenant-Id")));
        }
    }

    @RestController
    static class Pages {
        private final Work work;

        Pages(Work work) {
            this.work = work;
        }

        @GetMapping("/api/hello")
        String hello() {
            return "hello";
        }

        @GetMapping("/other")
        String other() {
            return "other";
        }

        @RateLimit(ruleSetId = "methods")
        @GetMapping("/limited")
        String limited() {
            return "done";
        }

        @GetMapping("/mono")
        Mono<String> mono() {
            return work.mono();
        }

        @GetMapping("/flux")
        Flux<String> flux() {
            return work.flux();
        }

        @RateLimit(ruleSetId = "methods")
        @GetMapping("/future")
        CompletableFuture<String> future() {
            return CompletableFuture.supplyAsync(() -> "done");
        }
    }

    @Component
    static class Work {
        @RateLimit(ruleSetId = "methods")
        String once() {
            return "done";
        }

        String unlimited() {
            return "done";
        }

        @RateLimit(ruleSetId = "methods")
        Mono<String> mono() {
            return Mono.just("done");
        }

        @RateLimit(ruleSetId = "methods")
        Flux<String> flux() {
            return Flux.just("done", "done");
        }

        @RateLimit(ruleSetId = "slots")
        CompletableFuture<String> slot(CompletableFuture<String> result) {
            return result;
        }
    }
}
