package io.fluxgate.gateway;

import io.fluxgate.client.web.RequestLimiter;
import io.fluxgate.spring.LimiterFactory;
import io.fluxgate.spring.ReactiveRequestContextCustomizer;
import io.fluxgate.spring.webflux.WebExchanges;
import java.util.List;
import java.util.function.Supplier;
import org.springframework.cloud.gateway.filter.GatewayFilter;
import org.springframework.cloud.gateway.filter.NettyWriteResponseFilter;
import org.springframework.cloud.gateway.filter.OrderedGatewayFilter;
import org.springframework.cloud.gateway.filter.factory.AbstractGatewayFilterFactory;

/**
 * The filter {@code FluxGate} of a route:
 *
 * <pre>{@code
 * filters: [ { name: FluxGate, args: { rule-set: api-limits } } ]
 * }</pre>
 *
 * Requests that have to wait do, and slots are held until the response has been written. Rules see
 * the client's path, before other filters change it.
 */
public final class FluxGateGatewayFilterFactory
        extends AbstractGatewayFilterFactory<FluxGateGatewayFilterFactory.Config> {
    /** The response is written by a filter behind which this one must not stand: it ends with the response. */
    private static final int ORDER = NettyWriteResponseFilter.WRITE_RESPONSE_FILTER_ORDER - 1;

    private final LimiterFactory limiters;
    private final String defaultRuleSet;
    private final Supplier<List<ReactiveRequestContextCustomizer>> customizers;

    public FluxGateGatewayFilterFactory(
            LimiterFactory limiters,
            String defaultRuleSet,
            Supplier<List<ReactiveRequestContextCustomizer>> customizers) {
        super(Config.class);
        this.limiters = limiters;
        this.defaultRuleSet = defaultRuleSet;
        this.customizers = customizers;
    }

    /** Makes {@code FluxGate=api-limits} the short form. */
    @Override
    public List<String> shortcutFieldOrder() {
        return List.of("ruleSet");
    }

    @Override
    public GatewayFilter apply(Config config) {
        RequestLimiter.Builder builder = limiters.limiter(ruleSet(config));
        if (!config.includePatterns.isEmpty()) {
            builder.include(config.includePatterns);
        }
        if (config.maxConcurrentWaits != null) {
            builder.maxConcurrentWaits(config.maxConcurrentWaits);
        }
        RequestLimiter limiter = builder.exclude(config.excludePatterns).build();
        List<ReactiveRequestContextCustomizer> all = customizers.get();
        return new OrderedGatewayFilter(
                (exchange, chain) -> WebExchanges.limit(limiter, all, exchange, () -> chain.filter(exchange)), ORDER);
    }

    private String ruleSet(Config config) {
        String named = config.ruleSet == null ? defaultRuleSet : config.ruleSet;
        if (named == null || named.isEmpty()) {
            throw new IllegalArgumentException("the filter FluxGate needs a `rule-set`");
        }
        return named;
    }

    /** The arguments of the filter. */
    public static final class Config {
        private String ruleSet;
        private List<String> includePatterns = List.of();
        private List<String> excludePatterns = List.of();
        private Integer maxConcurrentWaits;

        public String getRuleSet() {
            return ruleSet;
        }

        /** Sets the rule set; by default {@code fluxgate.ratelimit.default-rule-set-id}. */
        public void setRuleSet(String value) {
            ruleSet = value;
        }

        public List<String> getIncludePatterns() {
            return includePatterns;
        }

        /** Sets the paths that are limited; by default all of the route. */
        public void setIncludePatterns(List<String> patterns) {
            includePatterns = patterns;
        }

        public List<String> getExcludePatterns() {
            return excludePatterns;
        }

        /** Sets the paths that are not limited. */
        public void setExcludePatterns(List<String> patterns) {
            excludePatterns = patterns;
        }

        public Integer getMaxConcurrentWaits() {
            return maxConcurrentWaits;
        }

        /** Sets how many requests of the route wait at a time. */
        public void setMaxConcurrentWaits(Integer value) {
            maxConcurrentWaits = value;
        }
    }
}
