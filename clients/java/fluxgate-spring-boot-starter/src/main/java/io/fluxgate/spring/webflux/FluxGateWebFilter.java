package io.fluxgate.spring.webflux;

import io.fluxgate.client.web.RequestLimiter;
import io.fluxgate.spring.ReactiveRequestContextCustomizer;
import java.util.List;
import org.springframework.core.Ordered;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebFilter;
import org.springframework.web.server.WebFilterChain;
import reactor.core.publisher.Mono;

/** Limits the requests of a WebFlux program. */
public final class FluxGateWebFilter implements WebFilter, Ordered {
    private final RequestLimiter limiter;
    private final List<ReactiveRequestContextCustomizer> customizers;
    private final int order;

    public FluxGateWebFilter(
            RequestLimiter limiter, List<ReactiveRequestContextCustomizer> customizers, int order) {
        this.limiter = limiter;
        this.customizers = List.copyOf(customizers);
        this.order = order;
    }

    @Override
    public Mono<Void> filter(ServerWebExchange exchange, WebFilterChain chain) {
        return WebExchanges.limit(limiter, customizers, exchange, () -> chain.filter(exchange));
    }

    @Override
    public int getOrder() {
        return order;
    }
}
