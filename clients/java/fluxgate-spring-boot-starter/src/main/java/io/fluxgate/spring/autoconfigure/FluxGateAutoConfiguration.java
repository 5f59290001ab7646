package io.fluxgate.spring.autoconfigure;

import io.fluxgate.client.FluxGateClient;
import io.fluxgate.client.web.RequestLimiter;
import io.fluxgate.spring.FluxGateProperties;
import io.fluxgate.spring.LimiterFactory;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;

/** The client of the service. */
@AutoConfiguration
@EnableConfigurationProperties(FluxGateProperties.class)
public class FluxGateAutoConfiguration {
    @Bean(destroyMethod = "close")
    @ConditionalOnMissingBean
    public FluxGateClient fluxGateClient(FluxGateProperties properties) {
        return LimiterFactory.client(properties);
    }

    @Bean
    @ConditionalOnMissingBean
    public LimiterFactory fluxGateLimiterFactory(
            FluxGateClient client,
            FluxGateProperties properties,
            ObjectProvider<RequestLimiter.DecisionListener> listeners) {
        RequestLimiter.DecisionListener listener = (ruleSet, decision, duration) ->
                listeners.orderedStream().forEach(it -> it.decided(ruleSet, decision, duration));
        return new LimiterFactory(client, properties.ratelimit(), listener);
    }
}
