package io.fluxgate.client;

import java.io.IOException;
import java.lang.ref.Reference;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Executor;
import java.util.concurrent.Flow;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLContext;

/** Sends HTTP requests to one service over connections that are kept alive. */
final class Transport {
    /** The largest answer: that of a batch of 1,000 checks is a quarter of it. */
    private static final int MAX_ANSWER_BYTES = 2 << 20;

    private final URI base;
    private final String[] headers;
    /** Cleared when the transport is closed. */
    private volatile HttpClient http;

    Transport(URI base, Map<String, String> headers, Duration connectTimeout, SSLContext tls, Executor executor) {
        this.base = base;
        List<String> lines = new ArrayList<>(List.of("Content-Type", "application/json"));
        headers.forEach((name, value) -> lines.addAll(List.of(name, value)));
        this.headers = lines.toArray(String[]::new);
        // By default the client tries to upgrade each connection to HTTP/2.
        HttpClient.Builder builder = HttpClient.newBuilder()
                .version(HttpClient.Version.HTTP_1_1)
                .followRedirects(HttpClient.Redirect.NEVER)
                .connectTimeout(connectTimeout)
                .executor(executor);
        if (tls != null) {
            builder.sslContext(tls);
        }
        http = builder.build();
        // An invalid header fails here, and not with the first call.
        request("livez").build();
    }

    /** Parses the address of a service, such as {@code http://127.0.0.1:8081}. */
    static URI parseAddress(String address) {
        // Without what is before an `@`, which may be a password.
        String shown = address.contains("@") ? "one with a user or an `@`" : '"' + address + '"';
        IllegalArgumentException bad = new IllegalArgumentException(
                "expected the address of a service, such as http://127.0.0.1:8081, found " + shown);
        URI uri;
        try {
            uri = URI.create(address.endsWith("/") ? address : address + "/");
        } catch (IllegalArgumentException e) {
            throw bad;
        }
        boolean hasScheme = "http".equals(uri.getScheme()) || "https".equals(uri.getScheme());
        if (!hasScheme || uri.getHost() == null || uri.getQuery() != null || uri.getUserInfo() != null) {
            throw bad;
        }
        return uri;
    }

    /** Posts JSON. Cancelling the result closes its connection. */
    CompletableFuture<HttpResponse<byte[]>> post(String path, byte[] body) {
        return send(request(path).POST(HttpRequest.BodyPublishers.ofByteArray(body)));
    }

    CompletableFuture<HttpResponse<byte[]>> get(String path) {
        return send(request(path).GET());
    }

    private HttpRequest.Builder request(String path) {
        return HttpRequest.newBuilder(base.resolve(path)).headers(headers);
    }

    private CompletableFuture<HttpResponse<byte[]>> send(HttpRequest.Builder request) {
        HttpClient open = http;
        if (open == null) {
            return CompletableFuture.failedFuture(new IOException("the client is closed"));
        }
        CompletableFuture<HttpResponse<byte[]>> exchange =
                open.sendAsync(request.build(), response -> new BoundedBody());
        closeOnFailure(exchange);
        return exchange;
    }

    /**
     * Closes the connection of an exchange that fails. The JDK's client forgets to if the answer is
     * not HTTP. It closes one that is cancelled, but a future that has failed cannot be: so this
     * cancels one that depends on it and has not ended.
     */
    private static void closeOnFailure(CompletableFuture<?> exchange) {
        CompletableFuture<Void> unending = exchange.handle((response, error) -> error)
                .thenCompose(error -> error == null ? CompletableFuture.completedFuture(null) : new CompletableFuture<>());
        exchange.whenComplete((response, error) -> {
            if (error != null) {
                unending.cancel(true);
            }
        });
    }

    /**
     * Closes all connections. Before Java 21 a client cannot be closed: it closes its connections
     * and ends its thread once it is garbage.
     */
    void close() {
        HttpClient open = http;
        http = null;
        if (open == null) {
            return;
        }
        try {
            HttpClient.class.getMethod("shutdownNow").invoke(open);
        } catch (ReflectiveOperationException e) {
            // Java 17 to 20: connections of calls that were cancelled just now are closed by the
            // client's thread, which must live on until then.
            CompletableFuture.delayedExecutor(1, TimeUnit.SECONDS).execute(() -> Reference.reachabilityFence(open));
        }
    }

    /** Reads a body up to a bound, so that an endless answer does not fill the memory. */
    private static final class BoundedBody implements HttpResponse.BodySubscriber<byte[]> {
        private final HttpResponse.BodySubscriber<byte[]> whole = HttpResponse.BodySubscribers.ofByteArray();
        private Flow.Subscription subscription;
        private long left = MAX_ANSWER_BYTES;

        @Override
        public CompletionStage<byte[]> getBody() {
            return whole.getBody();
        }

        @Override
        public void onSubscribe(Flow.Subscription it) {
            subscription = it;
            whole.onSubscribe(it);
        }

        @Override
        public void onNext(List<ByteBuffer> chunks) {
            left -= chunks.stream().mapToLong(ByteBuffer::remaining).sum();
            if (left >= 0) {
                whole.onNext(chunks);
            } else {
                subscription.cancel();
                whole.onError(new IOException("the answer is longer than " + MAX_ANSWER_BYTES + " bytes"));
            }
        }

        @Override
        public void onError(Throwable error) {
            whole.onError(error);
        }

        @Override
        public void onComplete() {
            whole.onComplete();
        }
    }
}
