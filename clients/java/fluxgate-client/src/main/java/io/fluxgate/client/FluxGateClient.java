package io.fluxgate.client;

import java.lang.System.Logger.Level;
import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.UnaryOperator;
import javax.net.ssl.SSLContext;

/**
 * A client of a FluxGate service.
 *
 * <pre>{@code
 * FluxGateClient client = FluxGateClient.create("http://127.0.0.1:8081");
 * Decision decision = client.check("api-limits", it -> it.user("ann").path("/api/x"));
 * if (!decision.allowed()) { … }
 * }</pre>
 *
 * A client is safe for use by several threads, keeps its connections alive, and should live as long
 * as the program. Every call returns within the deadline. If the service does not answer by then,
 * {@link OnError} decides; if it fails three times in a row, it is not called for half a second.
 */
public final class FluxGateClient implements AutoCloseable {
    private static final System.Logger LOG = System.getLogger(FluxGateClient.class.getName());
    /** The largest body that the service reads. */
    private static final int MAX_BODY_BYTES = 64 * 1024;
    /**
     * How many names of missing rule sets are remembered, and logged. A program may take them from
     * its clients, so neither the memory nor the log may grow with them.
     */
    private static final int MAX_MISSING = 100;

    private static final Duration DEFAULT_HOLD = Duration.ofSeconds(60);
    private static final AtomicInteger CLIENTS = new AtomicInteger();

    private final URI address;
    /** What messages call the service. */
    private final String name;

    private final OnError onError;
    private final ScheduledThreadPoolExecutor timer;
    private final ThreadPoolExecutor executor;
    private final Transport transport;
    private final Caller caller;
    private final HoldKeeper keeper;
    private final Circuit circuit = new Circuit();
    /** Rule sets that do not exist, as far as they were logged. */
    private final Set<String> missing = new HashSet<>();

    private FluxGateClient(Builder builder) {
        address = builder.address;
        name = "FluxGate at " + address.toString().replaceFirst("/$", "");
        onError = builder.onError;
        String threads = "fluxgate-" + CLIENTS.incrementAndGet();
        timer = new ScheduledThreadPoolExecutor(1, daemons(threads + "-timer"));
        timer.setRemoveOnCancelPolicy(true);
        timer.setExecuteExistingDelayedTasksAfterShutdownPolicy(false);
        // Programs may block in what depends on a call, so the threads are not bounded.
        executor = new ThreadPoolExecutor(
                0, Integer.MAX_VALUE, 10, TimeUnit.SECONDS, new SynchronousQueue<>(), daemons(threads + "-call"));
        transport = new Transport(address, builder.headers, builder.deadline, builder.tls, executor);
        caller = new Caller(transport, builder.deadline, builder.maxConnections, timer, executor);
        keeper = new HoldKeeper(caller, timer);
        caller.warmUp();
    }

    /** Creates a client of the service at this address, such as {@code http://127.0.0.1:8081}. */
    public static FluxGateClient create(String url) {
        return builder(url).build();
    }

    public static Builder builder(String url) {
        return new Builder(Transport.parseAddress(url));
    }

    /** Decides a request, and charges it if it is allowed. */
    public Decision check(String ruleSet, UnaryOperator<RequestContext.Builder> context) {
        return check(ruleSet, context.apply(RequestContext.builder()).build());
    }

    public Decision check(String ruleSet, RequestContext context) {
        return get(checkAsync(ruleSet, context));
    }

    public CompletableFuture<Decision> checkAsync(String ruleSet, RequestContext context) {
        return checkAsync(ruleSet, context, CheckOptions.DEFAULT);
    }

