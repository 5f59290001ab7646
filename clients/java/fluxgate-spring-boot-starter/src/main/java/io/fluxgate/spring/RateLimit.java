package io.fluxgate.spring;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Limits the calls of a method, or of all public methods of a class, of a Spring bean. During an HTTP
 * request the rules see that request; a denied call ends it with 429. Otherwise it throws
 * {@link RateLimitExceededException}.
 */
@Target({ElementType.METHOD, ElementType.TYPE})
@Retention(RetentionPolicy.RUNTIME)
@Inherited
@Documented
public @interface RateLimit {
    /** The rule set; by default {@code fluxgate.ratelimit.default-rule-set-id}. */
    String ruleSetId() default "";

    /**
     * Whether a denied call waits until it would pass, and is decided once more. Without it a call
     * waits only if its rule says so ({@code on_exceed: wait}).
     */
    boolean waitForRefill() default false;

    /** How long a call waits at most, in milliseconds. */
    long maxWaitTimeMs() default 5000;

    /** How many calls wait at a time. */
    int maxConcurrentWaits() default 100;
}
