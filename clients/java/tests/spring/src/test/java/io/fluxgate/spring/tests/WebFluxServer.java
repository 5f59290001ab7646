package io.fluxgate.spring.tests;

import io.fluxgate.spring.FilterSettings;
import io.fluxgate.spring.webflux.FluxGateWebFilter;
import io.fluxgate.testing.Durations;
import io.fluxgate.testing.ServerUnderTest;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.io.buffer.DataBuffer;
import org.springframework.http.server.reactive.ServerHttpResponse;
import org.springframework.web.bind.annotation.RequestMapping;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebFilter;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** Netty with WebFlux and the filter. */
final class WebFluxServer implements ServerUnderTest {
    private final Program program = Program.webFlux(Main.class, Map.of("fluxgate.ratelimit.enabled", "false"));
    private final Main main = program.bean(Main.class);
    private Settings settings;

    @Override
    public Set<String> abilities() {
        return Set.of("raw_headers", "alike_names", "raw_paths", "odd_paths", "raw_methods", "disconnect");
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
        main.filter = new FluxGateWebFilter(settings.limiters().limiter(filter), List.of(), 0);
    }

    @Override
    public void unuse() {
        settings.client().close();
    }

    @Override
    public Map<String, Integer> runs() {
        return main.runs.all();
    }

    /** Returns the handler, for a server behind a gateway. */
    Runs handlerRuns() {
        return main.runs;
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
        volatile WebFilter filter = (exchange, chain) -> chain.filter(exchange);

        @Bean
        WebFilter filterOfTheCase() {
            return (exchange, chain) -> filter.filter(exchange, chain);
        }

        @RequestMapping("/**")
        Mono<Void> handle(ServerWebExchange exchange) {
            runs.record(exchange.getRequest().getHeaders().getFirst(ID_HEADER));
            ServerHttpResponse response = exchange.getResponse();
            String count = exchange.getRequest().getQueryParams().getFirst("n");
            return switch (exchange.getRequest().getURI().getRawPath()) {
                case "/stream" -> response.writeAndFlushWith(Flux.interval(Duration.ZERO, Duration.ofMillis(100))
                        .take(count == null ? 5 : Integer.parseInt(count))
                        .onBackpressureBuffer()
                        .map(i -> text(response, "chunk\n")));
                case "/break" -> response.writeAndFlushWith(Flux.just(text(response, "chunk\n"))
                        .concatWith(Mono.delay(Duration.ofMillis(20)).then(Mono.error(new IllegalStateException()))));
                case "/fail" -> Mono.error(new IllegalStateException("the handler fails"));
                default -> response.writeWith(text(response, "ok"));
            };
        }

        private static Mono<DataBuffer> text(ServerHttpResponse response, String text) {
            return Mono.fromSupplier(() -> response.bufferFactory().wrap(text.getBytes(StandardCharsets.US_ASCII)));
        }
    }
}
