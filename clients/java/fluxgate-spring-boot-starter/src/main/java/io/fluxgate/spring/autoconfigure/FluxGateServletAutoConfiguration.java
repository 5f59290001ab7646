package io.fluxgate.spring.autoconfigure;

import io.fluxgate.client.web.RequestLimiter;
import io.fluxgate.spring.FilterSettings;
import io.fluxgate.spring.FluxGateProperties;
import io.fluxgate.spring.LimiterFactory;
import io.fluxgate.spring.RequestContextCustomizer;
import io.fluxgate.spring.method.RateLimitPostProcessor;
import io.fluxgate.spring.servlet.FluxGateFilter;
import io.fluxgate.spring.servlet.RefusalResolver;
import jakarta.servlet.DispatcherType;
import jakarta.servlet.Filter;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.SmartInitializingSingleton;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBooleanProperty;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication;
import org.springframework.boot.web.servlet.FilterRegistrationBean;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.web.servlet.HandlerExceptionResolver;

/** The filter of a servlet program. */
@AutoConfiguration(after = FluxGateAutoConfiguration.class)
@ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.SERVLET)
@ConditionalOnClass({Filter.class, FilterRegistrationBean.class})
@ConditionalOnBooleanProperty(name = "fluxgate.ratelimit.enabled", matchIfMissing = true)
public class FluxGateServletAutoConfiguration {
    @Bean
    @ConditionalOnBooleanProperty(name = "fluxgate.ratelimit.filter-enabled", matchIfMissing = true)
    public FilterRegistrationBean<Filter> fluxGateFilterRegistration(
            LimiterFactory limiters,
            FluxGateProperties properties,
            ObjectProvider<FilterSettings> annotated,
            ObjectProvider<RequestContextCustomizer> customizers,
            ObjectProvider<org.fluxgate.spring.filter.RequestContextCustomizer> openFluxGateCustomizers) {
        FilterRegistrationBean<Filter> registration = new FilterRegistrationBean<>();
        registration.setName("fluxGateFilter");
        registration.addUrlPatterns("/*");
        // A forward, an error page or the end of an asynchronous request is the same request.
        registration.setDispatcherTypes(EnumSet.of(DispatcherType.REQUEST));
        FilterRule.find(properties, annotated).ifPresentOrElse(
                settings -> {
                    RequestLimiter limiter = limiters.limiter(settings);
                    List<RequestContextCustomizer> all = new ArrayList<>(customizers.orderedStream().toList());
                    openFluxGateCustomizers.orderedStream().map(OpenFluxGate::customizer).forEach(all::add);
                    registration.setFilter(new FluxGateFilter(limiter, all));
                    registration.setOrder(settings.order());
                },
                () -> {
                    registration.setFilter((request, response, chain) -> chain.doFilter(request, response));
                    registration.setEnabled(false);
                });
        return registration;
    }

    @Bean
    @ConditionalOnBooleanProperty(name = "fluxgate.ratelimit.filter-enabled", matchIfMissing = true)
    public SmartInitializingSingleton fluxGateFilterReport(
            FluxGateProperties properties,
            ObjectProvider<FilterSettings> annotated,
            ObjectProvider<RateLimitPostProcessor> methods) {
        return FilterRule.report(properties, annotated, methods);
    }

    /** Answers for limited methods. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(HandlerExceptionResolver.class)
    static class Refusals {
        @Bean
        RefusalResolver fluxGateRefusalResolver() {
            return new RefusalResolver();
        }
    }
}
