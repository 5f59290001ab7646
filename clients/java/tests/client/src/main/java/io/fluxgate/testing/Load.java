package io.fluxgate.testing;

import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/** Starts so many calls a second, whether or not earlier ones have ended. */
public final class Load {
    private final Durations calls = new Durations();
    private final Queue<Throwable> failures = new ConcurrentLinkedQueue<>();

    /** A call that throws if its result is wrong. */
    public interface Call {
        void run() throws Exception;
    }

    /** Runs the load and returns when all calls have ended. */
    public static Load run(int perSecond, long millis, Call call) throws InterruptedException {
        Load load = new Load();
        ExecutorService threads = Executors.newCachedThreadPool();
        long began = System.nanoTime();
        long count = perSecond * millis / 1000;
        for (long i = 0; i < count; i++) {
            long at = began + i * 1_000_000_000L / perSecond;
            TimeUnit.NANOSECONDS.sleep(at - System.nanoTime());
            threads.execute(() -> load.measure(call));
        }
        threads.shutdown();
        if (!threads.awaitTermination(60, TimeUnit.SECONDS)) {
            throw new AssertionError("calls do not end");
        }
        return load;
    }

    private void measure(Call call) {
        long began = System.nanoTime();
        try {
            call.run();
        } catch (Exception | AssertionError e) {
            failures.add(e);
        }
        calls.add(System.nanoTime() - began);
    }

    /** Checks that no call failed, and that none took longer than this, pauses of the machine aside. */
    public void check(long mostMillis) {
        if (!failures.isEmpty()) {
            throw new AssertionError(failures.size() + " of " + calls.count() + " calls failed", failures.peek());
        }
        calls.check(mostMillis);
    }
}
