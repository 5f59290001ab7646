package io.fluxgate.spring.tests;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Counts how often a handler has run for each request. */
final class Runs {
    private final Map<String, Integer> byId = new ConcurrentHashMap<>();

    void record(String id) {
        byId.merge(id == null ? "?" : id, 1, Integer::sum);
    }

    void clear() {
        byId.clear();
    }

    Map<String, Integer> all() {
        return byId;
    }
}
