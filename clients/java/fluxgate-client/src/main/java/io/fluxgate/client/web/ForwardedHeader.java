package io.fluxgate.client.web;

import java.util.ArrayList;
import java.util.List;

/** The header {@code Forwarded} (RFC 7239). */
final class ForwardedHeader {
    private ForwardedHeader() {}

    /** Returns the addresses of {@code for}, the last first; null for an element without a good one. */
    static List<String> nodes(String line) {
        List<String> nodes = new ArrayList<>();
        for (String element : splitFromEnd(line, ',')) {
            if (!element.isBlank()) {
                nodes.add(node(element));
            }
        }
        return nodes;
    }

    /** Returns the value of {@code for}, or null unless there is exactly one. */
    private static String node(String element) {
        String found = null;
        for (String pair : splitFromEnd(element, ';')) {
            if (pair.isBlank()) {
                continue;
            }
            int equals = pair.indexOf('=');
            if (equals < 0) {
                return null;
            }
            if (!pair.substring(0, equals).strip().equalsIgnoreCase("for")) {
                continue;
            }
            String value = unquote(pair.substring(equals + 1).strip());
            if (value == null || found != null) {
                return null;
            }
            found = value;
        }
        // A port may be obfuscated.
        return found == null ? null : found.replaceFirst(":_[A-Za-z0-9._-]+$", "");
    }

    private static String unquote(String value) {
        if (!value.startsWith("\"")) {
            return value.indexOf('"') < 0 ? value : null;
        }
        StringBuilder text = new StringBuilder();
        for (int i = 1; i < value.length(); i++) {
            char c = value.charAt(i);
            if (c == '"') {
                return i == value.length() - 1 ? text.toString() : null;
            }
            if (c == '\\' && ++i == value.length()) {
                return null;
            }
            text.append(value.charAt(i));
        }
        return null;
    }

    /**
     * Splits at separators outside quotes, the last part first. Trusted proxies append at the right
     * end, so a quote that a client leaves open further to the left cannot swallow their entries.
     */
    private static List<String> splitFromEnd(String text, char separator) {
        List<String> parts = new ArrayList<>();
        int end = text.length();
        boolean isQuoted = false;
        for (int i = end - 1; i >= 0; i--) {
            char c = text.charAt(i);
            if (c == '"' && !endsInEscape(text, i)) {
                isQuoted = !isQuoted;
            } else if (c == separator && !isQuoted) {
                parts.add(text.substring(i + 1, end));
                end = i;
            }
        }
        parts.add(text.substring(0, end));
        return parts;
    }

    private static boolean endsInEscape(String text, int end) {
        int start = end;
        while (start > 0 && text.charAt(start - 1) == '\\') {
            start--;
        }
        return (end - start) % 2 == 1;
    }
}
