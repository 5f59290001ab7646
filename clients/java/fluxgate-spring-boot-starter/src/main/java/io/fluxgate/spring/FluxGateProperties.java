package io.fluxgate.spring;

import io.fluxgate.client.OnError;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * The settings of the client and of the filter.
 *
 * @param url Address of the FluxGate service.
 * @param onError What a decision is if the service does not answer: allow, deny (503) or raise (an exception).
 * @param deadline How long a decision may take, connecting included.
 * @param maxConnections How many calls, and so connections, there are at a time.
 * @param headers Headers to add to every call of the service.
 * @param ca PEM file of the authority to trust instead of those of the system, for an https address.
 * @param ratelimit Settings of the filter.
 * @param metrics Settings of the metrics.
 * @param actuator Settings of the health indicator.
 */
@ConfigurationProperties("fluxgate")
public record FluxGateProperties(
        @DefaultValue("http://127.0.0.1:8081") String url,
        @DefaultValue("allow") OnError onError,
        @DefaultValue("100ms") Duration deadline,
        @DefaultValue("64") int maxConnections,
        @DefaultValue Map<String, String> headers,
        Path ca,
        @DefaultValue RateLimit ratelimit,
        @DefaultValue Metrics metrics,
        @DefaultValue Actuator actuator) {

    /**
     * The settings of the filter.
     *
     * @param enabled Whether anything is limited.
     * @param filterEnabled Whether the filter is on; it needs a rule set.
     * @param defaultRuleSetId Rule set of the filter, and of methods with @RateLimit that name none.
     * @param missingRuleBehavior What happens to requests that no rule applies to.
     * @param filterOrder Order of the filter.
     * @param includePatterns Paths that are limited: ? is one character, * any number inside a segment, ** any number
     *     of segments.
     * @param excludePatterns Paths that are not limited.
     * @param clientIpHeader Header in which trusted proxies report the client's address.
     * @param trustClientIpHeader Whether that header is read; by default if trusted proxies are named. Without them it
     *     has no effect.
     * @param trustedProxies Networks of your proxies, such as 10.0.0.0/8. Only from them the header is read.
     * @param userHeader Header with the user.
     * @param apiKeyHeader Header with the API key.
     * @param ruleHeaders Headers that rules read. If none is named, all are sent to the service except Authorization,
     *     cookies and hop-by-hop headers.
     * @param includeHeaders Whether responses get limit headers.
     * @param waitForRefill Settings of requests that wait.
     */
    public record RateLimit(
            @DefaultValue("true") boolean enabled,
            @DefaultValue("true") boolean filterEnabled,
            String defaultRuleSetId,
            @DefaultValue("allow") MissingRuleBehavior missingRuleBehavior,
            @DefaultValue("" + (Integer.MIN_VALUE + 100)) int filterOrder,
            @DefaultValue("/**") List<String> includePatterns,
            @DefaultValue List<String> excludePatterns,
            @DefaultValue("X-Forwarded-For") String clientIpHeader,
            Boolean trustClientIpHeader,
            @DefaultValue List<String> trustedProxies,
            @DefaultValue("X-User-Id") String userHeader,
            @DefaultValue("X-API-Key") String apiKeyHeader,
            @DefaultValue List<String> ruleHeaders,
            @DefaultValue("true") boolean includeHeaders,
            @DefaultValue WaitForRefill waitForRefill) {}

    /** What happens to requests that no rule applies to. */
    public enum MissingRuleBehavior {
        /** They pass. */
        ALLOW,
        /** They are refused with 429. */
        DENY
    }

    /**
     * The settings of requests that wait.
     *
     * @param enabled Whether denied requests wait until they would pass. By default only those wait whose rule says so
     *     (on_exceed: wait); if false, none.
     * @param maxWaitTimeMs How long a request waits at most, in milliseconds. By default the rule decides; 5000 if
     *     enabled is true.
     * @param maxConcurrentWaits How many requests wait at a time.
     */
    public record WaitForRefill(
            Boolean enabled, Long maxWaitTimeMs, @DefaultValue("100") int maxConcurrentWaits) {}

    /**
     * The settings of the metrics.
     *
     * @param enabled Whether decisions are counted with Micrometer.
     */
    public record Metrics(@DefaultValue("true") boolean enabled) {}

    /**
     * The settings of the actuator.
     *
     * @param health Settings of the health indicator.
     */
    public record Actuator(@DefaultValue Health health) {
        /**
         * The settings of the health indicator.
         *
         * @param enabled Whether the health of the service is shown.
         */
        public record Health(@DefaultValue("true") boolean enabled) {}
    }
}
