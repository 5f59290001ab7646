package io.fluxgate.client;

/** The client's JSON parser, for tests. */
public final class JsonDocument {
    private JsonDocument() {}

    /** @throws IllegalArgumentException if the text is not JSON */
    public static Object parse(byte[] text) {
        try {
            return Json.parse(text);
        } catch (Json.FormatException e) {
            throw new IllegalArgumentException(e);
        }
    }
}
