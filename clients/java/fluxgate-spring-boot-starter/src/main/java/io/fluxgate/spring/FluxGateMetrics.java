package io.fluxgate.spring;

import io.fluxgate.client.Decision;
import io.fluxgate.client.FluxGateClient;
import io.fluxgate.client.web.RequestLimiter;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Timer;
import io.micrometer.core.instrument.binder.MeterBinder;
import java.time.Duration;
import java.util.function.Supplier;

/**
 * Counts decisions: {@code fluxgate.requests} by rule set, result and outcome, and
 * {@code fluxgate.requests.duration}, waits included. Tags never have an identity or a path.
 */
public final class FluxGateMetrics implements RequestLimiter.DecisionListener {
    private final Supplier<MeterRegistry> registry;

    /** The registry is created late, so it is looked up with the first decision. It may be null. */
    public FluxGateMetrics(Supplier<MeterRegistry> registry) {
        this.registry = registry;
    }

    @Override
    public void decided(String ruleSet, Decision decision, Duration duration) {
        MeterRegistry meters = registry.get();
        if (meters == null) {
            return;
        }
        String result = decision.allowed() ? "allowed" : "rejected";
        String outcome = decision.outcome().toString();
        meters.counter("fluxgate.requests", "rule_set", ruleSet, "result", result, "outcome", outcome)
                .increment();
        Timer.builder("fluxgate.requests.duration")
                .description("Time until a request was decided, waits included")
                .tag("rule_set", ruleSet)
                .register(meters)
                .record(duration);
    }

    /** Returns gauges of a client. */
    public static MeterBinder gauges(FluxGateClient client) {
        return meters -> {
            Gauge.builder("fluxgate.holds", client, FluxGateClient::openHolds)
                    .description("Holds of running requests")
                    .register(meters);
            Gauge.builder("fluxgate.circuit.open", client, it -> it.isCircuitOpen() ? 1 : 0)
                    .description("1 while the service fails and is not called")
                    .register(meters);
        };
    }
}
