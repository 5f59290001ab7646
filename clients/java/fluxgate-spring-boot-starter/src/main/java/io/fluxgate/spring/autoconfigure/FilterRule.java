package io.fluxgate.spring.autoconfigure;

import io.fluxgate.spring.FilterSettings;
import io.fluxgate.spring.FluxGateProperties;
import io.fluxgate.spring.method.RateLimitPostProcessor;
import java.lang.System.Logger.Level;
import java.util.Optional;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.SmartInitializingSingleton;
import org.springframework.util.ClassUtils;

/** Finds the settings of the filter. */
final class FilterRule {
    private static final System.Logger LOG = System.getLogger(FluxGateProperties.class.getName());

    private static final String HOW = "fluxgate.ratelimit.default-rule-set-id, which limits all requests, is not set";
    private static final String GATEWAY = "io.fluxgate.gateway.FluxGateGatewayFilterFactory";

    private FilterRule() {}

    /** Returns the settings of an annotation, or else of the properties; nothing if no rule set is named. */
    static Optional<FilterSettings> find(FluxGateProperties properties, ObjectProvider<FilterSettings> annotated) {
        FilterSettings settings = annotated.getIfAvailable(() -> FilterSettings.of(properties.ratelimit()));
        String ruleSet = settings.ruleSet();
        return ruleSet == null || ruleSet.isEmpty() ? Optional.empty() : Optional.of(settings);
    }

    /**
     * Says what is limited in a program whose filter has no rule set. Whether it has limited methods
     * is known only when its beans have been made.
     */
    static SmartInitializingSingleton report(
            FluxGateProperties properties,
            ObjectProvider<FilterSettings> annotated,
            ObjectProvider<RateLimitPostProcessor> methods) {
        return () -> {
            if (find(properties, annotated).isPresent()) {
                return;
            }
            RateLimitPostProcessor processor = methods.getIfAvailable();
            if (processor != null && processor.hasLimitedMethods()) {
                LOG.log(Level.INFO, "only methods with @RateLimit are limited: " + HOW);
            } else if (ClassUtils.isPresent(GATEWAY, FilterRule.class.getClassLoader())) {
                LOG.log(Level.INFO, "only routes with a filter of FluxGate are limited: " + HOW);
            } else {
                LOG.log(Level.WARNING, "requests are not limited: " + HOW);
            }
        };
    }
}
