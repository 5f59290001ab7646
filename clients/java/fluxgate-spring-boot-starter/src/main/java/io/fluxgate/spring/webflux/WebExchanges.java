package io.fluxgate.spring.webflux;

import io.fluxgate.client.RequestContext;
import io.fluxgate.client.web.Admission;
import io.fluxgate.client.web.Refusal;
import io.fluxgate.client.web.RequestHead;
import io.fluxgate.client.web.RequestLimiter;
import io.fluxgate.spring.ReactiveRequestContextCustomizer;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import org.springframework.core.io.buffer.DataBuffer;
import org.springframework.http.HttpStatusCode;
import org.springframework.http.server.reactive.ServerHttpRequest;
import org.springframework.http.server.reactive.ServerHttpResponse;
import org.springframework.web.server.ServerWebExchange;
import reactor.core.publisher.Mono;

/** Limits exchanges: what the filters of WebFlux and of Spring Cloud Gateway have in common. */
public final class WebExchanges {
    private WebExchanges() {}

    public static RequestHead head(ServerHttpRequest request) {
        List<Map.Entry<String, String>> headers = new ArrayList<>();
        request.getHeaders().forEach((name, lines) -> lines.forEach(line -> headers.add(Map.entry(name, line))));
        InetSocketAddress remote = request.getRemoteAddress();
        String peer = remote == null || remote.getAddress() == null ? null : remote.getAddress().getHostAddress();
        return new RequestHead(request.getMethod().name(), request.getURI().getRawPath(), headers, peer);
    }

    /** Decides an exchange, and refuses it or lets {@code serve} answer it. */
    public static Mono<Void> limit(
            RequestLimiter limiter,
            List<ReactiveRequestContextCustomizer> customizers,
            ServerWebExchange exchange,
            Supplier<Mono<Void>> serve) {
        RequestLimiter.Reading reading = limiter.read(head(exchange.getRequest()));
        if (reading.refusal().isPresent()) {
            return write(reading.refusal().get(), exchange.getResponse());
        }
        if (reading.context().isEmpty()) {
            return serve.get();
        }
        return customize(reading.context().get(), customizers, exchange)
                .flatMap(context -> admit(limiter, reading, context.build(), exchange, serve));
    }

    /** Applies customizers in their order. One that returns nothing changes nothing. */
    public static Mono<RequestContext.Builder> customize(
            RequestContext.Builder context,
            List<ReactiveRequestContextCustomizer> customizers,
            ServerWebExchange exchange) {
        Mono<RequestContext.Builder> customized = Mono.just(context);
        for (ReactiveRequestContextCustomizer customizer : customizers) {
            customized = customized.flatMap(it -> customizer.customize(it, exchange).defaultIfEmpty(it));
        }
        return customized;
    }

    private static Mono<Void> admit(
            RequestLimiter limiter,
            RequestLimiter.Reading reading,
            RequestContext context,
            ServerWebExchange exchange,
            Supplier<Mono<Void>> serve) {
        return Mono.defer(() -> {
            CompletableFuture<Admission> admitted = limiter.admit(reading, context);
            return Mono.fromFuture(admitted, true)
                    .flatMap(admission -> {
                        if (admission.refusal().isPresent()) {
                            return write(admission.refusal().get(), exchange.getResponse());
                        }
                        addHeaders(admission.headers(), exchange.getResponse());
                        return serve.get();
                    })
                    .doFinally(signal -> end(admitted));
        });
    }

    /** Adds limit headers to a response, in place of those that it gets from elsewhere. */
    public static void addHeaders(Map<String, String> headers, ServerHttpResponse response) {
        response.beforeCommit(() -> {
            headers.forEach(response.getHeaders()::set);
            return Mono.empty();
        });
    }

    /** Gives up the wait of a client that has left, or frees the slots of a response that has ended. */
    public static void end(CompletableFuture<Admission> admitted) {
        if (!admitted.cancel(false) && !admitted.isCompletedExceptionally()) {
            admitted.join().close();
        }
    }

    public static Mono<Void> write(Refusal refusal, ServerHttpResponse response) {
        response.setStatusCode(HttpStatusCode.valueOf(refusal.status()));
        refusal.headers().forEach(response.getHeaders()::set);
        byte[] body = refusal.body().getBytes(StandardCharsets.UTF_8);
        response.getHeaders().setContentLength(body.length);
        DataBuffer buffer = response.bufferFactory().wrap(body);
        return response.writeWith(Mono.just(buffer));
    }
}
