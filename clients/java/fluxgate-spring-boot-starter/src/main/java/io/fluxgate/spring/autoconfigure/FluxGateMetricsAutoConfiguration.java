package io.fluxgate.spring.autoconfigure;

import io.fluxgate.client.FluxGateClient;
import io.fluxgate.spring.FluxGateMetrics;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.binder.MeterBinder;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBooleanProperty;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.context.annotation.Bean;

/** Metrics of decisions. */
@AutoConfiguration(after = FluxGateAutoConfiguration.class)
@ConditionalOnClass(MeterRegistry.class)
@ConditionalOnBooleanProperty(name = "fluxgate.metrics.enabled", matchIfMissing = true)
public class FluxGateMetricsAutoConfiguration {
    @Bean
    public FluxGateMetrics fluxGateMetrics(ObjectProvider<MeterRegistry> registry) {
        return new FluxGateMetrics(registry::getIfUnique);
    }

    @Bean
    public MeterBinder fluxGateClientMetrics(FluxGateClient client) {
        return FluxGateMetrics.gauges(client);
    }
}
