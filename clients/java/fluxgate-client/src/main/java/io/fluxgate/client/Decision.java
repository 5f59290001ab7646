package io.fluxgate.client;

import java.net.http.HttpHeaders;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.TreeMap;

/** The answer to a check. */
public final class Decision {
    static final Duration FAILURE_RETRY = Duration.ofSeconds(1);
    /** How the service marks a check whose rule set does not exist. */
    static final String MISSING = "missing";

    private static final List<String> LIMIT_HEADERS = List.of(
            "X-RateLimit-Limit",
            "X-RateLimit-Remaining",
            "X-RateLimit-Reset",
            "RateLimit-Policy",
            "RateLimit",
            "Retry-After");
    private static final String QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded";
    private static final String REDUCED_CAPACITY =
            "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
    private static final int OK = 200;
    private static final int TOO_MANY_REQUESTS = 429;
    private static final int SERVICE_UNAVAILABLE = 503;

    private final int status;
    private final Map<String, String> headers;
    /** The members of the answer. */
    private final Map<String, Object> body;

    private final boolean allowed;
    private final Outcome outcome;
    private final OptionalLong limit;
    private final OptionalLong remaining;
    private final Optional<Duration> retryAfter;
    private final Duration resetAfter;
    private final Duration delay;
    private final List<String> violated;
    private final Duration holdFor;
    private final boolean isRuleSetMissing;

    private Decision(int status, Map<String, String> headers, Map<String, Object> body) {
        this(status, headers, body, false);
    }

    private Decision(int status, Map<String, String> headers, Map<String, Object> body, boolean isRuleSetMissing) {
        this.status = status;
        this.headers = Collections.unmodifiableMap(headers);
        this.body = body;
        this.isRuleSetMissing = isRuleSetMissing;
        allowed = Json.bool(body, "allowed");
        outcome = Json.optionalString(body, "outcome")
                .flatMap(Outcome::parse)
                .filter(it -> it.isConsistentWith(allowed))
                .orElseThrow(() -> new Json.FormatException("the outcome is unknown"));
        limit = Json.optionalLong(body, "limit");
        remaining = Json.optionalLong(body, "remaining");
        retryAfter = Json.optionalMillis(body, "retry_after_ms");
        resetAfter = Json.millis(body, "reset_after_ms");
        delay = Json.millis(body, "delay_ms");
        violated = Json.list(body, "violated").stream().map(Object::toString).toList();
        boolean isHeld = Json.optionalString(body, "hold").isPresent();
        holdFor = isHeld ? Json.millis(body, "hold_ms") : Duration.ZERO;
        Json.optionalString(body, "rule");
        Json.optionalString(body, "band");
        Json.optionalString(body, "reservation");
    }

    /** Reads the answer of {@code /v1/check?status=true}. */
    static Decision parse(Reply reply) {
        HttpHeaders received = reply.headers();
        Map<String, String> headers = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
        for (String name : LIMIT_HEADERS) {
            List<String> lines = received.allValues(name);
            if (!lines.isEmpty()) {
                headers.put(name, String.join(", ", lines));
            }
        }
        return new Decision(reply.status(), headers, reply.decided(), reply.isRuleSetMissing());
    }

    /** Reads a decision of a batch, which has no status and no headers, but a member in place of one. */
    static Decision parse(Map<String, Object> body) {
        Decision decision = new Decision(OK, new TreeMap<>(), body);
        boolean isMissing = MISSING.equals(body.get("rule_set"));
        return new Decision(decision.expectedStatus(), new TreeMap<>(), body, isMissing);
    }

    /** Returns what is decided if the service fails, unless the call is to throw. */
    public static Optional<Decision> failed(OnError onError) {
        return switch (onError) {
            case ALLOW -> Optional.of(failedOpen());
            case DENY -> Optional.of(failedClosed());
            case RAISE -> Optional.empty();
        };
    }

    private static Decision failedOpen() {
        return local(OK, true, Outcome.FAILED_OPEN, 0L, Map.of());
    }

    private static Decision failedClosed() {
        Map<String, Object> problem = Map.of(
                "type", REDUCED_CAPACITY,
                "title", "Requests cannot be counted at the moment");
        Decision decision =
                local(SERVICE_UNAVAILABLE, false, Outcome.FAILED_CLOSED, FAILURE_RETRY.toMillis(), problem);
        return decision.withHeader("Retry-After", String.valueOf(FAILURE_RETRY.toSeconds()));
    }

    /** Returns the decision on a request that is too large for the service. */
    static Decision tooLarge() {
        Map<String, Object> problem = Map.of(
                "type", QUOTA_EXCEEDED,
                "title", "This request can never pass the limit",
                "detail", "it is too large to be counted");
        return local(TOO_MANY_REQUESTS, false, Outcome.NEVER, null, problem);
    }

