package io.fluxgate.spring;

import io.fluxgate.client.RequestContext;
import org.springframework.web.server.ServerWebExchange;
import reactor.core.publisher.Mono;

/** Changes what rules see of a request of a WebFlux program, or of Spring Cloud Gateway. */
@FunctionalInterface
public interface ReactiveRequestContextCustomizer {
    Mono<RequestContext.Builder> customize(RequestContext.Builder context, ServerWebExchange exchange);
}
