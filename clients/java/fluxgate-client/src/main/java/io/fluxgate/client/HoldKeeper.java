package io.fluxgate.client;

import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/** Renews the holds that are open, and ends them. */
final class HoldKeeper {
    private static final System.Logger LOG = System.getLogger(FluxGateClient.class.getName());
    /** How many holds the service renews in one call. */
    private static final int MAX_RENEWED = 1_000;
    private static final long FIRST_RETRY_MILLIS = 100;
    private static final long LAST_RETRY_MILLIS = 1_000;

    private final Caller caller;
    private final ScheduledExecutorService timer;
    private final Map<String, Kept> open = new ConcurrentHashMap<>();
    /** Attempts to end a hold that are under way. */
    private final Set<CompletableFuture<?>> ending = ConcurrentHashMap.newKeySet();

    private Future<?> next;
    private long nextAt;

    HoldKeeper(Caller caller, ScheduledExecutorService timer) {
        this.caller = caller;
        this.timer = timer;
    }

    /** A hold that is renewed every third of its life. */
    private static final class Kept {
        final String id;
        final long span;
        /** When it was granted or renewed last, and until when it lives. */
        volatile long renewed = System.nanoTime();

        Kept(String id, Duration span) {
            this.id = id;
            this.span = span.toNanos();
        }

        long due() {
            return renewed + span / 3;
        }

        long end() {
            return renewed + span;
        }
    }

    void keep(String id, Duration span) {
        Kept kept = new Kept(id, span);
        open.put(id, kept);
        scheduleAt(kept.due());
    }

    /** Renews a hold no longer. */
    void forget(String id) {
        open.remove(id);
    }

    boolean isOpen(String id) {
        return open.containsKey(id);
    }

    int openCount() {
        return open.size();
    }

    /**
     * Posts what ends a hold. The result is whether this call ended it; if it fails, it is false,
     * and the call is repeated in the background for as long as the hold can live.
     */
    CompletableFuture<Boolean> end(String id, Duration span, String path, byte[] body) {
        Kept kept = open.remove(id);
        long until = kept == null ? System.nanoTime() + span.toNanos() : kept.end();
        return end(path, body, until, FIRST_RETRY_MILLIS);
    }

    private CompletableFuture<Boolean> end(String path, byte[] body, long until, long retryMillis) {
        CompletableFuture<Boolean> ended = caller.post(path, body).handle((reply, error) -> {
            if (error == null && reply.status() < 500) {
                return reply.status() == 200;
            }
            if (System.nanoTime() - until < 0) {
                long after = Math.min(retryMillis * 2, LAST_RETRY_MILLIS);
                later(() -> end(path, body, until, after), retryMillis);
            } else {
                LOG.log(Level.WARNING, "a hold could not be released and has expired");
            }
            return false;
        });
        ending.add(ended);
        ended.whenComplete((ok, error) -> ending.remove(ended));
        return ended;
    }

    /** Waits for the attempts under way. Each ends within the deadline. */
    void flush() {
        CompletableFuture.allOf(ending.toArray(CompletableFuture[]::new)).join();
    }

    private void later(Runnable task, long millis) {
        try {
            timer.schedule(task, millis, TimeUnit.MILLISECONDS);
        } catch (RejectedExecutionException e) {
            // The client is closed; the hold expires.
        }
    }

    private synchronized void scheduleAt(long at) {
        if (next != null && nextAt - at <= 0) {
            return;
        }
        if (next != null) {
            next.cancel(false);
        }
        nextAt = at;
        try {
            next = timer.schedule(this::renewAll, Math.max(0, at - System.nanoTime()), TimeUnit.NANOSECONDS);
        } catch (RejectedExecutionException e) {
            next = null;
        }
    }

    /** Renews all holds in one call, for the longest of their times: the service cuts it. */
    private void renewAll() {
        synchronized (this) {
            next = null;
        }
        List<Kept> all = new ArrayList<>(open.values());
        for (int from = 0; from < all.size(); from += MAX_RENEWED) {
            renew(all.subList(from, Math.min(all.size(), from + MAX_RENEWED)));
        }
        long now = System.nanoTime();
        all.stream().mapToLong(kept -> kept.span / 3).min().ifPresent(soonest -> scheduleAt(now + soonest));
    }

    private void renew(List<Kept> holds) {
        long sent = System.nanoTime();
        long longest = holds.stream().mapToLong(kept -> kept.span).max().orElseThrow();
        Json.Writer json = new Json.Writer().begin();
        json.member("holds", holds.stream().map(kept -> kept.id).toList());
        json.member("hold_for", TimeUnit.NANOSECONDS.toMillis(longest) + "ms");
        caller.post("v1/renew", json.end().bytes()).whenComplete((reply, error) -> {
            if (error != null || reply.status() != 200) {
                // Two thirds of the time are left to try again.
                LOG.log(Level.WARNING, "{0} holds could not be renewed: {1}", holds.size(), describe(reply, error));
                return;
            }
            List<?> renewed;
            try {
                renewed = Json.list(Json.parseObject(reply.body()), "renewed");
            } catch (Json.FormatException e) {
                LOG.log(Level.WARNING, "the service answers a renewal with something else", e);
                return;
            }
            for (int i = 0; i < Math.min(holds.size(), renewed.size()); i++) {
                Kept kept = holds.get(i);
                if (Boolean.TRUE.equals(renewed.get(i))) {
                    kept.renewed = sent;
                } else if (open.remove(kept.id) != null) {
                    LOG.log(Level.WARNING, "the hold of a running request has expired");
                }
            }
        });
    }

    private static String describe(Reply reply, Throwable error) {
        return error != null ? error.getMessage() : "status " + reply.status();
    }
}