    /**
     * Decides a request. If the result is cancelled, or the answer comes after the deadline, what it
     * reserved or held is given back.
     */
    public CompletableFuture<Decision> checkAsync(String ruleSet, RequestContext context, CheckOptions options) {
        byte[] body = checkBody(ruleSet, context, options).bytes();
        if (body.length > MAX_BODY_BYTES) {
            // If `onError` decided, a client could choose that.
            return CompletableFuture.completedFuture(Decision.tooLarge());
        }
        Function<Reply, Decision> read = reply -> {
            Decision decision = Decision.parse(reply);
            if (decision.isRuleSetMissing()) {
                logMissing(ruleSet, decision);
            }
            return decision;
        };
        return decide("v1/check?status=true", body, read, this::giveBack, FluxGateClient::failedDecision);
    }

    /** Decides a request without charging it. */
    public Decision peek(String ruleSet, UnaryOperator<RequestContext.Builder> context) {
        return peek(ruleSet, context.apply(RequestContext.builder()).build());
    }

    public Decision peek(String ruleSet, RequestContext context) {
        return get(peekAsync(ruleSet, context));
    }

    public CompletableFuture<Decision> peekAsync(String ruleSet, RequestContext context) {
        return checkAsync(ruleSet, context, CheckOptions.PEEK);
    }

    /** Decides up to 1,000 requests, each by itself and in order, in one call. */
    public List<Decision> checkAll(List<Check> checks) {
        return get(checkAllAsync(checks));
    }

    public CompletableFuture<List<Decision>> checkAllAsync(List<Check> checks) {
        List<Json.Writer> bodies = checks.stream()
                .map(it -> checkBody(it.ruleSet(), it.context(), it.peek() ? CheckOptions.PEEK : CheckOptions.DEFAULT))
                .toList();
        byte[] body = new Json.Writer().begin().member("checks", bodies).end().bytes();
        Function<Reply, List<Decision>> read = reply -> {
            List<?> decisions = Json.list(reply.decided(), "decisions");
            if (decisions.size() != checks.size()) {
                throw new Json.FormatException("there are not as many decisions as checks");
            }
            List<Decision> parsed = decisions.stream()
                    .map(it -> Decision.parse(Json.object(it)))
                    .toList();
            for (int i = 0; i < parsed.size(); i++) {
                if (parsed.get(i).isRuleSetMissing()) {
                    logMissing(checks.get(i).ruleSet(), parsed.get(i));
                }
            }
            return parsed;
        };
        return decide("v1/check/batch", body, read, decisions -> decisions.forEach(this::giveBack), failure -> {
            List<Decision> failed = new ArrayList<>();
            checks.forEach(check -> failed.add(failedDecision(failure)));
            return List.copyOf(failed);
        });
    }

    /** Charges one bucket whose limit comes with the call, or one configured rule. */
    public Consumption consume(Consume consume) {
        return get(consumeAsync(consume));
    }

    public CompletableFuture<Consumption> consumeAsync(Consume consume) {
        Function<Reply, Consumption> read = reply -> Consumption.parse(reply.decided());
        return decide(
                "v1/consume",
                consume.body(),
                read,
                late -> {},
                failure -> failure == OnError.ALLOW ? Consumption.failedOpen() : Consumption.failedClosed());
    }

    /**
     * Decides a request, and returns when it may proceed. If the thread is interrupted, the
     * reservation is cancelled.
     */
    public Decision await(String ruleSet, UnaryOperator<RequestContext.Builder> context) throws InterruptedException {
        return await(ruleSet, context.apply(RequestContext.builder()).build(), WaitPolicy.UNBOUNDED);
    }

    /** Decides a request that waits at most so long; if it would have to wait longer, it is denied. */
    public Decision await(String ruleSet, RequestContext context, Duration atMost) throws InterruptedException {
        return await(ruleSet, context, WaitPolicy.atMost(atMost));
    }

    private Decision await(String ruleSet, RequestContext context, WaitPolicy policy) throws InterruptedException {
        return interruptibly(awaitAsync(ruleSet, context, CheckOptions.DEFAULT, policy));
    }

