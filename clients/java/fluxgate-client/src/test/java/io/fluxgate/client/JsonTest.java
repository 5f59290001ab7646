package io.fluxgate.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;

class JsonTest {
    private static Object parse(String text) {
        return Json.parse(text.getBytes(StandardCharsets.UTF_8));
    }

    @Test
    void documentsAreRead() {
        assertEquals(
                Map.of("a", Arrays.asList(1L, -2L, null, true, false, "x\n\"\u00e9\ud83d\ude00"), "b", Map.of()),
                parse(" { \"a\" : [1, -2, null, true, false, \"x\\n\\\"\\u00e9\\ud83d\\ude00\"], \"b\":{} } "));
        assertEquals(new BigDecimal("0.5"), parse("0.5"));
        assertEquals(new BigDecimal("5E-05"), parse("5e-05"));
        assertEquals(999_999_999_999_999_999L, parse("999999999999999999"));
    }

    @Test
    void whatIsNotJsonIsRefused() {
        for (String text : List.of(
                "", "{", "[1,]", "{\"a\"}", "{a:1}", "01", "1.", "+1", "\"\\x\"", "\"\\u00g0\"", "\"", "nul", "1 2",
                "\"\n\"", "[".repeat(40))) {
            assertThrows(Json.FormatException.class, () -> parse(text), text);
        }
        assertThrows(Json.FormatException.class, () -> Json.parse(new byte[] {'"', (byte) 0xff, '"'}));
    }

    @Test
    void randomBytesCauseNothingElse() {
        Random random = new Random(1);
        byte[] seed = "{\"allowed\":true,\"violated\":[\"a/b\"],\"limit\":10,\"x\":1.5e3,\"y\":null}".getBytes();
        for (int i = 0; i < 20_000; i++) {
            byte[] text = seed.clone();
            for (int change = random.nextInt(4); change >= 0; change--) {
                text[random.nextInt(text.length)] = (byte) random.nextInt();
            }
            try {
                Json.parse(text);
            } catch (Json.FormatException e) {
                // As it should be.
            }
        }
    }

    @Test
    void whatIsWrittenIsRead() {
        Map<String, Object> value = Map.of("a\"\\\u0001\u00e9\ud83d\ude00", List.of("x", 1L, Map.of("b", "c")));
        byte[] written = new Json.Writer().begin().member("v", value).end().bytes();
        assertEquals(Map.of("v", value), Json.parse(written));
        String half = new Json.Writer().begin().member("v", "\ud83d").end().toString();
        assertEquals("{\"v\":\"\\ud83d\"}", half);
    }
}
