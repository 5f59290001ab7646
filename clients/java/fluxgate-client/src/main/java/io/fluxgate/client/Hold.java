package io.fluxgate.client;

import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A charge that is not final: slots that are taken, and units whose number is known only later. It
 * is renewed in the background while it is open, and released when it is closed.
 *
 * <pre>{@code
 * try (Hold hold = client.hold("exports", it -> it.user("ann"))) {
 *     hold.settle(export());
 * }
 * }</pre>
 *
 * A request that is allowed without being counted, because no rule applies or the service failed,
 * has a hold without an id. Its methods do nothing.
 */
public final class Hold implements AutoCloseable {
    private final FluxGateClient client;
    private final HoldKeeper keeper;
    private final Decision decision;
    private final String id;
    private final AtomicBoolean hasEnded;
    /** The call that ends the hold: a settlement that failed before is repeated. */
    private volatile Ending ending;

    private record Ending(String path, byte[] body) {}

    Hold(FluxGateClient client, HoldKeeper keeper, Decision decision) {
        this.client = client;
        this.keeper = keeper;
        this.decision = decision;
        id = decision.hold().orElse(null);
        hasEnded = new AtomicBoolean(id == null);
        if (id != null) {
            ending = new Ending("v1/release", new Json.Writer().begin().member("hold", id).end().bytes());
            keeper.keep(id, decision.holdFor());
        }
    }

    /** Returns the decision that granted it. */
    public Decision decision() {
        return decision;
    }

    /** Returns the id, if something was charged. */
    public Optional<String> id() {
        return Optional.ofNullable(id);
    }

    /** Returns whether the hold is renewed: it is neither ended nor expired. */
    public boolean isOpen() {
        return !hasEnded.get() && keeper.isOpen(id);
    }

    /**
     * Ends the hold with the real cost, in place of the cost of every rule.
     *
     * @throws HoldEndedException if it has ended or expired
     * @throws UnavailableException if the service does not answer; closing the hold then repeats
     *     the settlement in the background
     */
    public Settlement settle(long cost) {
        return client.get(settleAsync(cost));
    }

    /** Ends the hold with the real cost of the rules that count these attributes. */
    public Settlement settle(Map<String, String> attributes) {
        return client.get(settleAsync(attributes));
    }

    /** Ends the hold with the cost that was reserved. */
    public Settlement settle() {
        return client.get(settleAsync());
    }

    public CompletableFuture<Settlement> settleAsync(long cost) {
        return settleAsync(cost, null);
    }

    public CompletableFuture<Settlement> settleAsync(Map<String, String> attributes) {
        return settleAsync(null, attributes);
    }

    public CompletableFuture<Settlement> settleAsync() {
        return settleAsync(null, null);
    }

    private CompletableFuture<Settlement> settleAsync(Long cost, Map<String, String> attributes) {
        if (id == null) {
            return CompletableFuture.completedFuture(new Settlement(0, 0));
        }
        if (hasEnded.get()) {
            return CompletableFuture.failedFuture(new HoldEndedException());
        }
        byte[] body = FluxGateClient.settlement(id, cost, attributes);
        ending = new Ending("v1/settle", body);
        return client.settleAsync(body).whenComplete((settled, error) -> {
            if (error == null || FluxGateClient.unwrap(error) instanceof HoldEndedException) {
                hasEnded.set(true);
                keeper.forget(id);
            }
        });
    }

    /** Extends the hold to its whole time from now. Returns false if it has ended or expired. */
    public boolean renew() {
        return client.get(renewAsync());
    }

    public CompletableFuture<Boolean> renewAsync() {
        if (hasEnded.get()) {
            return CompletableFuture.completedFuture(false);
        }
        return client.renewAsync(id, decision.holdFor());
    }

    /**
     * Ends the hold, and returns its units. Returns whether this call did: false if it had ended or
     * expired, and if the service does not answer; it is then repeated in the background.
     */
    public boolean release() {
        return client.get(releaseAsync());
    }

    public CompletableFuture<Boolean> releaseAsync() {
        return end(ending);
    }

    /** Ends the hold with the cost that was reserved, as the gateway does when a response ends. */
    public CompletableFuture<Boolean> finishAsync() {
        if (id == null || ending.path.equals("v1/settle")) {
            return end(ending);
        }
        return end(new Ending("v1/settle", FluxGateClient.settlement(id, null, null)));
    }

    /** Releases the hold unless it has ended. */
    @Override
    public void close() {
        release();
    }

    private CompletableFuture<Boolean> end(Ending by) {
        if (!hasEnded.compareAndSet(false, true)) {
            return CompletableFuture.completedFuture(false);
        }
        return keeper.end(id, decision.holdFor(), by.path, by.body);
    }

}