    /**
     * Decides a request that waits if the policy lets it. The result completes when the request may
     * proceed, or is denied; cancelling it cancels the reservation.
     */
    public CompletableFuture<Decision> awaitAsync(
            String ruleSet, RequestContext context, CheckOptions options, WaitPolicy policy) {
        return new Waiting(this, keeper, timer, executor, ruleSet, context, options, policy).start();
    }

    /**
     * Takes slots, and units whose number is known later, until the hold is closed. If the request
     * has to wait, this waits.
     *
     * @throws DeniedException if the request is denied
     */
    public Hold hold(String ruleSet, UnaryOperator<RequestContext.Builder> context) {
        return hold(ruleSet, context.apply(RequestContext.builder()).build(), DEFAULT_HOLD);
    }

    /** Takes a hold that lives this long, from 1 second to 24 hours, if it is not renewed. */
    public Hold hold(String ruleSet, RequestContext context, Duration span) {
        return get(holdAsync(ruleSet, context, span));
    }

    public CompletableFuture<Hold> holdAsync(String ruleSet, RequestContext context, Duration span) {
        CheckOptions options = CheckOptions.DEFAULT.withHold(span);
        CompletableFuture<Decision> decided = awaitAsync(ruleSet, context, options, WaitPolicy.UNBOUNDED);
        CompletableFuture<Hold> held = new CompletableFuture<>();
        decided.whenComplete((decision, error) -> {
            if (error != null) {
                held.completeExceptionally(unwrap(error));
            } else if (!decision.allowed()) {
                held.completeExceptionally(new DeniedException(decision));
            } else {
                Hold hold = keep(decision);
                if (!held.complete(hold)) {
                    hold.releaseAsync();
                }
            }
        });
        held.whenComplete((hold, error) -> {
            if (held.isCancelled()) {
                decided.cancel(false);
            }
        });
        return held;
    }

    /** Renews the hold of a decision, if it has one, until it is closed. */
    public Hold keep(Decision decision) {
        return new Hold(this, keeper, decision);
    }

    /** Cancels the reservation of a request that does not wait for its turn. */
    public CompletableFuture<Boolean> cancelAsync(String reservation) {
        byte[] body = new Json.Writer().begin().member("reservation", reservation).end().bytes();
        return caller.post("v1/cancel", body).handle((reply, error) -> {
            if (error != null || reply.status() >= 500) {
                LOG.log(Level.WARNING, "a reservation could not be cancelled");
            }
            return error == null && reply.status() == 200;
        });
    }

    /** Returns whether the service is ready to decide ({@code GET /readyz}). */
    public CompletableFuture<Boolean> isReady() {
        return caller.get("readyz").handle((reply, error) -> error == null && reply.status() == 200);
    }

    /** Returns the address of the service. */
    public URI address() {
        return address;
    }

    public OnError onError() {
        return onError;
    }

    /** Returns whether the service has failed and is not called at the moment. */
    public boolean isCircuitOpen() {
        return circuit.isOpen();
    }

    /** Returns how many holds are open. */
    public int openHolds() {
        return keeper.openCount();
    }

    /** Closes connections and ends threads. Holds that are still open expire. */
    @Override
    public void close() {
        keeper.flush();
        timer.shutdownNow();
        caller.close();
        transport.close();
        // The JDK's client ends by itself, and needs threads for that. Idle ones end now.
        executor.setKeepAliveTime(1, TimeUnit.MILLISECONDS);
    }

    CompletableFuture<Settlement> settleAsync(byte[] body) {
        return caller.post("v1/settle", body).thenApply(reply -> {
            if (reply.isNotFound()) {
                throw new HoldEndedException();
            }
            try {
                Map<String, Object> json = reply.decided();
                return new Settlement(Json.number(json, "charged"), Json.number(json, "uncharged"));
            } catch (Json.FormatException e) {
                throw new UnavailableException("the service answers with something else: " + e.getMessage(), e);
            }
        });
    }

