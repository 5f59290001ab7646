package org.fluxgate.spring.annotation;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.springframework.core.annotation.AliasFor;

/** {@link io.fluxgate.spring.RateLimit} under the name that programs for OpenFluxGate import. */
@Target({ElementType.METHOD, ElementType.TYPE})
@Retention(RetentionPolicy.RUNTIME)
@Inherited
@Documented
@io.fluxgate.spring.RateLimit
public @interface RateLimit {
    @AliasFor(annotation = io.fluxgate.spring.RateLimit.class)
    String ruleSetId() default "";

    @AliasFor(annotation = io.fluxgate.spring.RateLimit.class)
    boolean waitForRefill() default false;

    @AliasFor(annotation = io.fluxgate.spring.RateLimit.class)
    long maxWaitTimeMs() default 5000;

    @AliasFor(annotation = io.fluxgate.spring.RateLimit.class)
    int maxConcurrentWaits() default 100;
}
