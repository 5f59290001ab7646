package io.fluxgate.spring.autoconfigure;

import io.fluxgate.spring.FilterSettings;
import java.lang.System.Logger.Level;
import java.util.List;
import org.fluxgate.core.handler.FluxgateRateLimitHandler;
import org.fluxgate.spring.annotation.EnableFluxgateFilter;
import org.springframework.beans.factory.support.BeanDefinitionBuilder;
import org.springframework.beans.factory.support.BeanDefinitionRegistry;
import org.springframework.context.EnvironmentAware;
import org.springframework.context.annotation.ImportBeanDefinitionRegistrar;
import org.springframework.core.annotation.MergedAnnotation;
import org.springframework.core.env.Environment;
import org.springframework.core.type.AnnotationMetadata;

/** Reads {@link EnableFluxgateFilter}. */
public final class EnableFluxgateFilterRegistrar implements ImportBeanDefinitionRegistrar, EnvironmentAware {
    private static final System.Logger LOG = System.getLogger(EnableFluxgateFilter.class.getName());

    private Environment environment;

    @Override
    public void setEnvironment(Environment value) {
        environment = value;
    }

    @Override
    public void registerBeanDefinitions(AnnotationMetadata metadata, BeanDefinitionRegistry registry) {
        MergedAnnotation<EnableFluxgateFilter> annotation = metadata.getAnnotations().get(EnableFluxgateFilter.class);
        if (annotation.getClass("handler") != FluxgateRateLimitHandler.class) {
            LOG.log(Level.WARNING, "the handler of @EnableFluxgateFilter is not used: the service decides");
        }
        String named = annotation.getString("ruleSetId");
        String ruleSet =
                named.isEmpty() ? environment.getProperty("fluxgate.ratelimit.default-rule-set-id", "") : named;
        String[] include = annotation.getStringArray("includePatterns");
        FilterSettings settings = new FilterSettings(
                ruleSet,
                include.length == 0 ? List.of("/**") : List.of(include),
                List.of(annotation.getStringArray("excludePatterns")),
                annotation.getInt("filterOrder"));
        registry.registerBeanDefinition(
                "fluxGateFilterSettings",
                BeanDefinitionBuilder.genericBeanDefinition(FilterSettings.class, () -> settings)
                        .getBeanDefinition());
    }
}
