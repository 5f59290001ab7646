package io.fluxgate.testing;

import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/** Starts so many calls a second, whether or not earlier ones have ended. */
public final class Load {
    private final Queue<Long> nanos = new ConcurrentLinkedQueue<>();
    private final Queue<Throwable> failures = new ConcurrentLinkedQueue<>();
    /** How late a thread woke up at worst: what the machine, and not the client, has delayed. */
    private volatile long stallNanos;
    private volatile boolean isOver;

    /** A call that throws if its result is wrong. */
    public interface Call {
        void run() throws Exception;
    }

    /** Runs the load and returns when all calls have ended. */
    public static Load run(int perSecond, long millis, Call call) throws InterruptedException {
        Load load = new Load();
        Thread clock = new Thread(load::watchStalls, "stalls");
        clock.start();
        ExecutorService threads = Executors.newCachedThreadPool();
        long began = System.nanoTime();
        long count = perSecond * millis / 1000;
        for (long i = 0; i < count; i++) {
            long at = began + i * 1_000_000_000L / perSecond;
            TimeUnit.NANOSECONDS.sleep(at - System.nanoTime());
            threads.execute(() -> load.measure(call));
        }
        threads.shutdown();
        if (!threads.awaitTermination(30, TimeUnit.SECONDS)) {
            throw new AssertionError("calls do not end");
        }
        load.isOver = true;
        clock.join();
        return load;
    }

    private void watchStalls() {
        while (!isOver) {
            long began = System.nanoTime();
            Service.sleep(2);
            stallNanos = Math.max(stallNanos, System.nanoTime() - began - 2_000_000);
        }
    }

    private void measure(Call call) {
        long began = System.nanoTime();
        try {
            call.run();
        } catch (Exception | AssertionError e) {
            failures.add(e);
        }
        nanos.add(System.nanoTime() - began);
    }

    public int count() {
        return nanos.size();
    }

    public long longestMillis() {
        return nanos.stream().mapToLong(it -> it).max().orElse(0) / 1_000_000;
    }

    /** @throws AssertionError if a call failed or took longer than this, stalls of the machine aside */
    public void check(long mostMillis) {
        if (!failures.isEmpty()) {
            throw new AssertionError(failures.size() + " of " + count() + " calls failed", failures.peek());
        }
        long stallMillis = stallNanos / 1_000_000;
        // A call passes through several threads, each of which may be delayed.
        if (longestMillis() > mostMillis + 3 * stallMillis) {
            throw new AssertionError("a call took " + longestMillis() + " ms; stalls of " + stallMillis + " ms");
        }
    }
}
