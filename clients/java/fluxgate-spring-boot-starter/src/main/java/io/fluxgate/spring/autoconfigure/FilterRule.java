package io.fluxgate.spring.autoconfigure;

import io.fluxgate.spring.FilterSettings;
import io.fluxgate.spring.FluxGateProperties;
import java.lang.System.Logger.Level;
import java.util.Optional;
import org.springframework.beans.factory.ObjectProvider;

/** Finds the settings of the filter. */
final class FilterRule {
    private static final System.Logger LOG = System.getLogger(FluxGateProperties.class.getName());

    private FilterRule() {}

    /** Returns the settings of an annotation, or else of the properties; nothing if no rule set is named. */
    static Optional<FilterSettings> find(FluxGateProperties properties, ObjectProvider<FilterSettings> annotated) {
        FilterSettings settings = annotated.getIfAvailable(() -> FilterSettings.of(properties.ratelimit()));
        String ruleSet = settings.ruleSet();
        if (ruleSet == null || ruleSet.isEmpty()) {
            LOG.log(Level.WARNING, "requests are not limited: set fluxgate.ratelimit.default-rule-set-id");
            return Optional.empty();
        }
        return Optional.of(settings);
    }
}
