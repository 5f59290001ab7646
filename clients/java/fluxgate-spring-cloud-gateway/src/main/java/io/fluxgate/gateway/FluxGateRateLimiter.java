package io.fluxgate.gateway;

import io.fluxgate.client.RequestContext;
import io.fluxgate.client.web.Admission;
import io.fluxgate.client.web.RequestLimiter;
import io.fluxgate.spring.LimiterFactory;
import io.fluxgate.spring.webflux.WebExchanges;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import org.springframework.cloud.gateway.filter.ratelimit.AbstractRateLimiter;
import org.springframework.cloud.gateway.support.ConfigurationService;
import reactor.core.publisher.Mono;

/**
 * Decides for routes with the filter {@code RequestRateLimiter}. Rules see the key of its resolver as
 * the user, and the route as the attribute {@code route}.
 *
 * <p>That filter answers without a body, and does not tell when a response has ended: slots are freed
 * at once. The filter {@code FluxGate} does both.
 */
public final class FluxGateRateLimiter extends AbstractRateLimiter<FluxGateRateLimiter.Config> {
    /** The prefix of its arguments: {@code flux-gate-rate-limiter.rule-set}. */
    public static final String CONFIGURATION_PROPERTY_NAME = "flux-gate-rate-limiter";

    private final LimiterFactory limiters;
    private final String defaultRuleSet;
    private final Map<String, RequestLimiter> byRuleSet = new ConcurrentHashMap<>();

    public FluxGateRateLimiter(
            LimiterFactory limiters, String defaultRuleSet, ConfigurationService configurationService) {
        super(Config.class, CONFIGURATION_PROPERTY_NAME, configurationService);
        this.limiters = limiters;
        this.defaultRuleSet = defaultRuleSet;
    }

    @Override
    public Mono<Response> isAllowed(String routeId, String id) {
        return Mono.defer(() -> {
            RequestLimiter limiter = byRuleSet.computeIfAbsent(ruleSet(routeId), it -> limiters.limiter(it).build());
            RequestContext context =
                    RequestContext.builder().user(id).attribute("route", routeId).build();
            CompletableFuture<Admission> admitted = limiter.admit(RequestLimiter.Reading.none(), context);
            return Mono.fromFuture(admitted, true)
                    .map(FluxGateRateLimiter::response)
                    .doFinally(signal -> WebExchanges.end(admitted));
        });
    }

    private static Response response(Admission admission) {
        Map<String, String> headers = new LinkedHashMap<>(admission.headers());
        admission.refusal().ifPresent(refusal -> {
            headers.putAll(refusal.headers());
            // There is no body.
            headers.remove("Content-Type");
        });
        return new Response(admission.refusal().isEmpty(), headers);
    }

    private String ruleSet(String routeId) {
        Config config = getConfig().get(routeId);
        String named = config == null || config.ruleSet == null ? defaultRuleSet : config.ruleSet;
        if (named == null || named.isEmpty()) {
            throw new IllegalStateException("the route " + routeId + " needs " + CONFIGURATION_PROPERTY_NAME
                    + ".rule-set, or fluxgate.ratelimit.default-rule-set-id");
        }
        return named;
    }

    /** The arguments of a route. */
    public static final class Config {
        private String ruleSet;

        public String getRuleSet() {
            return ruleSet;
        }

        /** Sets the rule set; by default {@code fluxgate.ratelimit.default-rule-set-id}. */
        public void setRuleSet(String value) {
            ruleSet = value;
        }
    }
}
