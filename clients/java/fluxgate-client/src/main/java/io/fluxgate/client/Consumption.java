package io.fluxgate.client;

import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * The answer to {@link Consume}.
 *
 * @param allowed whether the units were charged
 * @param remaining the whole units that are left, unless nothing is reported
 * @param retryAfter after how long the same call would pass: zero if it did, empty if it never will
 * @param outcome how it was decided, if the store or the service failed
 */
public record Consumption(
        boolean allowed, OptionalLong remaining, Optional<Duration> retryAfter, Optional<Outcome> outcome) {

    static Consumption failedOpen() {
        return new Consumption(
                true, OptionalLong.empty(), Optional.of(Duration.ZERO), Optional.of(Outcome.FAILED_OPEN));
    }

    static Consumption failedClosed() {
        return new Consumption(
                false, OptionalLong.empty(), Optional.of(Decision.FAILURE_RETRY), Optional.of(Outcome.FAILED_CLOSED));
    }

    static Consumption parse(Map<String, Object> body) {
        return new Consumption(
                Json.bool(body, "allowed"),
                Json.optionalLong(body, "remaining"),
                Json.optionalMillis(body, "retry_after_ms"),
                Optional.ofNullable(body.get("outcome")).map(Object::toString).flatMap(Outcome::parse));
    }
}
