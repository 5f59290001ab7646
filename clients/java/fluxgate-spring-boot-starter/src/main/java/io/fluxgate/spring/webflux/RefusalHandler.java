package io.fluxgate.spring.webflux;

import io.fluxgate.spring.RateLimitExceededException;
import org.springframework.core.Ordered;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebExceptionHandler;
import reactor.core.publisher.Mono;

/** Answers an exchange whose handler called a limited method and was denied. */
public final class RefusalHandler implements WebExceptionHandler, Ordered {
    @Override
    public Mono<Void> handle(ServerWebExchange exchange, Throwable error) {
        if (error instanceof RateLimitExceededException refused && !exchange.getResponse().isCommitted()) {
            return WebExchanges.write(refused.refusal(), exchange.getResponse());
        }
        return Mono.error(error);
    }

    /** The handler of Spring Boot, which answers 500, comes at -1. */
    @Override
    public int getOrder() {
        return HIGHEST_PRECEDENCE;
    }
}