    CompletableFuture<Boolean> renewAsync(String hold, Duration span) {
        Json.Writer json = new Json.Writer().begin().member("hold", hold).member("hold_for", span.toMillis() + "ms");
        return caller.post("v1/renew", json.end().bytes()).thenApply(reply -> {
            if (reply.isNotFound()) {
                return false;
            }
            reply.decided();
            return true;
        });
    }

    static byte[] settlement(String hold, Long cost, Map<String, String> attributes) {
        Json.Writer json = new Json.Writer().begin().member("hold", hold);
        return json.optional("cost", cost).optional("attributes", attributes).end().bytes();
    }

    /** Waits for a result, and throws what it failed with. */
    <T> T get(CompletableFuture<T> result) {
        try {
            return interruptibly(result);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new UnavailableException("the thread was interrupted", e);
        }
    }

    private static <T> T interruptibly(CompletableFuture<T> result) throws InterruptedException {
        try {
            return result.get();
        } catch (InterruptedException e) {
            result.cancel(false);
            throw e;
        } catch (ExecutionException e) {
            throw withCallersTrace(unwrap(e));
        }
    }

    /** The exception was made on another thread, whose stack says nothing about the caller. */
    private static RuntimeException withCallersTrace(Throwable error) {
        if (error instanceof RuntimeException failure) {
            failure.setStackTrace(new Throwable().getStackTrace());
            return failure;
        }
        return new CompletionException(error);
    }

    static Throwable unwrap(Throwable error) {
        boolean isWrapper = error instanceof CompletionException || error instanceof ExecutionException;
        return isWrapper && error.getCause() != null ? error.getCause() : error;
    }

    /**
     * Makes a call that decides something.
     *
     * @param read reads the answer
     * @param giveBack takes an answer that came too late to be used
     * @param failed returns what is decided if the service fails, unless it is to throw
     */
    private <T> CompletableFuture<T> decide(
            String path,
            byte[] body,
            Function<Reply, T> read,
            Consumer<T> giveBack,
            Function<OnError, T> failed) {
        Circuit.Entry entry = circuit.enter(System.nanoTime());
        if (entry == Circuit.Entry.REFUSED) {
            return failure(undecided("it failed before, and is not called for a moment", null), failed);
        }
        CompletableFuture<T> result = new CompletableFuture<>();
        Caller.Call call = caller.post(path, body, reply -> {
            try {
                giveBack.accept(read.apply(reply));
            } catch (FluxGateException | Json.FormatException e) {
                LOG.log(Level.DEBUG, "a late answer is not a decision", e);
            }
        });
        call.answer.whenComplete((reply, error) -> {
            if (error instanceof CancellationException) {
                circuit.cancelled(entry);
                return;
            }
            try {
                if (error != null) {
                    throw (UnavailableException) error;
                }
                T decided = parse(reply, read);
                succeeded(entry);
                if (!result.complete(decided)) {
                    giveBack.accept(decided);
                }
            } catch (InvalidCallException e) {
                succeeded(entry);
                result.completeExceptionally(e);
            } catch (UnavailableException e) {
                UnavailableException undecided = undecided(e.getMessage(), e.getCause());
                failed(entry, undecided);
                failure(undecided, failed).whenComplete((decided, raised) -> {
                    if (raised == null) {
                        result.complete(decided);
                    } else {
                        result.completeExceptionally(raised);
                    }
                });
            }
        });
        result.whenComplete((decided, error) -> {
            if (result.isCancelled()) {
                call.cancel();
            }
        });
        return result;
    }

    private static <T> T parse(Reply reply, Function<Reply, T> read) {
        try {
            return read.apply(reply);
        } catch (Json.FormatException e) {
            throw new UnavailableException("the service answers with something else: " + e.getMessage(), e);
        }
    }

    private void succeeded(Circuit.Entry entry) {
        if (circuit.succeeded(entry)) {
            // Not at a lower level: who sees the warning must see its end.
            LOG.log(Level.WARNING, name + " decides again");
        }
    }

