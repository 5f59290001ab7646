package io.fluxgate.testing;

import io.fluxgate.client.Check;
import io.fluxgate.client.Consume;
import io.fluxgate.client.Consumption;
import io.fluxgate.client.Decision;
import io.fluxgate.client.DeniedException;
import io.fluxgate.client.FluxGateClient;
import io.fluxgate.client.Hold;
import io.fluxgate.client.HoldEndedException;
import io.fluxgate.client.InvalidCallException;
import io.fluxgate.client.JsonDocument;
import io.fluxgate.client.OnError;
import io.fluxgate.client.RequestContext;
import io.fluxgate.client.Settlement;
import io.fluxgate.client.UnavailableException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.TreeMap;
import org.opentest4j.TestAbortedException;

/** Runs one case. */
public final class CaseRun implements AutoCloseable {
    private static final long DEFAULT_DEADLINE_MS = 10_000;
    private static final Duration DEFAULT_HOLD = Duration.ofSeconds(60);
    /** How long a step waits for the slots that it expects. */
    private static final long SLOTS_MILLIS = 400;

    private final Map<String, Object> one;
    /** Null for a case that has no server. */
    private final ServerUnderTest server;
    private final Service service;
    private final FaultProxy proxy;
    private final FluxGateClient client;
    private final long deadlineMillis;
    private final Map<String, Hold> holds = new HashMap<>();
    private final Map<String, Started> started = new HashMap<>();
    private int requests;

    private record Started(String id, RawRequest request) {}

    public CaseRun(Cases cases, Map<String, Object> one, ServerUnderTest server) throws IOException {
        this.one = one;
        this.server = server;
        service = Service.start(cases.config(one));
        proxy = new FaultProxy(service.port(), (String) one.getOrDefault("service", "up"));
        Map<String, Object> settings = object(one.getOrDefault("client", Map.of()));
        String onError = (String) settings.getOrDefault("on_error", "allow");
        deadlineMillis = (Long) settings.getOrDefault("deadline_ms", DEFAULT_DEADLINE_MS);
        client = FluxGateClient.builder(proxy.url())
                .onError(OnError.valueOf(onError.toUpperCase(Locale.ROOT)))
                .deadline(Duration.ofMillis(deadlineMillis))
                .build();
        if (server != null) {
            server.use(properties(onError));
        }
    }

    /** Returns the settings of the case as those of a Spring program. */
    private Map<String, String> properties(String onError) {
        Map<String, Object> middleware = object(one.get("middleware"));
        Map<String, String> properties = new LinkedHashMap<>();
        properties.put("fluxgate.url", proxy.url());
        properties.put("fluxgate.on-error", onError);
        properties.put("fluxgate.deadline", deadlineMillis + "ms");
        String prefix = "fluxgate.ratelimit.";
        properties.put(prefix + "default-rule-set-id", (String) middleware.get("rule_set"));
        middleware.forEach((name, value) -> {
            switch (name) {
                case "rule_set" -> {}
                case "include" -> properties.put(prefix + "include-patterns", joined(value));
                case "exclude" -> properties.put(prefix + "exclude-patterns", joined(value));
                case "trusted_proxies" -> properties.put(prefix + "trusted-proxies", joined(value));
                case "max_concurrent_waits" -> properties.put(
                        prefix + "wait-for-refill.max-concurrent-waits", value.toString());
                default -> throw new IllegalArgumentException("unknown setting " + name);
            }
        });
        return properties;
    }

    /**
     * Runs the steps.
     *
     * @throws TestAbortedException if a step fails after the machine has delayed the case for longer
     *     than it bears
     */
    public void run() throws Exception {
        Delay delay = new Delay(service);
        try {
            runSteps();
        } catch (AssertionError e) {
            long delayed = delay.millis();
            String message = one.get("name") + ": " + e.getMessage();
            if (one.get("bears_ms") instanceof Long bears && delayed > bears) {
                String late = "the machine delayed it for " + delayed + " ms, it bears " + bears + ": ";
                throw new TestAbortedException(late + message, e);
            }
            throw new AssertionError(message, e);
        }
    }

