package io.fluxgate.spring.method;

import io.fluxgate.client.RequestContext;
import io.fluxgate.client.web.Admission;
import io.fluxgate.client.web.RequestLimiter;
import io.fluxgate.spring.RateLimitExceededException;
import io.fluxgate.spring.ReactiveRequestContextCustomizer;
import io.fluxgate.spring.webflux.WebExchanges;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import org.aopalliance.intercept.MethodInvocation;
import org.reactivestreams.Publisher;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.web.filter.reactive.ServerWebExchangeContextFilter;
import org.springframework.web.server.ServerWebExchange;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.util.context.ContextView;

/**
 * Calls of methods that return a {@link Mono} or a {@link Flux}. They are decided when that is
 * subscribed to, and hold their slots until it ends.
 */
public final class ReactiveCalls {
    private final ObjectProvider<ReactiveRequestContextCustomizer> customizers;

    public ReactiveCalls(ObjectProvider<ReactiveRequestContextCustomizer> customizers) {
        this.customizers = customizers;
    }

    boolean areMadeBy(Method method) {
        Class<?> type = method.getReturnType();
        return Mono.class == type || Flux.class == type || Publisher.class == type;
    }

    /** Limits a call. {@code ofThread} is the request if the program is not one of WebFlux. */
    Publisher<?> limit(RequestLimiter limiter, CurrentRequest ofThread, MethodInvocation invocation) {
        boolean isMono = invocation.getMethod().getReturnType() == Mono.class;
        Flux<Object> limited = Flux.deferContextual(context -> {
            ServerWebExchange exchange = exchange(context);
            if (exchange == null) {
                RequestLimiter.Reading reading = ofThread.read(limiter);
                return run(limiter, reading, it -> Mono.just(ofThread.customize(it)), ofThread::addHeaders, invocation);
            }
            RequestLimiter.Reading reading = limiter.read(WebExchanges.head(exchange.getRequest()));
            Customizing customizing =
                    it -> WebExchanges.customize(it, customizers.orderedStream().toList(), exchange);
            Consumer<Map<String, String>> addHeaders =
                    headers -> WebExchanges.addHeaders(headers, exchange.getResponse());
            return run(limiter, reading, customizing, addHeaders, invocation);
        });
        return isMono ? limited.singleOrEmpty() : limited;
    }

    @FunctionalInterface
    private interface Customizing {
        Mono<RequestContext.Builder> customize(RequestContext.Builder context);
    }

    private static Publisher<Object> run(
            RequestLimiter limiter,
            RequestLimiter.Reading reading,
            Customizing customizing,
            Consumer<Map<String, String>> addHeaders,
            MethodInvocation invocation) {
        if (reading.refusal().isPresent()) {
            return Flux.error(new RateLimitExceededException(reading.refusal().get(), null));
        }
        return customizing.customize(reading.context().orElseThrow()).flatMapMany(context -> {
            CompletableFuture<Admission> admitted = limiter.admit(reading, context.build());
            return Mono.fromFuture(admitted, true)
                    .flatMapMany(admission -> {
                        RateLimitInterceptor.throwIfRefused(admission);
                        addHeaders.accept(admission.headers());
                        return proceed(invocation);
                    })
                    .doFinally(signal -> WebExchanges.end(admitted));
        });
    }

    private static ServerWebExchange exchange(ContextView context) {
        return context.getOrDefault(ServerWebExchangeContextFilter.EXCHANGE_CONTEXT_ATTRIBUTE, null);
    }

    @SuppressWarnings("unchecked")
    private static Publisher<Object> proceed(MethodInvocation invocation) {
        try {
            return (Publisher<Object>) invocation.proceed();
        } catch (Throwable e) {
            return Flux.error(e);
        }
    }
}
