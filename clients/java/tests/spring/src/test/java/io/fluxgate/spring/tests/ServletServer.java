package io.fluxgate.spring.tests;

import io.fluxgate.spring.FilterSettings;
import io.fluxgate.spring.servlet.FluxGateFilter;
import io.fluxgate.testing.Durations;
import io.fluxgate.testing.ServerUnderTest;
import io.fluxgate.testing.Service;
import jakarta.servlet.Filter;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.web.servlet.FilterRegistrationBean;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.web.bind.annotation.RequestMapping;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.servlet.mvc.method.annotation.StreamingResponseBody;

/** Tomcat with Spring MVC and the filter. */
final class ServletServer implements ServerUnderTest {
    private final Program program = Program.servlet(Main.class, Map.of("fluxgate.ratelimit.enabled", "false"));
    private final Main main = program.bean(Main.class);
    private Settings settings;

    @Override
    public Set<String> abilities() {
        return Set.of("raw_headers", "alike_names", "raw_paths", "odd_paths", "raw_methods");
    }

    @Override
    public int port() {
        return program.port();
    }

    @Override
    public void use(Map<String, String> properties) {
        settings = Settings.of(properties);
        main.runs.clear();
        FilterSettings filter = FilterSettings.of(settings.properties().ratelimit());
        main.filter = new FluxGateFilter(settings.limiters().limiter(filter), List.of());
    }

    @Override
    public void unuse() {
        settings.client().close();
    }

    @Override
    public Map<String, Integer> runs() {
        return main.runs.all();
    }

    @Override
    public Durations decisions() {
        return settings.decisions();
    }

    @Override
    public void close() {
        program.close();
    }

    @Configuration
    @EnableAutoConfiguration
    @RestController
    static class Main {
        final Runs runs = new Runs();
        volatile Filter filter;

        @Bean
        FilterRegistrationBean<Filter> filterOfTheCase() {
            return new FilterRegistrationBean<>((request, response, chain) -> filter.doFilter(request, response, chain));
        }

        @RequestMapping("/**")
        String handle(HttpServletRequest request) {
            runs.record(request.getHeader(ID_HEADER));
            return "ok";
        }

        @RequestMapping("/stream")
        StreamingResponseBody stream(
                HttpServletRequest request, HttpServletResponse response, @RequestParam(defaultValue = "5") int n) {
            runs.record(request.getHeader(ID_HEADER));
            return out -> {
                for (int i = 0; i < n; i++) {
                    send(out, response);
                    Service.sleep(100);
                }
            };
        }

        @RequestMapping("/break")
        StreamingResponseBody breakOff(HttpServletRequest request, HttpServletResponse response) {
            runs.record(request.getHeader(ID_HEADER));
            return out -> {
                send(out, response);
                throw new IOException("the body fails");
            };
        }

        @RequestMapping("/fail")
        String fail(HttpServletRequest request) {
            runs.record(request.getHeader(ID_HEADER));
            throw new IllegalStateException("the handler fails");
        }

        /** Sends a chunk at once. Spring 7.0.6 and newer ignore {@code out.flush()}. */
        private static void send(OutputStream out, HttpServletResponse response) throws IOException {
            out.write("chunk\n".getBytes(StandardCharsets.US_ASCII));
            response.flushBuffer();
        }
    }
}
