package io.fluxgate.client;

import java.util.ArrayDeque;
import java.util.Queue;

/** Bounds the calls in flight, and so the connections: each call needs one of its own. */
final class CallLimit {
    private final Queue<Runnable> queue = new ArrayDeque<>();
    private int free;

    CallLimit(int limit) {
        free = limit;
    }

    /** Runs a call now, or when another has ended. Every run is followed by one {@link #release}. */
    void acquire(Runnable call) {
        synchronized (this) {
            if (free == 0) {
                queue.add(call);
                return;
            }
            free--;
        }
        call.run();
    }

    void release() {
        Runnable next;
        synchronized (this) {
            next = queue.poll();
            if (next == null) {
                free++;
            }
        }
        if (next != null) {
            next.run();
        }
    }
}
