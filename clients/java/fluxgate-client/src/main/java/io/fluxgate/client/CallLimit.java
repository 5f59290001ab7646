package io.fluxgate.client;

import java.util.ArrayDeque;
import java.util.Queue;
import java.util.function.BooleanSupplier;

/** Bounds the calls in flight, and so the connections: each call needs one of its own. */
final class CallLimit {
    private final Queue<BooleanSupplier> queue = new ArrayDeque<>();
    private int free;

    CallLimit(int limit) {
        free = limit;
    }

    /**
     * Starts a call now, or when another has ended. It returns whether it has started, which is
     * followed by one {@link #release}; a call that was given up in the queue has not.
     */
    void acquire(BooleanSupplier call) {
        synchronized (this) {
            if (free == 0) {
                queue.add(call);
                return;
            }
            free--;
        }
        if (!call.getAsBoolean()) {
            release();
        }
    }

    void release() {
        // A loop, because thousands of calls in the queue may have been given up.
        while (true) {
            BooleanSupplier next;
            synchronized (this) {
                next = queue.poll();
                if (next == null) {
                    free++;
                    return;
                }
            }
            if (next.getAsBoolean()) {
                return;
            }
        }
    }
}
