package io.fluxgate.client.web;

import io.fluxgate.client.CheckOptions;
import io.fluxgate.client.Decision;
import io.fluxgate.client.FluxGateClient;
import io.fluxgate.client.InvalidCallException;
import io.fluxgate.client.OnError;
import io.fluxgate.client.Outcome;
import io.fluxgate.client.RequestContext;
import io.fluxgate.client.WaitPolicy;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;

/**
 * Limits the requests of an HTTP server, as the gateway does. The filters for Spring are made of it,
 * and so can be those for other servers:
 *
 * <ol>
 *   <li>{@link #read} returns what rules may read of a request;
 *   <li>the program may change it;
 *   <li>{@link #admit} decides, and waits if the request has to;
 *   <li>the filter refuses or serves the request, and closes the {@link Admission} when the response
 *       has ended.
 * </ol>
 */
public final class RequestLimiter {
    private static final System.Logger LOG = System.getLogger(RequestLimiter.class.getName());

    private final FluxGateClient client;
    private final String ruleSet;
    private final List<PathPattern> include;
    private final List<PathPattern> exclude;
    private final TrustedProxies trustedProxies;
    private final String clientIpHeader;
    private final String userHeader;
    private final String apiKeyHeader;
    private final HeaderReader headerReader;
    private final boolean addsHeaders;
    private final boolean refusesWithoutRule;
    private final CheckOptions options;
    private final WaitPolicy waits;
    private final DecisionListener listener;
    private final AtomicBoolean hasLoggedInvalidCall = new AtomicBoolean();

    private RequestLimiter(Builder builder) {
        client = builder.client;
        ruleSet = builder.ruleSet;
        include = PathPattern.all(builder.include);
        exclude = PathPattern.all(builder.exclude);
        trustedProxies = new TrustedProxies(builder.trustedProxies);
        clientIpHeader = builder.clientIpHeader.toLowerCase(Locale.ROOT);
        userHeader = builder.userHeader.toLowerCase(Locale.ROOT);
        apiKeyHeader = builder.apiKeyHeader.toLowerCase(Locale.ROOT);
        List<String> counted = new ArrayList<>(List.of(userHeader, apiKeyHeader));
        if (!trustedProxies.isEmpty()) {
            counted.add(clientIpHeader);
        }
        if (builder.headers != null) {
            counted.addAll(builder.headers);
        }
        headerReader = new HeaderReader(counted, builder.headers);
        addsHeaders = builder.addsHeaders;
        refusesWithoutRule = builder.refusesWithoutRule;
        options = CheckOptions.DEFAULT.withWaits(builder.waits);
        waits = new BoundedWaits(builder.maxConcurrentWaits, builder.maxWait, builder.repeatsDenied);
        listener = builder.listener;
    }

    public static Builder builder(FluxGateClient client, String ruleSet) {
        return new Builder(client, ruleSet);
    }

    public String ruleSet() {
        return ruleSet;
    }

    /** Reads a request. */
    public Reading read(RequestHead head) {
        try {
            RequestPath path = RequestPath.read(head.path());
            boolean isExcluded = exclude.stream().anyMatch(pattern -> path.both(pattern::matches));
            boolean isIncluded = include.stream().anyMatch(pattern -> path.either(pattern::matches));
            if (isExcluded || !isIncluded) {
                return Reading.SKIPPED;
            }
            return new Reading(context(head, path), null, contentType(head));
        } catch (AmbiguousRequestException e) {
            return new Reading(null, Refusal.of(e, contentType(head)), null);
        }
    }

