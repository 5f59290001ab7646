package io.fluxgate.gateway;

import io.fluxgate.spring.FluxGateProperties;
import io.fluxgate.spring.LimiterFactory;
import io.fluxgate.spring.ReactiveRequestContextCustomizer;
import io.fluxgate.spring.autoconfigure.FluxGateAutoConfiguration;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBooleanProperty;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication;
import org.springframework.cloud.gateway.filter.factory.AbstractGatewayFilterFactory;
import org.springframework.cloud.gateway.filter.ratelimit.RateLimiter;
import org.springframework.cloud.gateway.support.ConfigurationService;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Primary;

/** The filter and the rate limiter of Spring Cloud Gateway. */
@AutoConfiguration(
        after = FluxGateAutoConfiguration.class,
        beforeName = {
            "org.springframework.cloud.gateway.config.GatewayAutoConfiguration",
            "org.springframework.cloud.gateway.config.GatewayRedisAutoConfiguration"
        })
@ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.REACTIVE)
@ConditionalOnClass(AbstractGatewayFilterFactory.class)
@ConditionalOnBooleanProperty(name = "spring.cloud.gateway.server.webflux.enabled", matchIfMissing = true)
public class FluxGateGatewayAutoConfiguration {
    @Bean
    public FluxGateGatewayFilterFactory fluxGateGatewayFilterFactory(
            LimiterFactory limiters,
            FluxGateProperties properties,
            ObjectProvider<ReactiveRequestContextCustomizer> customizers) {
        return new FluxGateGatewayFilterFactory(
                limiters,
                properties.ratelimit().defaultRuleSetId(),
                () -> customizers.orderedStream().toList());
    }

    /** Primary, because a program with Redis has a rate limiter of its own. */
    @Bean
    @Primary
    @ConditionalOnMissingBean(RateLimiter.class)
    public FluxGateRateLimiter fluxGateRateLimiter(
            LimiterFactory limiters, FluxGateProperties properties, ConfigurationService configurationService) {
        return new FluxGateRateLimiter(limiters, properties.ratelimit().defaultRuleSetId(), configurationService);
    }
}
