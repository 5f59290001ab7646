package io.fluxgate.spring.autoconfigure;

import io.fluxgate.client.FluxGateClient;
import io.fluxgate.spring.health.Boot3HealthIndicator;
import io.fluxgate.spring.health.Boot4HealthIndicator;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBooleanProperty;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** The health of the service. Spring Boot 4 moved the types of health indicators. */
@AutoConfiguration(after = FluxGateAutoConfiguration.class)
@ConditionalOnBooleanProperty(
        name = {"fluxgate.actuator.health.enabled", "management.health.fluxgate.enabled"},
        matchIfMissing = true)
public class FluxGateHealthAutoConfiguration {
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(org.springframework.boot.actuate.health.HealthIndicator.class)
    static class InBoot3 {
        @Bean
        Boot3HealthIndicator fluxgateHealthIndicator(FluxGateClient client) {
            return new Boot3HealthIndicator(client);
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(org.springframework.boot.health.contributor.HealthIndicator.class)
    static class InBoot4 {
        @Bean
        Boot4HealthIndicator fluxgateHealthIndicator(FluxGateClient client) {
            return new Boot4HealthIndicator(client);
        }
    }
}