    /**
     * Returns this decision as a denial, for a program that refuses what no rule decides: as the
     * service does with {@code on_missing_rule_set: deny}. The problem says that there is no rule.
     */
    public Decision deniedWithoutRule() {
        Map<String, Object> problem = Map.of(
                "type", QUOTA_EXCEEDED,
                "title", "The quota for these requests is used up",
                "detail", isRuleSetMissing ? "its rule set does not exist" : "no rule applies to it");
        return local(TOO_MANY_REQUESTS, false, Outcome.DENIED, null, problem);
    }

    private static Decision local(
            int status, boolean allowed, Outcome outcome, Long retryAfterMs, Map<String, Object> problem) {
        Map<String, Object> body = new TreeMap<>(problem);
        body.put("allowed", allowed);
        body.put("outcome", outcome.toString());
        body.put("limit", null);
        body.put("remaining", null);
        body.put("retry_after_ms", retryAfterMs);
        body.put("reset_after_ms", 0L);
        body.put("delay_ms", 0L);
        body.put("violated", List.of());
        return new Decision(status, new TreeMap<>(String.CASE_INSENSITIVE_ORDER), body);
    }

    private Decision withHeader(String name, String value) {
        Map<String, String> more = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
        more.putAll(headers);
        more.put(name, value);
        return new Decision(status, more, body);
    }

    /** Returns whether the request may proceed, after {@link #delay()}. */
    public boolean allowed() {
        return allowed;
    }

    public Outcome outcome() {
        return outcome;
    }

    /** Returns whether the service has no rule set of the name. */
    public boolean isRuleSetMissing() {
        return isRuleSetMissing;
    }

    /** Returns the rule of the reported band, if there is one. */
    public Optional<String> rule() {
        return Json.optionalString(body, "rule");
    }

    /**
     * Returns the reported band: for a denial the one with the longest wait, otherwise the one with
     * the least left.
     */
    public Optional<String> band() {
        return Json.optionalString(body, "band");
    }

    /** Returns the capacity of the reported band. */
    public OptionalLong limit() {
        return limit;
    }

    /** Returns the whole units left in the reported band after the decision. */
    public OptionalLong remaining() {
        return remaining;
    }

    /**
     * Returns after how long the same request would pass: zero if it did, <em>empty if it never
     * will</em>.
     */
    public Optional<Duration> retryAfter() {
        return retryAfter;
    }

    /** Returns how long until the reported band is full again. */
    public Duration resetAfter() {
        return resetAfter;
    }

    /** Returns how long an allowed request has to wait. */
    public Duration delay() {
        return delay;
    }

    /**
     * Returns every band that denied, as {@code rule/band}; for an allowed request those of shadow
     * rules.
     */
    public List<String> violated() {
        return violated;
    }

    /** Returns the id of the hold, if the charge is held. {@link FluxGateClient#keep} renews it. */
    public Optional<String> hold() {
        return Json.optionalString(body, "hold");
    }

    /** Returns within which time the hold must be renewed, or zero without a hold. */
    public Duration holdFor() {
        return holdFor;
    }

    /** Returns the id by which the wait can be cancelled. */
    public Optional<String> reservation() {
        return Json.optionalString(body, "reservation");
    }

    /** Returns the status that the gateway sends: 200, 429, 503, or that of the rule that forbids. */
    public int status() {
        return status;
    }

    /**
     * Returns the limit headers as received ({@code X-RateLimit-*}, {@code RateLimit},
     * {@code RateLimit-Policy}, {@code Retry-After}). Names are found in any case.
     */
    public Map<String, String> headers() {
        return headers;
    }

    /** Returns the body of the gateway's refusal: {@code application/problem+json} (RFC 9457). */
    public String problem() {
        Json.Writer json = new Json.Writer().begin();
        json.member("type", body.getOrDefault("type", QUOTA_EXCEEDED));
        json.member("title", body.getOrDefault("title", "The quota for these requests is used up"));
        json.member("status", status);
        json.optional("detail", body.get("detail"));
        json.member("violated-policies", violated);
        if (status == SERVICE_UNAVAILABLE) {
            json.member("outcome", outcome.toString());
        }
        json.member("retry_after_ms", body.get("retry_after_ms"));
        return json.end().toString();
    }

    @Override
    public String toString() {
        StringBuilder text = new StringBuilder(outcome.toString());
        rule().ifPresent(rule -> text.append(" by ").append(rule));
        band().ifPresent(band -> text.append('/').append(band));
        if (remaining.isPresent() && limit.isPresent()) {
            text.append(", ").append(remaining.getAsLong()).append(" of ").append(limit.getAsLong()).append(" left");
        }
        if (!allowed) {
            text.append(retryAfter.map(it -> ", retry after " + it.toMillis() + " ms").orElse(", never passes"));
        }
        return text.toString();
    }

    private int expectedStatus() {
        if (allowed) {
            return OK;
        }
        return switch (outcome) {
            case FORBIDDEN -> 403;
            case FAILED_CLOSED -> SERVICE_UNAVAILABLE;
            default -> TOO_MANY_REQUESTS;
        };
    }
}