    /**
     * Decides a request that was read, and waits if it has to. Cancelling the result gives up the
     * wait and the decision. It fails only if the service does, and {@link OnError} is to raise.
     */
    public CompletableFuture<Admission> admit(Reading reading, RequestContext context) {
        long began = System.nanoTime();
        CompletableFuture<Decision> decided = client.awaitAsync(ruleSet, context, options, waits);
        CompletableFuture<Admission> admitted = new CompletableFuture<>();
        decided.handle(this::orOnError).whenComplete((decision, error) -> {
            if (error != null) {
                admitted.completeExceptionally(error instanceof CompletionException ? error.getCause() : error);
                return;
            }
            listener.decided(ruleSet, decision, Duration.ofNanos(System.nanoTime() - began));
            Admission admission = conclude(decision, reading.contentType);
            if (!admitted.complete(admission)) {
                admission.close();
            }
        });
        admitted.whenComplete((admission, error) -> {
            if (admitted.isCancelled()) {
                decided.cancel(false);
            }
        });
        return admitted;
    }

    private Admission conclude(Decision decision, String contentType) {
        Decision last = decision;
        if (refusesWithoutRule && decision.outcome() == Outcome.NO_RULE) {
            last = decision.deniedWithoutRule();
        }
        if (!last.allowed()) {
            Refusal refusal = Refusal.of(last, contentType);
            return Admission.refused(last, refusal);
        }
        return Admission.admitted(last, addsHeaders, last.hold().isPresent() ? client.keep(last) : null);
    }

    /** A call that the service refuses as wrong is a failure here: the client's request caused it. */
    private Decision orOnError(Decision decision, Throwable error) {
        if (error == null) {
            return decision;
        }
        Throwable cause = error instanceof CompletionException ? error.getCause() : error;
        if (!(cause instanceof InvalidCallException)) {
            throw new CompletionException(cause);
        }
        if (hasLoggedInvalidCall.compareAndSet(false, true)) {
            String service = "FluxGate at " + client.address().toString().replaceFirst("/$", "");
            String message = " rejects the calls of the middleware: " + cause.getMessage() + "; ";
            LOG.log(Level.ERROR, service + message + client.onError().effect());
        }
        return Decision.failed(client.onError()).orElseThrow(() -> new CompletionException(cause));
    }

    private RequestContext.Builder context(RequestHead head, RequestPath path) throws AmbiguousRequestException {
        Methods.check(head.method());
        Map<String, List<String>> lines = headerReader.lines(head);
        RequestContext.Builder context = RequestContext.builder()
                .method(head.method())
                .path(path.raw(), path.other())
                .user(headerReader.only(lines, userHeader))
                .apiKey(headerReader.only(lines, apiKeyHeader))
                .headers(headerReader.toSend(lines));
        IpAddress peer = head.peer() == null ? null : IpAddress.parse(withoutZone(head.peer()));
        IpAddress client = trustedProxies.client(peer, clientIpHeader, lines.getOrDefault(clientIpHeader, List.of()));
        return context.ip(client == null ? null : client.toString());
    }

    /** Returns an address such as {@code fe80::1%eth0} without its zone. */
    private static String withoutZone(String address) {
        int zone = address.indexOf('%');
        return zone < 0 ? address : address.substring(0, zone);
    }

    private static String contentType(RequestHead head) {
        for (Map.Entry<String, String> header : head.headers()) {
            if (header.getKey().equalsIgnoreCase("content-type")) {
                return header.getValue();
            }
        }
        return null;
    }

    /** What was read of a request. */
    public static final class Reading {
        private static final Reading SKIPPED = new Reading(null, null, null);

        private final RequestContext.Builder context;
        private final Refusal refusal;
        private final String contentType;

        private Reading(RequestContext.Builder context, Refusal refusal, String contentType) {
            this.context = context;
            this.refusal = refusal;
            this.contentType = contentType;
        }

        /** Returns what is known of a call that belongs to no request: nothing. */
        public static Reading none() {
            return new Reading(RequestContext.builder(), null, null);
        }

        /** Returns what rules may read, or nothing if the request is not limited or is refused. */
        public Optional<RequestContext.Builder> context() {
            return Optional.ofNullable(context);
        }

        /** Returns how to answer a request that is ambiguous. */
        public Optional<Refusal> refusal() {
            return Optional.ofNullable(refusal);
        }
    }

    /** Observes decisions, for example to count them. */
    @FunctionalInterface
    public interface DecisionListener {
        void decided(String ruleSet, Decision decision, Duration duration);
    }

