package io.fluxgate.client.web;

import io.fluxgate.client.Decision;
import io.fluxgate.client.Outcome;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;

/**
 * The answer to a request that is not served, as the gateway sends it.
 *
 * @param status the status
 * @param headers the headers, {@code Content-Type} included
 * @param body the body, which is ASCII; empty for a gRPC request
 */
public record Refusal(int status, Map<String, String> headers, String body) {
    private static final String PROBLEM = "application/problem+json";

    /** Returns the answer to a denied request. */
    public static Refusal of(Decision decision) {
        return new Refusal(decision.status(), withContentType(decision.headers(), PROBLEM), decision.problem());
    }

    static Refusal of(AmbiguousRequestException ambiguous) {
        // The reasons have no characters that JSON escapes.
        String body = "{\"type\":\"about:blank\",\"title\":\"Bad Request\",\"status\":400,"
                + "\"detail\":\"the request is ambiguous: " + ambiguous.getMessage() + "\"}";
        return new Refusal(400, withContentType(Map.of(), PROBLEM), body);
    }

    /** Returns the answer in gRPC's own way, trailers only, if the request is a gRPC call. */
    static Refusal of(Decision decision, String contentType) {
        if (!isGrpc(contentType)) {
            return of(decision);
        }
        Map<String, String> headers = withContentType(decision.headers(), contentType);
        boolean failedClosed = decision.status() == 503;
        if (decision.outcome() == Outcome.FORBIDDEN) {
            headers.put("grpc-status", "7");
            headers.put("grpc-message", "a rule forbids this request");
        } else if (failedClosed) {
            headers.put("grpc-status", "14");
            headers.put("grpc-message", "requests cannot be counted at the moment (failed_closed)");
        } else {
            headers.put("grpc-status", "8");
            headers.put(
                    "grpc-message",
                    decision.retryAfter()
                            .map(it -> "the quota is used up; retry after " + it.toMillis() + " ms")
                            .orElse("the quota can never allow this request"));
        }
        // A negative pushback tells the client not to try again.
        long pushback = decision.retryAfter().map(it -> it.toMillis()).orElse(-1L);
        headers.put("grpc-retry-pushback-ms", String.valueOf(pushback));
        return new Refusal(200, headers, "");
    }

    static Refusal of(AmbiguousRequestException ambiguous, String contentType) {
        if (!isGrpc(contentType)) {
            return of(ambiguous);
        }
        Map<String, String> headers = withContentType(Map.of(), contentType);
        headers.put("grpc-status", "3");
        headers.put("grpc-message", ambiguous.getMessage());
        return new Refusal(200, headers, "");
    }

    private static boolean isGrpc(String contentType) {
        return contentType != null && contentType.toLowerCase(Locale.ROOT).startsWith("application/grpc");
    }

    private static Map<String, String> withContentType(Map<String, String> headers, String contentType) {
        Map<String, String> all = new LinkedHashMap<>(headers);
        all.put("Content-Type", contentType);
        return all;
    }

    public Refusal {
        headers = Collections.unmodifiableMap(headers);
    }
}
