package io.fluxgate.spring.autoconfigure;

import io.fluxgate.spring.FilterSettings;
import io.fluxgate.spring.FluxGateProperties;
import io.fluxgate.spring.LimiterFactory;
import io.fluxgate.spring.ReactiveRequestContextCustomizer;
import io.fluxgate.spring.method.RateLimitPostProcessor;
import io.fluxgate.spring.webflux.FluxGateWebFilter;
import io.fluxgate.spring.webflux.RefusalHandler;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.SmartInitializingSingleton;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBooleanProperty;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.core.Ordered;
import org.springframework.core.annotation.Order;
import org.springframework.web.filter.reactive.ServerWebExchangeContextFilter;
import org.springframework.web.server.WebFilter;
import reactor.core.publisher.Mono;

/** The filter of a WebFlux program. */
@AutoConfiguration(after = FluxGateAutoConfiguration.class)
@ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.REACTIVE)
@ConditionalOnClass({WebFilter.class, Mono.class})
@ConditionalOnBooleanProperty(name = "fluxgate.ratelimit.enabled", matchIfMissing = true)
public class FluxGateWebFluxAutoConfiguration {
    @Bean
    @ConditionalOnBooleanProperty(name = "fluxgate.ratelimit.filter-enabled", matchIfMissing = true)
    public WebFilter fluxGateWebFilter(
            LimiterFactory limiters,
            FluxGateProperties properties,
            ObjectProvider<FilterSettings> annotated,
            ObjectProvider<ReactiveRequestContextCustomizer> customizers) {
        return FilterRule.find(properties, annotated)
                .<WebFilter>map(settings -> new FluxGateWebFilter(
                        limiters.limiter(settings), customizers.orderedStream().toList(), settings.order()))
                .orElse((exchange, chain) -> chain.filter(exchange));
    }

    @Bean
    @ConditionalOnBooleanProperty(name = "fluxgate.ratelimit.filter-enabled", matchIfMissing = true)
    public SmartInitializingSingleton fluxGateFilterReport(
            FluxGateProperties properties,
            ObjectProvider<FilterSettings> annotated,
            ObjectProvider<RateLimitPostProcessor> methods) {
        return FilterRule.report(properties, annotated, methods);
    }

    /** Lets limited methods find the exchange that calls them. */
    @Bean
    @ConditionalOnMissingBean
    @Order(Ordered.HIGHEST_PRECEDENCE)
    public ServerWebExchangeContextFilter fluxGateExchangeContextFilter() {
        return new ServerWebExchangeContextFilter();
    }

    @Bean
    public RefusalHandler fluxGateRefusalHandler() {
        return new RefusalHandler();
    }
}
