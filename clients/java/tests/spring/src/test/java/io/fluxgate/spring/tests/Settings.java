package io.fluxgate.spring.tests;

import io.fluxgate.client.FluxGateClient;
import io.fluxgate.spring.FluxGateProperties;
import io.fluxgate.spring.LimiterFactory;
import io.fluxgate.testing.Durations;
import java.util.Map;
import org.springframework.boot.context.properties.bind.Binder;
import org.springframework.boot.context.properties.source.MapConfigurationPropertySource;

/** The client and the limiters of the properties of a program, made as its auto-configuration makes them. */
record Settings(
        FluxGateProperties properties, FluxGateClient client, LimiterFactory limiters, Durations decisions) {
    static Settings of(Map<String, String> map) {
        FluxGateProperties properties =
                new Binder(new MapConfigurationPropertySource(map)).bindOrCreate("fluxgate", FluxGateProperties.class);
        FluxGateClient client = LimiterFactory.client(properties);
        Durations decisions = new Durations();
        LimiterFactory limiters = new LimiterFactory(
                client, properties.ratelimit(), (ruleSet, decision, duration) -> decisions.add(duration.toNanos()));
        return new Settings(properties, client, limiters, decisions);
    }
}