    private void runSteps() throws Exception {
        for (Object step : (List<?>) one.get("steps")) {
            Map<String, Object> it = object(step);
            long times = (Long) it.getOrDefault("times", 1L);
            for (long i = 0; i < times; i++) {
                long began = System.nanoTime();
                step(it);
                long elapsed = (System.nanoTime() - began) / 1_000_000;
                if (it.get("elapsed_ms") instanceof List<?> bounds) {
                    long most = (Long) bounds.get(1) + Heartbeat.HANDOVERS * Heartbeat.longestPauseMillis(began);
                    Map<String, Object> between = Map.of("between", List.of(bounds.get(0), most));
                    Expectation.check("elapsed ms of " + it, between, elapsed);
                }
            }
        }
    }

    @Override
    public void close() throws IOException {
        if (server != null) {
            server.unuse();
        }
        client.close();
        proxy.close();
        service.close();
    }

    private void step(Map<String, Object> step) throws Exception {
        Map<String, Object> expect = object(step.getOrDefault("expect", Map.of()));
        if (step.containsKey("call")) {
            Expectation.check(step.toString(), expect, call(step));
        } else if (step.containsKey("start")) {
            started.put((String) step.get("start"), start(object(step.get("request"))));
        } else if (step.containsKey("request")) {
            finish(start(object(step.get("request"))), expect, step);
        } else if (step.containsKey("finish")) {
            finish(started.remove((String) step.get("finish")), expect, step);
        } else if (step.containsKey("abort")) {
            started.remove((String) step.get("abort")).request.close();
        } else if (step.containsKey("service")) {
            proxy.setMode((String) step.get("service"));
        } else if (step.containsKey("sleep_ms")) {
            Service.sleep((Long) step.get("sleep_ms"));
            if (step.get("slots_held") instanceof Long slots) {
                waitForSlots(slots);
            }
        } else if (step.containsKey("asked")) {
            Expectation.check("asked", step.get("asked"), proxy.takeAsked());
        } else if (step.containsKey("handler_runs")) {
            int runs = server.runs().values().stream().mapToInt(it -> it).sum();
            Expectation.check("handler runs", step.get("handler_runs"), runs);
        } else {
            throw new IllegalArgumentException("unknown step " + step);
        }
    }

    /** Waits until the service holds this many slots, for as long as the machine is late and a little longer. */
    private void waitForSlots(long slots) throws IOException {
        long began = System.nanoTime();
        for (long held; (held = service.slotsHeld()) != slots; Service.sleep(10)) {
            long waited = (System.nanoTime() - began) / 1_000_000;
            if (waited > SLOTS_MILLIS + Heartbeat.HANDOVERS * Heartbeat.longestPauseMillis(began)) {
                throw new AssertionError(held + " slots are held, expected " + slots);
            }
        }
    }

    private Started start(Map<String, Object> request) throws IOException {
        String id = "r" + requests++;
        List<List<?>> headers = new ArrayList<>();
        for (Object header : (List<?>) request.getOrDefault("headers", List.of())) {
            headers.add((List<?>) header);
        }
        headers.add(List.of(ServerUnderTest.ID_HEADER, id));
        String method = (String) request.getOrDefault("method", "GET");
        return new Started(id, RawRequest.send(server.port(), method, (String) request.get("path"), headers));
    }

