package io.fluxgate.client;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/** A request that is decided, and waits for its turn. */
final class Waiting {
    private final FluxGateClient client;
    private final HoldKeeper keeper;
    private final ScheduledExecutorService timer;
    private final Executor executor;
    private final String ruleSet;
    private final RequestContext context;
    private final CheckOptions options;
    private final WaitPolicy policy;
    private final CompletableFuture<Decision> result = new CompletableFuture<>();
    /** The call that is under way. */
    private volatile CompletableFuture<Decision> call;

    Waiting(
            FluxGateClient client,
            HoldKeeper keeper,
            ScheduledExecutorService timer,
            Executor executor,
            String ruleSet,
            RequestContext context,
            CheckOptions options,
            WaitPolicy policy) {
        this.client = client;
        this.keeper = keeper;
        this.timer = timer;
        this.executor = executor;
        this.ruleSet = ruleSet;
        this.context = context;
        this.options = options;
        this.policy = policy;
    }

    CompletableFuture<Decision> start() {
        result.whenComplete((decision, error) -> {
            if (result.isCancelled()) {
                call.cancel(false);
            }
        });
        boolean waits = !Boolean.FALSE.equals(options.waits());
        check(options.withWaits(waits), this::decided);
        return result;
    }

    private void check(CheckOptions how, Consumer<Decision> next) {
        call = client.checkAsync(ruleSet, context, how);
        if (result.isCancelled()) {
            // It was cancelled before it could see this call.
            call.cancel(false);
        }
        call.whenComplete((decision, error) -> {
            if (error != null) {
                result.completeExceptionally(FluxGateClient.unwrap(error));
            } else {
                next.accept(decision);
            }
        });
    }

    private void decided(Decision decision) {
        if (decision.allowed() && !decision.delay().isZero()) {
            waitForTurn(decision);
        } else if (isWorthRepeating(decision)) {
            waitAndRepeat(decision);
        } else {
            complete(decision);
        }
    }

    private void waitForTurn(Decision decision) {
        if (!policy.begin(decision.delay())) {
            // Decided again without waiting, it gets the refusal of a request that cannot wait.
            Optional<String> reservation = decision.reservation();
            CompletableFuture<?> cancelled = reservation.isPresent()
                    ? client.cancelAsync(reservation.get())
                    : CompletableFuture.completedFuture(null);
            cancelled.whenComplete((done, error) -> check(options.withWaits(false).repeated(), this::complete));
            return;
        }
        // Its slots must not expire while it waits for units.
        decision.hold().ifPresent(hold -> keeper.keep(hold, decision.holdFor()));
        sleep(decision.delay(), () -> {
            decision.hold().ifPresent(keeper::forget);
            complete(decision);
        }, () -> {
            decision.hold().ifPresent(keeper::forget);
            client.giveBack(decision);
        });
    }

    private boolean isWorthRepeating(Decision decision) {
        boolean isDeniedByLimits =
                decision.outcome() == Outcome.DENIED || decision.outcome() == Outcome.FALLBACK && !decision.allowed();
        return policy.repeatsDenied() && isDeniedByLimits && decision.retryAfter().isPresent();
    }

    private void waitAndRepeat(Decision denied) {
        Duration wait = denied.retryAfter().orElseThrow();
        if (!policy.begin(wait)) {
            complete(denied);
            return;
        }
        sleep(wait, () -> check(options.withWaits(false).repeated(), this::complete), () -> {});
    }

    /** Runs one of the two: after the wait, or when the request is cancelled before. */
    private void sleep(Duration wait, Runnable then, Runnable cancelled) {
        CompletableFuture<Void> slept = new CompletableFuture<>();
        Future<?> wakeUp;
        try {
            wakeUp = timer.schedule(() -> executor.execute(() -> slept.complete(null)), wait.toNanos(), TimeUnit.NANOSECONDS);
        } catch (RejectedExecutionException e) {
            policy.end();
            result.completeExceptionally(new UnavailableException("the client is closed", e));
            return;
        }
        slept.whenComplete((done, error) -> {
            policy.end();
            (error == null ? then : cancelled).run();
        });
        result.whenComplete((decision, error) -> {
            if (result.isCancelled() && slept.cancel(false)) {
                wakeUp.cancel(false);
            }
        });
    }

    private void complete(Decision decision) {
        if (!result.complete(decision)) {
            client.giveBack(decision);
        }
    }
}
