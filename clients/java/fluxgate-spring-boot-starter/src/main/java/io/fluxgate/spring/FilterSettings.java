package io.fluxgate.spring;

import java.util.List;

/** The rule set of the filter, the paths it applies to, and its order. */
public record FilterSettings(String ruleSet, List<String> include, List<String> exclude, int order) {
    public static FilterSettings of(FluxGateProperties.RateLimit settings) {
        return new FilterSettings(
                settings.defaultRuleSetId(),
                settings.includePatterns(),
                settings.excludePatterns(),
                settings.filterOrder());
    }
}
