package org.fluxgate.spring.annotation;

import io.fluxgate.spring.autoconfigure.EnableFluxgateFilterRegistrar;
import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.fluxgate.core.handler.FluxgateRateLimitHandler;
import org.springframework.context.annotation.Import;

/** Sets the filter in place of {@code fluxgate.ratelimit.*}, as in programs for OpenFluxGate. */
@Target(ElementType.TYPE)
@Retention(RetentionPolicy.RUNTIME)
@Documented
@Import(EnableFluxgateFilterRegistrar.class)
public @interface EnableFluxgateFilter {
    /** Has no effect: the service decides. */
    Class<? extends FluxgateRateLimitHandler> handler() default FluxgateRateLimitHandler.class;

    /** The rule set; by default {@code fluxgate.ratelimit.default-rule-set-id}. */
    String ruleSetId() default "";

    /** The paths that are limited; by default all. */
    String[] includePatterns() default {};

    /** The paths that are not limited. */
    String[] excludePatterns() default {};

    int filterOrder() default 1;
}
