package io.fluxgate.spring.method;

import io.fluxgate.spring.LimiterFactory;
import io.fluxgate.spring.RateLimit;
import java.util.function.Supplier;
import org.springframework.aop.Pointcut;
import org.springframework.aop.framework.autoproxy.AbstractBeanFactoryAwareAdvisingPostProcessor;
import org.springframework.aop.support.ComposablePointcut;
import org.springframework.aop.support.DefaultPointcutAdvisor;
import org.springframework.aop.support.annotation.AnnotationMatchingPointcut;

/** Wraps beans that have {@link RateLimit}. It needs neither AspectJ nor other settings of AOP. */
public final class RateLimitPostProcessor extends AbstractBeanFactoryAwareAdvisingPostProcessor {
    private static final long serialVersionUID = 1;

    private volatile boolean hasLimitedMethods;

    public RateLimitPostProcessor(
            Supplier<LimiterFactory> limiters,
            Supplier<CurrentRequest> requests,
            Supplier<String> defaultRuleSet,
            Supplier<ReactiveCalls> reactiveCalls) {
        Pointcut classes = new AnnotationMatchingPointcut(RateLimit.class, true);
        Pointcut methods = new AnnotationMatchingPointcut(null, RateLimit.class, true);
        advisor = new DefaultPointcutAdvisor(
                new ComposablePointcut(classes).union(methods),
                new RateLimitInterceptor(limiters, requests, defaultRuleSet, reactiveCalls));
        setProxyTargetClass(true);
        // Limits come before transactions and the like.
        setBeforeExistingAdvisors(true);
    }

    /** Returns whether a bean that has been made so far has limited methods. */
    public boolean hasLimitedMethods() {
        return hasLimitedMethods;
    }

    @Override
    protected boolean isEligible(Class<?> targetClass) {
        boolean isLimited = super.isEligible(targetClass);
        hasLimitedMethods |= isLimited;
        return isLimited;
    }
}
