package io.fluxgate.spring.method;

import io.fluxgate.client.web.Admission;
import io.fluxgate.client.web.RequestLimiter;
import io.fluxgate.spring.LimiterFactory;
import io.fluxgate.spring.RateLimit;
import io.fluxgate.spring.RateLimitExceededException;
import java.lang.System.Logger.Level;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.function.Supplier;
import org.aopalliance.intercept.MethodInterceptor;
import org.aopalliance.intercept.MethodInvocation;
import org.springframework.aop.support.AopUtils;
import org.springframework.core.annotation.AnnotatedElementUtils;

/** Decides calls of methods with {@link RateLimit} before they run. */
final class RateLimitInterceptor implements MethodInterceptor {
    private static final System.Logger LOG = System.getLogger(RateLimitInterceptor.class.getName());

    private final Supplier<LimiterFactory> limiters;
    private final Supplier<CurrentRequest> requests;
    private final Supplier<String> defaultRuleSet;
    /** Returns null in a program without Reactor. */
    private final Supplier<ReactiveCalls> reactiveCalls;
    private final Map<Method, Optional<RequestLimiter>> byMethod = new ConcurrentHashMap<>();

    /** All are called when a method is first called: other beans must not be made earlier. */
    RateLimitInterceptor(
            Supplier<LimiterFactory> limiters,
            Supplier<CurrentRequest> requests,
            Supplier<String> defaultRuleSet,
            Supplier<ReactiveCalls> reactiveCalls) {
        this.limiters = limiters;
        this.requests = requests;
        this.defaultRuleSet = defaultRuleSet;
        this.reactiveCalls = reactiveCalls;
    }

    @Override
    public Object invoke(MethodInvocation invocation) throws Throwable {
        Class<?> type = invocation.getThis() == null
                ? invocation.getMethod().getDeclaringClass()
                : AopUtils.getTargetClass(invocation.getThis());
        Method method = AopUtils.getMostSpecificMethod(invocation.getMethod(), type);
        Optional<RequestLimiter> limiter = byMethod.computeIfAbsent(method, it -> limiter(it, type));
        if (limiter.isEmpty()) {
            return invocation.proceed();
        }
        CurrentRequest request = requests.get();
        ReactiveCalls reactive = reactiveCalls.get();
        return reactive != null && reactive.areMadeBy(method)
                ? reactive.limit(limiter.get(), request, invocation)
                : proceed(limiter.get(), request, invocation);
    }

    private static Object proceed(RequestLimiter limiter, CurrentRequest request, MethodInvocation invocation)
            throws Throwable {
        Admission admission = get(admit(limiter, request));
        throwIfRefused(admission);
        request.addHeaders(admission.headers());
        boolean isClosedLater = false;
        try {
            Object result = invocation.proceed();
            if (result instanceof CompletionStage<?> stage) {
                isClosedLater = true;
                return stage.whenComplete((value, error) -> admission.close());
            }
            return result;
        } finally {
            if (!isClosedLater) {
                admission.close();
            }
        }
    }

    private static CompletableFuture<Admission> admit(RequestLimiter limiter, CurrentRequest request) {
        RequestLimiter.Reading reading = request.read(limiter);
        reading.refusal().ifPresent(refusal -> {
            throw new RateLimitExceededException(refusal, null);
        });
        return limiter.admit(reading, request.customize(reading.context().orElseThrow()).build());
    }

    static void throwIfRefused(Admission admission) {
        admission.refusal().ifPresent(refusal -> {
            throw new RateLimitExceededException(refusal, admission.decision());
        });
    }

    private static Admission get(CompletableFuture<Admission> admitted) throws Throwable {
        try {
            return admitted.get();
        } catch (InterruptedException e) {
            admitted.cancel(false);
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted while waiting for a decision", e);
        } catch (ExecutionException e) {
            throw e.getCause();
        }
    }

    /** Returns the limiter of a method, or nothing if no rule set is named. */
    private Optional<RequestLimiter> limiter(Method method, Class<?> type) {
        RateLimit annotation = AnnotatedElementUtils.findMergedAnnotation(method, RateLimit.class);
        if (annotation == null) {
            annotation = AnnotatedElementUtils.findMergedAnnotation(type, RateLimit.class);
        }
        if (annotation == null) {
            return Optional.empty();
        }
        String named = annotation.ruleSetId();
        String ruleSet = named.isEmpty() ? defaultRuleSet.get() : named;
        if (ruleSet == null || ruleSet.isEmpty()) {
            LOG.log(Level.WARNING, "{0} is not limited: its @RateLimit names no rule set", method);
            return Optional.empty();
        }
        return Optional.of(limiters.get()
                .limiter(ruleSet)
                .repeatDenied(annotation.waitForRefill())
                .maxWait(Duration.ofMillis(annotation.maxWaitTimeMs()))
                .maxConcurrentWaits(annotation.maxConcurrentWaits())
                .build());
    }
}
