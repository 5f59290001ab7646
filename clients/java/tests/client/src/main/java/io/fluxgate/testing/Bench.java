package io.fluxgate.testing;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Compares how long calls take. */
public final class Bench {
    private static final int ROUNDS = 5;
    private static final int CALLS = 2000;

    /** A service with one rule that never denies. */
    private static final List<String> CONFIG = List.of(
            "listen: { api: \"${API}\" }",
            "rule_sets:",
            "  units:",
            "    rules:",
            "      - { id: units, scope: per_user, bands: [ { capacity: 1000000000, window: 1d } ] }");

    private final Map<String, Call> calls = new LinkedHashMap<>();

    /** A call that is measured. */
    public interface Call {
        void run() throws Exception;
    }

    public static Service startService() throws IOException {
        return Service.start(CONFIG);
    }

    public Bench add(String name, Call call) {
        calls.put(name, call);
        return this;
    }

    /** Adds one plain request by the HTTP library of the client, with a body like the client's. */
    public Bench addPlainRequest(Service service) {
        HttpClient http =
                HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        String body = "{\"rule_set\":\"units\",\"ip\":\"127.0.0.1\",\"user\":\"ann\",\"method\":\"GET\",\"path\":\"/x\","
                + "\"headers\":{\"host\":\"localhost\",\"x-user-id\":\"ann\"}}";
        HttpRequest request = HttpRequest.newBuilder(URI.create(service.url() + "/v1/check?status=true"))
                .header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString(body))
                .build();
        return add("plain", () -> http.send(request, HttpResponse.BodyHandlers.ofByteArray()));
    }

    /**
     * Returns the median of each call in microseconds. The calls take turns, so that a busy moment
     * of the machine meets all of them.
     */
    public Map<String, Double> medians() throws Exception {
        Map<String, double[]> byRound = new LinkedHashMap<>();
        // The first rounds warm up.
        for (int round = -3; round < ROUNDS; round++) {
            Map<String, double[]> micros = new LinkedHashMap<>();
            for (int i = 0; i < CALLS; i++) {
                for (Map.Entry<String, Call> call : calls.entrySet()) {
                    long began = System.nanoTime();
                    call.getValue().run();
                    double took = (System.nanoTime() - began) / 1000.0;
                    micros.computeIfAbsent(call.getKey(), name -> new double[CALLS])[i] = took;
                }
            }
            if (round >= 0) {
                int index = round;
                micros.forEach((name, values) ->
                        byRound.computeIfAbsent(name, it -> new double[ROUNDS])[index] = middle(values));
            }
        }
        Map<String, Double> medians = new LinkedHashMap<>();
        byRound.forEach((name, values) -> medians.put(name, middle(values)));
        return medians;
    }

    private static double middle(double[] values) {
        double[] sorted = values.clone();
        Arrays.sort(sorted);
        return sorted[sorted.length / 2];
    }
}
