package io.fluxgate.spring.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.fluxgate.testing.Service;
import java.util.Map;
import org.fluxgate.core.context.RequestContext;
import org.fluxgate.core.handler.FluxgateRateLimitHandler;
import org.fluxgate.core.handler.RateLimitResponse;
import org.fluxgate.spring.annotation.EnableFluxgateAspect;
import org.fluxgate.spring.annotation.EnableFluxgateFilter;
import org.fluxgate.spring.annotation.RateLimit;
import org.fluxgate.spring.filter.RequestContextCustomizer;
import org.junit.jupiter.api.Test;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** A program that was written for OpenFluxGate: nothing of it changes but its dependency and its properties. */
class OpenFluxGateTest {
    @Test
    void itsProgramsAreLimitedByTheService() throws Exception {
        try (Service service = Limits.start();
                Program program = Program.servlet(
                        Main.class, Map.of("fluxgate.url", service.url(), "fluxgate.deadline", "20s"))) {
            assertEquals(200, Limits.get(program.port(), "/api/hello", "X-Account", "ann").status());
            assertEquals(200, Limits.get(program.port(), "/api/hello", "X-Account", "ann").status());
            assertEquals(429, Limits.get(program.port(), "/api/hello", "X-Account", "ann").status());
            assertEquals(200, Limits.get(program.port(), "/api/hello", "X-Account", "bob").status());
            assertNull(Limits.get(program.port(), "/api/health").headers().get("x-ratelimit-limit"));
            assertEquals(200, Limits.get(program.port(), "/method", "X-Account", "ann").status());
            assertEquals(429, Limits.get(program.port(), "/method", "X-Account", "ann").status());
            assertEquals(200, Limits.get(program.port(), "/method", "X-Account", "bob").status());
        }
    }

    @Configuration
    @EnableAutoConfiguration
    @EnableFluxgateAspect
    @EnableFluxgateFilter(
            handler = Handler.class,
            ruleSetId = "api-limits",
            includePatterns = {"/api/*"},
            excludePatterns = {"/api/health"})
    @Import(Pages.class)
    static class Main {
        @Bean
        RequestContextCustomizer account() {
            return (builder, request) -> builder.userId(request.getHeader("X-Account"));
        }
    }

    @RestController
    static class Pages {
        @GetMapping({"/api/hello", "/api/health"})
        String hello() {
            return "hello";
        }

        @RateLimit(ruleSetId = "methods")
        @GetMapping("/method")
        public String method() {
            return "method";
        }
    }

    static class Handler implements FluxgateRateLimitHandler {
        @Override
        public RateLimitResponse tryConsume(RequestContext context, String ruleSetId) {
            throw new AssertionError("the service decides");
        }
    }
}
