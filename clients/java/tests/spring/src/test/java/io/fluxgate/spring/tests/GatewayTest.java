package io.fluxgate.spring.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.fluxgate.testing.RawRequest;
import io.fluxgate.testing.Service;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.cloud.gateway.filter.ratelimit.KeyResolver;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import reactor.core.publisher.Mono;

/** Gateways that are configured by properties only. */
class GatewayTest {
    private Service service;
    private WebFluxServer upstream;

    @BeforeEach
    void start() throws IOException {
        service = Limits.start();
        upstream = new WebFluxServer();
    }

    @AfterEach
    void stop() throws IOException {
        upstream.close();
        service.close();
    }

    private Program gateway(String... filter) {
        Map<String, String> all = new HashMap<>();
        all.put("fluxgate.url", service.url());
        all.put("fluxgate.deadline", "20s");
        String route = "spring.cloud.gateway.server.webflux.routes[0].";
        all.put(route + "id", "api");
        all.put(route + "uri", "http://127.0.0.1:" + upstream.port());
        all.put(route + "predicates[0]", "Path=/**");
        for (int i = 0; i < filter.length; i += 2) {
            all.put(route + "filters[0]" + filter[i], filter[i + 1]);
        }
        return Program.gateway(Main.class, all);
    }

    @Test
    void theFilterIsNamedInTheRoute() throws IOException {
        try (Program program = gateway(".name", "FluxGate", ".args.rule-set", "api-limits")) {
            assertFilter(program);
        }
    }

    @Test
    void theFilterHasAShortForm() throws IOException {
        try (Program program = gateway("", "FluxGate=api-limits")) {
            assertFilter(program);
        }
    }

    private static void assertFilter(Program program) throws IOException {
        for (int left : new int[] {1, 0}) {
            RawRequest.Response response = Limits.get(program.port(), "/x", "X-User-Id", "ann");
            assertEquals(200, response.status());
            assertEquals(String.valueOf(left), response.headers().get("x-ratelimit-remaining"));
        }
        RawRequest.Response denied = Limits.get(program.port(), "/x", "X-User-Id", "ann");
        assertEquals(429, denied.status());
        assertEquals("application/problem+json", denied.headers().get("content-type"));
        Limits.assertRetryAfter(30, denied);
        assertTrue(denied.text().contains("\"violated-policies\":[\"per-user/burst\"]"), denied.text());
    }

    @Test
    void aGrpcCallIsRefusedInItsOwnWay() throws IOException {
        try (Program program = gateway(".name", "FluxGate", ".args.rule-set", "methods")) {
            String[] call = {"X-User-Id", "ann", "Content-Type", "application/grpc"};
            Limits.get(program.port(), "/pkg.Service/Method", call);
            RawRequest.Response denied = Limits.get(program.port(), "/pkg.Service/Method", call);
            assertEquals(200, denied.status());
            assertEquals("8", denied.headers().get("grpc-status"));
            assertEquals("application/grpc", denied.headers().get("content-type"));
            int pushback = Integer.parseInt(denied.headers().get("grpc-retry-pushback-ms"));
            assertTrue(pushback > 0 && pushback <= 60_000, pushback + " ms");
        }
    }

    @Test
    void theRateLimiterServesRequestRateLimiterRoutes() throws IOException {
        try (Program program =
                gateway(".name", "RequestRateLimiter", ".args.flux-gate-rate-limiter.rule-set", "routes")) {
            RawRequest.Response allowed = Limits.get(program.port(), "/x", "X-User-Id", "ann");
            assertEquals(200, allowed.status());
            assertEquals("0", allowed.headers().get("x-ratelimit-remaining"));
            RawRequest.Response denied = Limits.get(program.port(), "/x", "X-User-Id", "ann");
            assertEquals(429, denied.status());
            Limits.assertRetryAfter(60, denied);
            assertEquals(200, Limits.get(program.port(), "/x", "X-User-Id", "bob").status());
        }
    }

    @Configuration
    @EnableAutoConfiguration
    static class Main {
        @Bean
        KeyResolver user() {
            return exchange ->
                    Mono.justOrEmpty(exchange.getRequest().getHeaders().getFirst("X-User-Id"));
        }
    }
}
