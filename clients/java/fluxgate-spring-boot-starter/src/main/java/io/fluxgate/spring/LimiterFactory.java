package io.fluxgate.spring;

import io.fluxgate.client.FluxGateClient;
import io.fluxgate.client.PemTrust;
import io.fluxgate.client.web.RequestLimiter;
import java.io.IOException;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.Callable;

/** Makes clients and limiters from the settings of a program. */
public final class LimiterFactory {
    private static final System.Logger LOG = System.getLogger(LimiterFactory.class.getName());
    private static final long DEFAULT_MAX_WAIT_MS = 5000;

    private final FluxGateClient client;
    private final FluxGateProperties.RateLimit settings;
    private final RequestLimiter.DecisionListener listener;

    public LimiterFactory(
            FluxGateClient client, FluxGateProperties.RateLimit settings, RequestLimiter.DecisionListener listener) {
        this.client = client;
        this.settings = settings;
        this.listener = listener;
        if (Boolean.TRUE.equals(settings.trustClientIpHeader()) && settings.trustedProxies().isEmpty()) {
            LOG.log(
                    Level.WARNING,
                    "fluxgate.ratelimit.trust-client-ip-header has no effect: name the proxies that set {0} in "
                            + "fluxgate.ratelimit.trusted-proxies",
                    settings.clientIpHeader());
        }
    }

    /** Creates the client of a program. */
    public static FluxGateClient client(FluxGateProperties properties) {
        FluxGateClient.Builder builder = setting("url", () -> FluxGateClient.builder(properties.url()));
        builder.onError(properties.onError());
        setting("deadline", () -> builder.deadline(properties.deadline()));
        setting("max-connections", () -> builder.maxConnections(properties.maxConnections()));
        properties.headers().forEach(builder::header);
        if (properties.ca() != null) {
            setting("ca", () -> builder.sslContext(PemTrust.of(properties.ca())));
        }
        return setting("headers", builder::build);
    }

    /** Applies a property; the exception names it. */
    private static <T> T setting(String name, Callable<T> apply) {
        try {
            return apply.call();
        } catch (IllegalArgumentException | IOException e) {
            throw new InvalidSettingException("fluxgate." + name, e);
        } catch (RuntimeException e) {
            throw e;
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    public FluxGateClient client() {
        return client;
    }

    /** Starts a limiter with the settings that all filters share. */
    public RequestLimiter.Builder limiter(String ruleSet) {
        FluxGateProperties.WaitForRefill waits = settings.waitForRefill();
        boolean isTrusted = !Boolean.FALSE.equals(settings.trustClientIpHeader());
        RequestLimiter.Builder builder = RequestLimiter.builder(client, ruleSet)
                .trustedProxies(isTrusted ? settings.trustedProxies() : List.of())
                .clientIpHeader(settings.clientIpHeader())
                .userHeader(settings.userHeader())
                .apiKeyHeader(settings.apiKeyHeader())
                .addHeaders(settings.includeHeaders())
                .refuseWithoutRule(settings.missingRuleBehavior() == FluxGateProperties.MissingRuleBehavior.DENY)
                .waits(!Boolean.FALSE.equals(waits.enabled()))
                .repeatDenied(Boolean.TRUE.equals(waits.enabled()))
                .maxWait(maxWait(waits))
                .maxConcurrentWaits(waits.maxConcurrentWaits())
                .listener(listener);
        return settings.ruleHeaders().isEmpty() ? builder : builder.headers(settings.ruleHeaders());
    }

    /** Creates the limiter of a filter. */
    public RequestLimiter limiter(FilterSettings filter) {
        return limiter(filter.ruleSet()).include(filter.include()).exclude(filter.exclude()).build();
    }

    private static Duration maxWait(FluxGateProperties.WaitForRefill waits) {
        if (waits.maxWaitTimeMs() != null) {
            return Duration.ofMillis(waits.maxWaitTimeMs());
        }
        return Boolean.TRUE.equals(waits.enabled()) ? Duration.ofMillis(DEFAULT_MAX_WAIT_MS) : null;
    }
}