    private void failed(Circuit.Entry entry, UnavailableException failure) {
        // Logged once, and not for every request.
        if (circuit.failed(entry, System.nanoTime())) {
            LOG.log(Level.WARNING, failure.getMessage() + "; " + onError.effect());
        }
    }

    private UnavailableException undecided(String reason, Throwable cause) {
        return new UnavailableException(name + " does not decide: " + reason, cause);
    }

    private void logMissing(String ruleSet, Decision decision) {
        synchronized (missing) {
            if (missing.size() >= MAX_MISSING || !missing.add(ruleSet)) {
                return;
            }
        }
        String effect = decision.allowed() ? "pass" : "are denied";
        String message = " has no rule set `" + ruleSet + "`: requests that it should limit " + effect;
        LOG.log(Level.WARNING, name + message);
    }

    private <T> CompletableFuture<T> failure(UnavailableException failure, Function<OnError, T> failed) {
        return onError == OnError.RAISE
                ? CompletableFuture.failedFuture(failure)
                : CompletableFuture.completedFuture(failed.apply(onError));
    }

    private static Decision failedDecision(OnError onError) {
        return Decision.failed(onError).orElseThrow();
    }

    /** Gives back what a request took that does not proceed. */
    void giveBack(Decision decision) {
        CompletableFuture<Boolean> cancelled = decision.reservation().isPresent()
                ? cancelAsync(decision.reservation().get())
                : CompletableFuture.completedFuture(false);
        cancelled.thenAccept(isDone -> {
            // Cancelling a reservation ends its hold, too.
            if (!isDone) {
                keep(decision).releaseAsync();
            }
        });
    }

    private static Json.Writer checkBody(String ruleSet, RequestContext context, CheckOptions options) {
        Json.Writer json = new Json.Writer().begin();
        json.member("rule_set", Objects.requireNonNull(ruleSet, "ruleSet"));
        context.write(json);
        json.optional("peek", options.peek() ? true : null);
        json.optional("wait", options.waits());
        json.optional("again", options.again() ? true : null);
        json.optional("hold", options.hold() == null ? null : options.hold().toMillis() + "ms");
        return json.end();
    }

    private static ThreadFactory daemons(String name) {
        return task -> {
            Thread thread = new Thread(task, name);
            thread.setDaemon(true);
            return thread;
        };
    }

    /** Builds a client. */
    public static final class Builder {
        private final URI address;
        private OnError onError = OnError.ALLOW;
        private Duration deadline = Duration.ofMillis(100);
        private int maxConnections = 64;
        private final Map<String, String> headers = new LinkedHashMap<>();
        private SSLContext tls;

        private Builder(URI address) {
            this.address = address;
        }

        /** Sets what a decision is if the service fails: allowed by default. */
        public Builder onError(OnError value) {
            onError = Objects.requireNonNull(value, "onError");
            return this;
        }

        /** Sets within which time every call ends, connecting included: 100 ms by default. */
        public Builder deadline(Duration value) {
            if (value.isNegative() || value.isZero()) {
                throw new IllegalArgumentException("the deadline must be longer than zero");
            }
            deadline = value;
            return this;
        }

        /** Sets how many calls, and so connections, there are at a time: 64 by default. */
        public Builder maxConnections(int value) {
            if (value < 1) {
                throw new IllegalArgumentException("at least one connection is needed");
            }
            maxConnections = value;
            return this;
        }

        /** Adds a header to every call, such as {@code Authorization} for a proxy in between. */
        public Builder header(String name, String value) {
            headers.put(name, value);
            return this;
        }

        /**
         * Sets the authorities to trust, and the certificate to show, in place of those of the
         * system. {@link PemTrust#of} makes one from the PEM file of an authority.
         */
        public Builder sslContext(SSLContext value) {
            tls = value;
            return this;
        }

        public FluxGateClient build() {
            return new FluxGateClient(this);
        }
    }
}
