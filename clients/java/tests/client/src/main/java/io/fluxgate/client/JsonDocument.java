package io.fluxgate.client;

/** The reader of the client, for tests. */
public final class JsonDocument {
    private JsonDocument() {}

    public static Object parse(byte[] document) {
        return Json.parse(document);
    }
}