    private void finish(Started it, Map<String, Object> expect, Map<String, Object> step) throws IOException {
        RawRequest.Response response = it.request.finish();
        int runs = server.runs().getOrDefault(it.id, 0);
        if (runs > 1) {
            throw new AssertionError("the handler ran " + runs + " times for one request");
        }
        boolean isOdd = ((List<?>) one.getOrDefault("needs", List.of())).contains("odd_paths");
        if (isOdd && response.status() == 400 && runs == 0) {
            // The server has refused the path itself.
            return;
        }
        Map<String, Object> found = new HashMap<>();
        found.put("status", response.status());
        found.put("headers", lowered(response.headers()));
        found.put("text", response.text());
        found.put("handler_ran", runs > 0);
        Map<String, Object> wanted = new LinkedHashMap<>(expect);
        wanted.computeIfPresent("headers", (name, headers) -> lowered(object(headers)));
        if (wanted.containsKey("body")) {
            found.put("body", json(response.text()));
        }
        Expectation.check(step.toString() + ": " + found, wanted, found);
    }

    /** Returns the JSON of a body, or the body itself. */
    private static Object json(String text) {
        try {
            return JsonDocument.parse(text.getBytes(StandardCharsets.UTF_8));
        } catch (IllegalArgumentException e) {
            return text;
        }
    }

    private Map<String, Object> call(Map<String, Object> step) throws Exception {
        Map<String, Object> arguments = object(step.getOrDefault("args", Map.of()));
        try {
            Object interruptAfter = step.get("interrupt_after_ms");
            if (interruptAfter != null) {
                interruptLater((Long) interruptAfter);
            }
            return call((String) step.get("call"), arguments, (String) step.get("as"));
        } catch (DeniedException e) {
            return error("denied", "decision", describe(e.decision()));
        } catch (InvalidCallException e) {
            return error("invalid", "status", e.status());
        } catch (HoldEndedException e) {
            return error("ended", "status", null);
        } catch (UnavailableException e) {
            return error("unavailable", "status", null);
        } catch (InterruptedException e) {
            return error("interrupted", "status", null);
        }
    }

    private Map<String, Object> call(String name, Map<String, Object> arguments, String as) throws Exception {
        String ruleSet = (String) arguments.get("rule_set");
        return switch (name) {
            case "check" -> describe(client.check(ruleSet, context(arguments)));
            case "peek" -> describe(client.peek(ruleSet, context(arguments)));
            case "wait" -> describe(wait(ruleSet, arguments));
            case "batch" -> Map.of("decisions", batch(arguments));
            case "consume" -> describe(client.consume(consume(arguments)));
            case "hold" -> {
                Duration span = arguments.containsKey("hold_ms")
                        ? Duration.ofMillis((Long) arguments.get("hold_ms"))
                        : DEFAULT_HOLD;
                Hold hold = client.hold(ruleSet, context(arguments), span);
                if (as != null) {
                    holds.put(as, hold);
                }
                yield describe(hold.decision());
            }
            case "settle" -> settle(holds.get(arguments.get("hold")), arguments);
            case "renew" -> Map.of("renewed", holds.get(arguments.get("hold")).renew());
            case "release" -> Map.of("released", holds.get(arguments.get("hold")).release());
            case "leave" -> {
                holds.get(arguments.get("hold")).close();
                yield Map.of();
            }
            default -> throw new IllegalArgumentException("unknown call " + name);
        };
    }

    private Decision wait(String ruleSet, Map<String, Object> arguments) throws InterruptedException {
        Object bound = arguments.get("max_wait_ms");
        return bound == null
                ? client.await(ruleSet, it -> context(arguments).toBuilder())
                : client.await(ruleSet, context(arguments), Duration.ofMillis((Long) bound));
    }

    private List<Object> batch(Map<String, Object> arguments) {
        List<Check> checks = new ArrayList<>();
        for (Object it : (List<?>) arguments.get("checks")) {
            Map<String, Object> check = object(it);
            checks.add(new Check(
                    (String) check.get("rule_set"), context(check), Boolean.TRUE.equals(check.get("peek"))));
        }
        List<Object> decisions = new ArrayList<>();
        client.checkAll(checks).forEach(decision -> decisions.add(describe(decision)));
        return decisions;
    }

