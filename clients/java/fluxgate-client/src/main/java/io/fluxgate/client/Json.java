package io.fluxgate.client;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.regex.Pattern;

/** As much JSON as the API needs, so that the client needs no library. */
final class Json {
    private static final int MAX_DEPTH = 32;

    private Json() {}

    /** A text that is not JSON, or not the JSON that was expected. */
    static final class FormatException extends RuntimeException {
        private static final long serialVersionUID = 1;

        FormatException(String message) {
            super(message);
        }
    }

    /**
     * Parses a document into maps, lists, strings, {@link Long} or {@link BigDecimal}, booleans and
     * nulls.
     */
    static Object parse(byte[] document) {
        try {
            // The decoder of `new String` would replace invalid bytes.
            String text = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(document)).toString();
            return new Reader(text).document();
        } catch (CharacterCodingException e) {
            throw new FormatException("not UTF-8");
        }
    }

    static Map<String, Object> parseObject(byte[] document) {
        return object(parse(document));
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> object(Object value) {
        if (value instanceof Map) {
            return (Map<String, Object>) value;
        }
        throw new FormatException("an object was expected");
    }

    static List<?> list(Map<String, Object> object, String name) {
        if (object.get(name) instanceof List<?> list) {
            return list;
        }
        throw new FormatException("`" + name + "` is no list");
    }

    static boolean bool(Map<String, Object> object, String name) {
        if (object.get(name) instanceof Boolean value) {
            return value;
        }
        throw new FormatException("`" + name + "` is neither true nor false");
    }

    static long number(Map<String, Object> object, String name) {
        if (object.get(name) instanceof Long value && value >= 0) {
            return value;
        }
        throw new FormatException("`" + name + "` is no whole number");
    }

    static Duration millis(Map<String, Object> object, String name) {
        return Duration.ofMillis(number(object, name));
    }

    static OptionalLong optionalLong(Map<String, Object> object, String name) {
        return isNull(object, name) ? OptionalLong.empty() : OptionalLong.of(number(object, name));
    }

    static Optional<Duration> optionalMillis(Map<String, Object> object, String name) {
        return isNull(object, name) ? Optional.empty() : Optional.of(millis(object, name));
    }

    static Optional<String> optionalString(Map<String, Object> object, String name) {
        Object value = object.get(name);
        if (value == null || value instanceof String) {
            return Optional.ofNullable((String) value);
        }
        throw new FormatException("`" + name + "` is no string");
    }

    private static boolean isNull(Map<String, Object> object, String name) {
        // A member that is missing is not the same as one that is null: null may mean "never".
        if (!object.containsKey(name)) {
            throw new FormatException("`" + name + "` is missing");
        }
        return object.get(name) == null;
    }

    /** Writes one object. */
    static final class Writer {
        private final StringBuilder text = new StringBuilder(256);

        Writer begin() {
            text.append('{');
            return this;
        }

        Writer end() {
            text.append('}');
            return this;
        }

        Writer member(String name, Object value) {
            if (text.charAt(text.length() - 1) != '{') {
                text.append(',');
            }
            string(name);
            text.append(':');
            value(value);
            return this;
        }

        /** Writes a member unless it is null or an empty map. */
        Writer optional(String name, Object value) {
            boolean absent = value == null || value instanceof Map<?, ?> map && map.isEmpty();
            return absent ? this : member(name, value);
        }

        byte[] bytes() {
            return toString().getBytes(StandardCharsets.UTF_8);
        }

        @Override
        public String toString() {
            return text.toString();
        }

        private void value(Object value) {
            if (value instanceof Map<?, ?> map) {
                String separator = "{";
                for (Map.Entry<?, ?> entry : map.entrySet()) {
                    text.append(separator);
                    string(entry.getKey().toString());
                    text.append(':');
                    value(entry.getValue());
                    separator = ",";
                }
                text.append(map.isEmpty() ? "{}" : "}");
            } else if (value instanceof List<?> list) {
                text.append('[');
                String separator = "";
                for (Object item : list) {
                    text.append(separator);
                    value(item);
                    separator = ",";
                }
                text.append(']');
            } else if (value instanceof Writer object) {
                text.append(object.text);
            } else if (value instanceof BigDecimal number) {
                text.append(number.toPlainString());
            } else if (value == null || value instanceof Number || value instanceof Boolean) {
                text.append(value);
            } else {
                string(value.toString());
            }
        }

        private void string(String value) {
            text.append('"');
            for (int i = 0; i < value.length(); i++) {
                char c = value.charAt(i);
                if (c == '"' || c == '\\') {
                    text.append('\\').append(c);
                } else if (c < ' ' || Character.isSurrogate(c) && !isPaired(value, i)) {
                    // Encoding half of a pair would turn it into a question mark.
                    text.append(String.format("\\u%04x", (int) c));
                } else {
                    text.append(c);
                }
            }
            text.append('"');
        }

        private static boolean isPaired(String value, int at) {
            return Character.isHighSurrogate(value.charAt(at))
                    ? at + 1 < value.length() && Character.isLowSurrogate(value.charAt(at + 1))
                    : at > 0 && Character.isHighSurrogate(value.charAt(at - 1));
        }
    }

    private static final class Reader {
        private static final Pattern NUMBER =
                Pattern.compile("-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]{1,3})?");
        private static final Pattern LONG = Pattern.compile("-?[0-9]{1,18}");

        private final String text;
        private int at;

        Reader(String text) {
            this.text = text;
        }

        Object document() {
            Object value = value(0);
            if (peek() != -1) {
                throw unexpected();
            }
            return value;
        }

        private Object value(int depth) {
            if (depth > MAX_DEPTH) {
                throw new FormatException("nested too deeply");
            }
            return switch (peek()) {
                case '{' -> object(depth);
                case '[' -> list(depth);
                case '"' -> string();
                case 't' -> word("true", true);
                case 'f' -> word("false", false);
                case 'n' -> word("null", null);
                default -> number();
            };
        }

        private Map<String, Object> object(int depth) {
            Map<String, Object> members = new LinkedHashMap<>();
            at++;
            if (take('}')) {
                return members;
            }
            do {
                if (peek() != '"') {
                    throw unexpected();
                }
                String name = string();
                expect(':');
                members.put(name, value(depth + 1));
            } while (take(','));
            expect('}');
            return members;
        }

        private List<Object> list(int depth) {
            List<Object> items = new ArrayList<>();
            at++;
            if (take(']')) {
                return items;
            }
            do {
                items.add(value(depth + 1));
            } while (take(','));
            expect(']');
            return items;
        }

        private String string() {
            StringBuilder value = new StringBuilder();
            for (at++; at < text.length(); at++) {
                char c = text.charAt(at);
                if (c == '"') {
                    at++;
                    return value.toString();
                }
                if (c < ' ') {
                    throw unexpected();
                }
                value.append(c == '\\' ? escape() : c);
            }
            throw new FormatException("a string does not end");
        }

        private char escape() {
            at++;
            char c = at < text.length() ? text.charAt(at) : 0;
            return switch (c) {
                case '"', '\\', '/' -> c;
                case 'b' -> '\b';
                case 'f' -> '\f';
                case 'n' -> '\n';
                case 'r' -> '\r';
                case 't' -> '\t';
                case 'u' -> {
                    if (at + 4 >= text.length()) {
                        throw unexpected();
                    }
                    String digits = text.substring(at + 1, at + 5);
                    if (!digits.matches("[0-9a-fA-F]{4}")) {
                        throw unexpected();
                    }
                    at += 4;
                    yield (char) Integer.parseInt(digits, 16);
                }
                default -> throw unexpected();
            };
        }

        private Object number() {
            int start = at;
            while (at < text.length() && "+-.0123456789eE".indexOf(text.charAt(at)) >= 0) {
                at++;
            }
            String number = text.substring(start, at);
            if (!NUMBER.matcher(number).matches()) {
                at = start;
                throw unexpected();
            }
            return LONG.matcher(number).matches() ? (Object) Long.parseLong(number) : new BigDecimal(number);
        }

        private Object word(String word, Object value) {
            if (!text.startsWith(word, at)) {
                throw unexpected();
            }
            at += word.length();
            return value;
        }

        private void expect(char c) {
            if (!take(c)) {
                throw unexpected();
            }
        }

        private boolean take(char c) {
            if (peek() != c) {
                return false;
            }
            at++;
            return true;
        }

        /** Skips white space and returns the next character, or -1 at the end. */
        private int peek() {
            while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
                at++;
            }
            return at < text.length() ? text.charAt(at) : -1;
        }

        private FormatException unexpected() {
            return new FormatException("not JSON at character " + at);
        }
    }
}
