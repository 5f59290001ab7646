package io.fluxgate.spring.tests;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.fluxgate.client.JsonDocument;
import io.fluxgate.testing.RawRequest;
import io.fluxgate.testing.Service;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** A service for programs, and requests to them. */
final class Limits {
    static final List<String> CONFIG = List.of(
            "listen: { api: \"${API}\" }",
            "rule_sets:",
            "  api-limits:",
            "    rules:",
            "      - { id: per-user, scope: per_user, bands: [ { id: burst, capacity: 2, window: 1m } ] }",
            "  methods:",
            "    rules:",
            "      - { id: calls, scope: per_user, bands: [ { id: burst, capacity: 1, window: 1m } ] }",
            "  posts:",
            "    rules:",
            "      - { id: posts, match: { methods: [POST] }, scope: per_user, bands: [ { capacity: 1, window: 1m } ] }",
            "  refills:",
            "    rules:",
            "      - { id: fast, scope: per_user, bands: [ { capacity: 1, window: 300ms } ] }",
            "  slots:",
            "    rules:",
            "      - { id: running, scope: per_user, algorithm: concurrency, bands: [ { capacity: 1 } ] }",
            "  tenants:",
            "    rules:",
            "      - { id: per-tenant, key: [\"attr:tenant\"], bands: [ { capacity: 1, window: 1m } ] }",
            "  routes:",
            "    rules:",
            "      - { id: per-route, key: [user, \"attr:route\"], bands: [ { capacity: 1, window: 1m } ] }");

    private Limits() {}

    static Service start() throws IOException {
        return Service.start(CONFIG);
    }

    /** Sends a request with headers, given as name and value in turn. */
    static RawRequest.Response get(int port, String path, String... headers) throws IOException {
        List<List<?>> lines = new ArrayList<>();
        for (int i = 0; i < headers.length; i += 2) {
            lines.add(List.of(headers[i], headers[i + 1]));
        }
        return RawRequest.send(port, "GET", path, lines).finish();
    }

    /** Checks a Retry-After, which is less than this by what the requests before took. */
    static void assertRetryAfter(int most, RawRequest.Response response) {
        int seconds = Integer.parseInt(response.headers().get("retry-after"));
        assertTrue(seconds <= most && seconds > most / 2, () -> "retry after " + seconds + " s");
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> json(RawRequest.Response response) {
        return (Map<String, Object>) JsonDocument.parse(response.text().getBytes(StandardCharsets.UTF_8));
    }
}