    private static Consume consume(Map<String, Object> arguments) {
        Object identity = arguments.get("identity");
        String[] values = identity instanceof List<?> list
                ? list.stream().map(Object::toString).toArray(String[]::new)
                : new String[] {identity.toString()};
        Consume consume = Consume.of((String) arguments.get("rule_id"), values);
        if (arguments.containsKey("cost")) {
            consume = consume.cost((Long) arguments.get("cost"));
        }
        if (arguments.containsKey("capacity")) {
            String rate = arguments.get("refill_tokens_per_second").toString();
            consume = consume.bucket((Long) arguments.get("capacity"), rate);
        }
        return consume;
    }

    private static Map<String, Object> settle(Hold hold, Map<String, Object> arguments) {
        Settlement settled;
        if (arguments.containsKey("cost")) {
            settled = hold.settle((Long) arguments.get("cost"));
        } else if (arguments.containsKey("attributes")) {
            settled = hold.settle(strings(arguments.get("attributes")));
        } else {
            settled = hold.settle();
        }
        return Map.of("charged", settled.charged(), "uncharged", settled.uncharged());
    }

    private static RequestContext context(Map<String, Object> arguments) {
        RequestContext.Builder context = RequestContext.builder()
                .ip((String) arguments.get("ip"))
                .user((String) arguments.get("user"))
                .apiKey((String) arguments.get("api_key"))
                .method((String) arguments.get("method"))
                .path((String) arguments.get("path"))
                .headers(strings(arguments.getOrDefault("headers", Map.of())))
                .attributes(strings(arguments.getOrDefault("attributes", Map.of())));
        if (arguments.containsKey("cost")) {
            context.cost((Long) arguments.get("cost"));
        }
        return context.build();
    }

    private static Map<String, Object> describe(Decision decision) {
        Map<String, Object> found = new HashMap<>();
        found.put("allowed", decision.allowed());
        found.put("outcome", decision.outcome().toString());
        found.put("rule", decision.rule().orElse(null));
        found.put("band", decision.band().orElse(null));
        found.put("limit", number(decision.limit()));
        found.put("remaining", number(decision.remaining()));
        found.put("retry_after_ms", millis(decision.retryAfter()));
        found.put("reset_after_ms", decision.resetAfter().toMillis());
        found.put("delay_ms", decision.delay().toMillis());
        found.put("violated", decision.violated());
        found.put("status", decision.status());
        found.put("headers", decision.headers());
        return found;
    }

    private static Map<String, Object> describe(Consumption consumption) {
        Map<String, Object> found = new HashMap<>();
        found.put("allowed", consumption.allowed());
        found.put("remaining", number(consumption.remaining()));
        found.put("retry_after_ms", millis(consumption.retryAfter()));
        found.put("outcome", consumption.outcome().map(Object::toString).orElse(null));
        return found;
    }

    private static Map<String, Object> error(String kind, String name, Object value) {
        Map<String, Object> found = new HashMap<>();
        found.put("error", kind);
        found.put(name, value);
        return found;
    }

    private static void interruptLater(long millis) {
        Thread caller = Thread.currentThread();
        Thread thread = new Thread(() -> {
            Service.sleep(millis);
            caller.interrupt();
        });
        thread.setDaemon(true);
        thread.start();
    }

    private static Long number(OptionalLong value) {
        return value.isPresent() ? value.getAsLong() : null;
    }

    private static Long millis(Optional<Duration> value) {
        return value.map(Duration::toMillis).orElse(null);
    }

    private static String joined(Object list) {
        return String.join(",", ((List<?>) list).stream().map(Object::toString).toList());
    }

    private static Map<String, Object> lowered(Map<String, ?> headers) {
        Map<String, Object> lowered = new TreeMap<>();
        headers.forEach((name, value) -> lowered.put(name.toLowerCase(Locale.ROOT), value));
        return lowered;
    }

    private static Map<String, String> strings(Object map) {
        Map<String, String> strings = new LinkedHashMap<>();
        object(map).forEach((name, value) -> strings.put(name, String.valueOf(value)));
        return strings;
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> object(Object value) {
        return (Map<String, Object>) value;
    }
}