    /** Lets a bounded number of requests wait, each for a bounded time. */
    private static final class BoundedWaits implements WaitPolicy {
        private final Semaphore permits;
        /** Null: only the rule bounds the time. */
        private final Duration longest;
        private final boolean repeatsDenied;

        BoundedWaits(int permits, Duration longest, boolean repeatsDenied) {
            this.permits = new Semaphore(permits);
            this.longest = longest;
            this.repeatsDenied = repeatsDenied;
        }

        @Override
        public boolean begin(Duration wait) {
            return (longest == null || wait.compareTo(longest) <= 0) && permits.tryAcquire();
        }

        @Override
        public void end() {
            permits.release();
        }

        @Override
        public boolean repeatsDenied() {
            return repeatsDenied;
        }
    }

    /** Builds a limiter. */
    public static final class Builder {
        private final FluxGateClient client;
        private final String ruleSet;
        private List<String> include = List.of("/**");
        private List<String> exclude = List.of();
        private List<String> trustedProxies = List.of();
        private String clientIpHeader = "X-Forwarded-For";
        private String userHeader = "X-User-Id";
        private String apiKeyHeader = "X-API-Key";
        private Set<String> headers;
        private boolean addsHeaders = true;
        private boolean refusesWithoutRule;
        private boolean waits = true;
        private boolean repeatsDenied;
        private Duration maxWait;
        private int maxConcurrentWaits = 100;
        private DecisionListener listener = (ruleSet, decision, duration) -> {};

        private Builder(FluxGateClient client, String ruleSet) {
            this.client = client;
            this.ruleSet = ruleSet;
        }

        /** Sets the patterns of the paths that are limited: all by default. */
        public Builder include(List<String> patterns) {
            include = patterns;
            return this;
        }

        /** Sets the patterns of the paths that are not limited. */
        public Builder exclude(List<String> patterns) {
            exclude = patterns;
            return this;
        }

        /** Sets the networks of proxies whose header is read: none by default. */
        public Builder trustedProxies(List<String> networks) {
            trustedProxies = networks;
            return this;
        }

        /** Sets the header in which they report it: {@code X-Forwarded-For} by default. */
        public Builder clientIpHeader(String name) {
            clientIpHeader = name;
            return this;
        }

        /** Sets the header with the user: {@code X-User-Id} by default. */
        public Builder userHeader(String name) {
            userHeader = name;
            return this;
        }

        /** Sets the header with the API key: {@code X-API-Key} by default. */
        public Builder apiKeyHeader(String name) {
            apiKeyHeader = name;
            return this;
        }

        /**
         * Sends these headers only: name those that rules read. By default all are sent except
         * {@code Authorization}, cookies and hop-by-hop headers.
         */
        public Builder headers(List<String> names) {
            headers = names.stream().map(it -> it.toLowerCase(Locale.ROOT)).collect(Collectors.toSet());
            return this;
        }

        /** Sets whether limit headers are added to the responses of requests that are served. */
        public Builder addHeaders(boolean value) {
            addsHeaders = value;
            return this;
        }

        /** Sets whether requests are refused that no rule applies to. */
        public Builder refuseWithoutRule(boolean value) {
            refusesWithoutRule = value;
            return this;
        }

        /** Sets whether requests wait if their rule lets them. */
        public Builder waits(boolean value) {
            waits = value;
            return this;
        }

        /** Sets whether denied requests wait until they would pass, and are decided once more. */
        public Builder repeatDenied(boolean value) {
            repeatsDenied = value;
            return this;
        }

        /** Sets how long a request waits at most, in addition to what its rule says. */
        public Builder maxWait(Duration value) {
            maxWait = value;
            return this;
        }

        /** Sets how many requests wait at a time: 100 by default. */
        public Builder maxConcurrentWaits(int value) {
            maxConcurrentWaits = value;
            return this;
        }

        public Builder listener(DecisionListener value) {
            listener = value;
            return this;
        }

        public RequestLimiter build() {
            return new RequestLimiter(this);
        }
    }
}
