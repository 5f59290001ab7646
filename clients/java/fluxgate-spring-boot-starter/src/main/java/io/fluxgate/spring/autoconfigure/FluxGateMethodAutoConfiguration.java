package io.fluxgate.spring.autoconfigure;

import io.fluxgate.spring.FluxGateProperties;
import io.fluxgate.spring.LimiterFactory;
import io.fluxgate.spring.ReactiveRequestContextCustomizer;
import io.fluxgate.spring.RequestContextCustomizer;
import io.fluxgate.spring.method.CurrentRequest;
import io.fluxgate.spring.method.RateLimitPostProcessor;
import io.fluxgate.spring.method.ReactiveCalls;
import io.fluxgate.spring.method.ServletCurrentRequest;
import jakarta.servlet.Filter;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.aopalliance.intercept.MethodInterceptor;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.config.BeanDefinition;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBooleanProperty;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Role;
import org.springframework.web.context.request.ServletRequestAttributes;
import org.springframework.web.server.ServerWebExchange;
import reactor.core.publisher.Mono;

/** Limited methods. */
@AutoConfiguration(after = FluxGateAutoConfiguration.class)
@ConditionalOnClass(MethodInterceptor.class)
@ConditionalOnBooleanProperty(name = "fluxgate.ratelimit.enabled", matchIfMissing = true)
public class FluxGateMethodAutoConfiguration {
    @Bean
    @Role(BeanDefinition.ROLE_INFRASTRUCTURE)
    public static RateLimitPostProcessor fluxGateRateLimitPostProcessor(
            ObjectProvider<LimiterFactory> limiters,
            ObjectProvider<FluxGateProperties> properties,
            ObjectProvider<CurrentRequestSource> requests,
            ObjectProvider<ReactiveCalls> reactiveCalls) {
        return new RateLimitPostProcessor(
                limiters::getObject,
                () -> {
                    CurrentRequestSource source = requests.getIfAvailable();
                    return source == null ? CurrentRequest.NONE : source.get();
                },
                () -> properties.getObject().ratelimit().defaultRuleSetId(),
                reactiveCalls::getIfAvailable);
    }

    /** Finds the request of the current thread. */
    interface CurrentRequestSource extends Supplier<CurrentRequest> {}

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.SERVLET)
    @ConditionalOnClass({Filter.class, ServletRequestAttributes.class})
    static class InServlets {
        @Bean
        CurrentRequestSource fluxGateCurrentRequests(
                ObjectProvider<RequestContextCustomizer> customizers,
                ObjectProvider<org.fluxgate.spring.filter.RequestContextCustomizer> openFluxGateCustomizers) {
            return () -> ServletCurrentRequest.find(() -> Stream.concat(
                            customizers.orderedStream(),
                            openFluxGateCustomizers.orderedStream().map(OpenFluxGate::customizer))
                    .toList());
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass({Mono.class, ServerWebExchange.class})
    static class InReactor {
        @Bean
        ReactiveCalls fluxGateReactiveCalls(ObjectProvider<ReactiveRequestContextCustomizer> customizers) {
            return new ReactiveCalls(customizers);
        }
    }
}
