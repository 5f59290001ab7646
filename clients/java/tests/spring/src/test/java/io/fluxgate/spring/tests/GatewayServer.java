package io.fluxgate.spring.tests;

import io.fluxgate.gateway.FluxGateGatewayFilterFactory;
import io.fluxgate.spring.FluxGateProperties;
import io.fluxgate.testing.Durations;
import io.fluxgate.testing.ServerUnderTest;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.cloud.gateway.filter.GatewayFilter;
import org.springframework.cloud.gateway.filter.OrderedGatewayFilter;
import org.springframework.cloud.gateway.route.RouteLocator;
import org.springframework.cloud.gateway.route.builder.RouteLocatorBuilder;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** Spring Cloud Gateway with the filter, in front of a server without one. */
final class GatewayServer implements ServerUnderTest {
    private final WebFluxServer upstream = new WebFluxServer();
    private final Program program = Program.gateway(
            Main.class,
            Map.of("test.upstream", "http://127.0.0.1:" + upstream.port(), "fluxgate.ratelimit.filter-enabled", "false"));
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
        upstream.handlerRuns().clear();
        FluxGateProperties.RateLimit limits = settings.properties().ratelimit();
        FluxGateGatewayFilterFactory factory =
                new FluxGateGatewayFilterFactory(settings.limiters(), null, List::of);
        FluxGateGatewayFilterFactory.Config config = factory.newConfig();
        config.setRuleSet(limits.defaultRuleSetId());
        config.setIncludePatterns(limits.includePatterns());
        config.setExcludePatterns(limits.excludePatterns());
        main.filter = factory.apply(config);
    }

    @Override
    public void unuse() {
        settings.client().close();
    }

    @Override
    public Map<String, Integer> runs() {
        return upstream.runs();
    }

    @Override
    public Durations decisions() {
        return settings.decisions();
    }

    @Override
    public void close() {
        program.close();
        upstream.close();
    }

    @Configuration
    @EnableAutoConfiguration
    static class Main {
        volatile GatewayFilter filter = new OrderedGatewayFilter((exchange, chain) -> chain.filter(exchange), -2);

        @Bean
        RouteLocator routes(RouteLocatorBuilder builder, @Value("${test.upstream}") String upstream) {
            GatewayFilter current =
                    new OrderedGatewayFilter((exchange, chain) -> filter.filter(exchange, chain), -2);
            return builder.routes()
                    .route("all", route -> route.path("/**").filters(it -> it.filter(current)).uri(upstream))
                    .build();
        }
    }
}
