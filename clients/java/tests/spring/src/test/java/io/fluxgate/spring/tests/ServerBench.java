package io.fluxgate.spring.tests;

import io.fluxgate.testing.Bench;
import io.fluxgate.testing.ServerUnderTest;
import io.fluxgate.testing.Service;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Map;
import java.util.function.Supplier;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.springframework.boot.SpringBootVersion;

/**
 * Compares what the filter adds to a request with one plain request to the service: the difference
 * between a path that is limited and one that is excluded.
 */
class ServerBench {
    enum Kind {
        SERVLET(ServletServer::new),
        WEBFLUX(WebFluxServer::new),
        GATEWAY(GatewayServer::new);

        private final Supplier<ServerUnderTest> start;

        Kind(Supplier<ServerUnderTest> start) {
            this.start = start;
        }
    }

    @ParameterizedTest
    @EnumSource
    void compare(Kind kind) throws Exception {
        try (Service service = Bench.startService();
                ServerUnderTest server = kind.start.get()) {
            server.use(Map.of(
                    "fluxgate.url",
                    service.url(),
                    "fluxgate.deadline",
                    "5s",
                    "fluxgate.ratelimit.default-rule-set-id",
                    "units",
                    "fluxgate.ratelimit.exclude-patterns",
                    "/excluded"));
            HttpClient http =
                    HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
            Map<String, Double> medians = new Bench()
                    .addPlainRequest(service)
                    .add("excluded", () -> get(http, server, "/excluded", false))
                    .add("limited", () -> get(http, server, "/limited", true))
                    .medians();
            double plain = medians.get("plain");
            double added = medians.get("limited") - medians.get("excluded");
            System.out.printf(
                    "bench %s on Boot %s: plain request %.1f us, excluded %.1f us, limited %.1f us,"
                            + " filter %.1f us: ratio %.2f%n",
                    kind, SpringBootVersion.getVersion(), plain, medians.get("excluded"), medians.get("limited"), added,
                    added / plain);
            server.unuse();
        }
    }

    private static void get(HttpClient http, ServerUnderTest server, String path, boolean isLimited) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + server.port() + path))
                .header("X-User-Id", "ann")
                .build();
        HttpResponse<byte[]> response = http.send(request, HttpResponse.BodyHandlers.ofByteArray());
        boolean hasLimit = response.headers().firstValue("X-RateLimit-Limit").isPresent();
        if (response.statusCode() != 200 || hasLimit != isLimited) {
            throw new AssertionError(path + ": " + response.statusCode() + " " + response.headers());
        }
    }
}
