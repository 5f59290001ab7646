package io.fluxgate.client;

import java.net.ConnectException;
import java.net.http.HttpResponse;
import java.nio.channels.UnresolvedAddressException;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import java.util.function.Supplier;

/** Makes calls within the deadline. A call is sent at most once. */
final class Caller {
    /** How long to wait for an answer that comes after the deadline. */
    private static final Duration LATE_ANSWER = Duration.ofSeconds(5);
    /** Each late answer occupies a connection, and a service that hangs must not get more and more. */
    private static final int MAX_LATE_ANSWERS = 64;

    private final Transport transport;
    private final Duration deadline;
    private final CallLimit limit;
    private final ScheduledExecutorService timer;
    private final Executor executor;
    private final Semaphore lateAnswers = new Semaphore(MAX_LATE_ANSWERS);
    /** Requests whose answers are awaited, late ones included. */
    private final Set<CompletableFuture<?>> exchanges = ConcurrentHashMap.newKeySet();

    Caller(
            Transport transport,
            Duration deadline,
            int maxConnections,
            ScheduledExecutorService timer,
            Executor executor) {
        this.transport = transport;
        this.deadline = deadline;
        this.limit = new CallLimit(maxConnections);
        this.timer = timer;
        this.executor = executor;
    }

    /** Posts a body. Fails with {@link UnavailableException} if there is no answer in time. */
    CompletableFuture<Reply> post(String path, byte[] body) {
        return post(path, body, null).answer;
    }

    /**
     * Posts a body. If the answer comes after the deadline, or after {@link Call#cancel}, it goes to
     * {@code late}: the service may have reserved units or taken slots that will not be used.
     */
    Call post(String path, byte[] body, Consumer<Reply> late) {
        return start(() -> transport.post(path, body), late);
    }

    CompletableFuture<Reply> get(String path) {
        return start(() -> transport.get(path), null).answer;
    }

    /**
     * Makes a call whose answer does not matter, in the background. The first request of a JVM loads
     * hundreds of classes, for longer than the deadline: this one comes before those that count. It
     * also opens a connection. The service answers it with 405, since it has to be a POST as they are.
     */
    void warmUp() {
        executor.execute(() -> {
            CompletableFuture<?> exchange = track(transport.post("livez", new byte[] {'{', '}'}));
            cancelLater(exchange);
        });
    }

    /** Gives up all calls. The JDK's client lives on until its last exchange has ended. */
    void close() {
        exchanges.forEach(exchange -> exchange.cancel(true));
    }

    private Call start(Supplier<CompletableFuture<HttpResponse<byte[]>>> request, Consumer<Reply> late) {
        Call call = new Call(request, late);
        try {
            call.timeout = timer.schedule(call::expire, deadline.toNanos(), TimeUnit.NANOSECONDS);
        } catch (RejectedExecutionException e) {
            call.answer.completeExceptionally(new UnavailableException("the client is closed", e));
            return call;
        }
        limit.acquire(call::send);
        return call;
    }

    private CompletableFuture<HttpResponse<byte[]>> track(CompletableFuture<HttpResponse<byte[]>> exchange) {
        exchanges.add(exchange);
        exchange.whenComplete((response, error) -> exchanges.remove(exchange));
        return exchange;
    }

    /** Cancels an exchange if its answer does not come late either. */
    private void cancelLater(CompletableFuture<?> exchange) {
        try {
            Future<?> end = timer.schedule(() -> exchange.cancel(true), LATE_ANSWER.toNanos(), TimeUnit.NANOSECONDS);
            exchange.whenComplete((response, error) -> end.cancel(false));
        } catch (RejectedExecutionException e) {
            // The client is closed, which cancels all exchanges.
            exchange.cancel(true);
        }
    }

    /** Returns why a call failed. The JDK's client has no text for failures to connect. */
    private static String reason(Throwable error) {
        if (error instanceof ConnectException && error.getCause() instanceof UnresolvedAddressException) {
            return "the host is unknown";
        }
        if (error instanceof ConnectException && error.getMessage() == null) {
            return "the connection is refused";
        }
        return error.getMessage() == null ? error.toString() : error.getMessage();
    }

    final class Call {
        final CompletableFuture<Reply> answer = new CompletableFuture<>();
        private final Supplier<CompletableFuture<HttpResponse<byte[]>>> request;
        private final Consumer<Reply> late;
        private final AtomicBoolean isReleased = new AtomicBoolean();
        private Future<?> timeout;
        /** Null until the request is sent. */
        private CompletableFuture<HttpResponse<byte[]>> exchange;

        private Call(Supplier<CompletableFuture<HttpResponse<byte[]>>> request, Consumer<Reply> late) {
            this.request = request;
            this.late = late;
        }

        /** Gives the call up. */
        void cancel() {
            timeout.cancel(false);
            answer.completeExceptionally(new CancellationException());
            abandon();
        }

        /** Sends the request, unless the call was given up before. */
        private boolean send() {
            synchronized (this) {
                if (answer.isDone()) {
                    return false;
                }
                exchange = request.get();
            }
            track(exchange).whenComplete(this::finish);
            return true;
        }

        private void finish(HttpResponse<byte[]> response, Throwable error) {
            release();
            timeout.cancel(false);
            if (error != null) {
                Throwable cause = error instanceof CompletionException ? error.getCause() : error;
                answer.completeExceptionally(new UnavailableException(reason(cause), cause));
                return;
            }
            Reply reply = new Reply(response.statusCode(), response.headers(), response.body());
            if (!answer.complete(reply) && late != null) {
                late.accept(reply);
            }
        }

        /** Runs on the timer, which must not run what depends on the answer. */
        private void expire() {
            try {
                executor.execute(() -> {
                    String message = "no answer within " + deadline.toMillis() + " ms";
                    answer.completeExceptionally(new UnavailableException(message));
                    abandon();
                });
            } catch (RejectedExecutionException e) {
                // The client is closed.
            }
        }

        /** Waits for the answer no longer, or only to give back what it grants. */
        private void abandon() {
            CompletableFuture<HttpResponse<byte[]>> sent;
            synchronized (this) {
                sent = exchange;
            }
            // A call in the queue is not sent any more.
            if (sent == null || sent.isDone()) {
                return;
            }
            release();
            if (late == null || !lateAnswers.tryAcquire()) {
                sent.cancel(true);
                return;
            }
            sent.whenComplete((response, error) -> lateAnswers.release());
            cancelLater(sent);
        }

        private void release() {
            if (isReleased.compareAndSet(false, true)) {
                limit.release();
            }
        }
    }
}
