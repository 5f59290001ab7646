package io.fluxgate.testing;

import io.fluxgate.client.FluxGateClient;
import io.fluxgate.client.RequestContext;
import io.fluxgate.client.web.Admission;
import io.fluxgate.client.web.RequestHead;
import io.fluxgate.client.web.RequestLimiter;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/** Prints how long a decision takes, and how that compares with one plain request. */
public final class Bench {
    private static final int ROUNDS = 5;
    private static final int CALLS = 3000;

    private interface Call {
        void run() throws Exception;
    }

    private Bench() {}

    public static void main(String[] arguments) throws Exception {
        List<String> config = List.of(
                "listen: { api: \"${API}\" }",
                "rule_sets:",
                "  units:",
                "    rules:",
                "      - { id: units, scope: per_user, bands: [ { capacity: 1000000000, window: 1d } ] }");
        try (Service service = Service.start(config);
                FluxGateClient client = FluxGateClient.builder(service.url())
                        .deadline(Duration.ofSeconds(5))
                        .build()) {
            HttpClient http =
                    HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
            String body = "{\"rule_set\":\"units\",\"user\":\"ann\",\"path\":\"/api/x\"}";
            HttpRequest plain = HttpRequest.newBuilder(URI.create(service.url() + "/v1/check?status=true"))
                    .header("Content-Type", "application/json")
                    .POST(HttpRequest.BodyPublishers.ofString(body))
                    .build();
            RequestContext context =
                    RequestContext.builder().user("ann").path("/api/x").build();
            RequestLimiter limiter = RequestLimiter.builder(client, "units").build();
            RequestHead head = new RequestHead(
                    "GET",
                    "/api/x",
                    List.of(Map.entry("Host", "localhost"), Map.entry("X-User-Id", "ann")),
                    "127.0.0.1");
            Call[] calls = {
                () -> http.send(plain, HttpResponse.BodyHandlers.ofByteArray()),
                () -> client.check("units", context),
                () -> {
                    RequestLimiter.Reading reading = limiter.read(head);
                    Admission admission = limiter.admit(
                                    reading, reading.context().orElseThrow().build())
                            .get();
                    admission.close();
                },
            };
            double[][] medians = new double[calls.length][ROUNDS];
            // The first rounds warm up.
            for (int round = -2; round < ROUNDS; round++) {
                for (int i = 0; i < calls.length; i++) {
                    double median = median(calls[i]);
                    if (round >= 0) {
                        medians[i][round] = median;
                    }
                }
            }
            String[] names = {"plain request", "check", "middleware"};
            double base = middle(medians[0]);
            for (int i = 0; i < calls.length; i++) {
                double median = middle(medians[i]);
                System.out.printf("%-14s p50 %6.1f us, ratio %.2f%n", names[i], median, median / base);
            }
        }
    }

    private static double median(Call call) throws Exception {
        double[] micros = new double[CALLS];
        for (int i = 0; i < CALLS; i++) {
            long began = System.nanoTime();
            call.run();
            micros[i] = (System.nanoTime() - began) / 1000.0;
        }
        return middle(micros);
    }

    private static double middle(double[] values) {
        double[] sorted = values.clone();
        Arrays.sort(sorted);
        return sorted[sorted.length / 2];
    }
}
