package io.fluxgate.testing;

import io.fluxgate.client.JsonDocument;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.util.List;
import java.util.Map;

/** The cases of clients/conformance.json. */
public final class Cases {
    private final Map<String, Object> document;

    @SuppressWarnings("unchecked")
    public Cases() {
        try {
            byte[] text = Files.readAllBytes(Repository.root().resolve("clients/conformance.json"));
            document = (Map<String, Object>) JsonDocument.parse(text);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @SuppressWarnings("unchecked")
    public List<Map<String, Object>> of(String kind) {
        List<Map<String, Object>> cases = (List<Map<String, Object>>) document.get("cases");
        return cases.stream().filter(it -> kind.equals(it.get("kind"))).toList();
    }

    @SuppressWarnings("unchecked")
    public List<String> config(Map<String, Object> one) {
        Map<String, List<String>> configs = (Map<String, List<String>>) document.get("configs");
        return configs.get(one.getOrDefault("config", "main"));
    }

    public List<String> config(String name) {
        return config(Map.of("config", name));
    }
}
