package io.fluxgate.client.web;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharsetDecoder;
import java.nio.charset.CoderResult;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

/** Reads the headers that are counted or sent, and refuses what servers read in different ways. */
final class HeaderReader {
    private static final String CONFLICT =
            "a header, query parameter or cookie that requests are counted by is repeated with different values";
    private static final String ALIKE =
            "servers may take the name of a header for one that requests are counted by, or for one that proxies set";
    private static final String UNCLEAR = "a value that requests are counted by contains control characters, "
            + "encoded words or bytes that are not UTF-8, or begins or ends with white space";

    /** Hop-by-hop headers, and secrets that no rule should read. */
    private static final Set<String> WITHHELD = Set.of(
            "authorization",
            "connection",
            "cookie",
            "keep-alive",
            "proxy-authenticate",
            "proxy-authorization",
            "proxy-connection",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade");

    /** Headers whose lines form one list, so clients and proxies may repeat them. */
    private static final Set<String> LISTS = Set.of(("accept accept-charset accept-encoding accept-language "
                    + "access-control-request-headers baggage cache-control cdn-loop content-encoding "
                    + "content-language expect forwarded grpc-accept-encoding if-match if-none-match link pragma "
                    + "prefer sec-websocket-extensions sec-websocket-protocol tracestate vary via warning "
                    + "x-forwarded-for x-forwarded-host x-forwarded-port x-forwarded-proto")
            .split(" "));

    /** The counted names in lower case. */
    private final List<String> counted;
    /** The names to send in lower case, or null for all that are not withheld. */
    private final Set<String> sent;

    HeaderReader(List<String> counted, Set<String> sent) {
        this.counted = counted;
        this.sent = sent;
    }

    /** The lines of each header, by its name in lower case, with surrounding white space removed. */
    Map<String, List<String>> lines(RequestHead head) throws AmbiguousRequestException {
        Map<String, List<String>> lines = new LinkedHashMap<>();
        for (Map.Entry<String, String> header : head.headers()) {
            String name = header.getKey().toLowerCase(Locale.ROOT);
            if (!isPlain(name)) {
                checkName(name);
            }
            lines.computeIfAbsent(name, it -> new ArrayList<>(1)).add(trim(header.getValue()));
        }
        return lines;
    }

    /** Returns the value of a counted header, or null if it is absent. */
    String only(Map<String, List<String>> lines, String name) throws AmbiguousRequestException {
        List<String> values = lines.getOrDefault(name, List.of());
        if (values.isEmpty()) {
            return null;
        }
        String first = values.get(0);
        for (String value : values) {
            if (!value.equals(first)) {
                throw new AmbiguousRequestException(CONFLICT);
            }
        }
        checkValue(first);
        return decode(first);
    }

    /** Returns the headers that rules may read. */
    Map<String, String> toSend(Map<String, List<String>> lines) throws AmbiguousRequestException {
        Map<String, String> headers = new LinkedHashMap<>();
        for (Map.Entry<String, List<String>> header : lines.entrySet()) {
            String name = header.getKey();
            boolean isSent = sent == null ? !WITHHELD.contains(name) && isPlain(name) : sent.contains(name);
            if (!isSent) {
                continue;
            }
            String first = header.getValue().get(0);
            for (String value : header.getValue()) {
                checkValue(value);
                if (!value.equals(first) && !LISTS.contains(name)) {
                    throw new AmbiguousRequestException(CONFLICT);
                }
            }
            headers.put(name, decode(first));
        }
        return headers;
    }

    private void checkName(String name) throws AmbiguousRequestException {
        for (String known : counted) {
            if (!known.equals(name) && areAlike(known, name)) {
                throw new AmbiguousRequestException(ALIKE);
            }
        }
    }

    private static void checkValue(String value) throws AmbiguousRequestException {
        boolean hasEncodedWord = value.contains("=?") && value.contains("?=");
        boolean hasControl = value.chars().anyMatch(c -> c < ' ' && c != '\t' || c == 0x7f);
        String text = decode(value);
        boolean hasOddEnds = !text.isEmpty()
                && (isWhite(text.codePointAt(0)) || isWhite(text.codePointBefore(text.length())));
        if (hasEncodedWord || hasControl || hasOddEnds) {
            throw new AmbiguousRequestException(UNCLEAR);
        }
    }

    private static boolean isWhite(int c) {
        return Character.isWhitespace(c) || Character.isSpaceChar(c);
    }

    /** Returns whether a name has only letters, digits and, between them, hyphens. Nearly all do. */
    private static boolean isPlain(String name) {
        for (int i = 0; i < name.length(); i++) {
            char c = name.charAt(i);
            boolean isInner = c == '-' && i > 0 && i < name.length() - 1;
            if (!(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || isInner)) {
                return false;
            }
        }
        return true;
    }

    /**
     * Returns whether servers may take two names for one another: they are equal once characters
     * other than letters and digits are dropped at both ends and written {@code _} elsewhere.
     */
    private static boolean areAlike(String one, String other) {
        return folded(one).equals(folded(other));
    }

    private static String folded(String name) {
        return name.replaceAll("^[^\\p{IsAlphabetic}\\p{IsDigit}]+|[^\\p{IsAlphabetic}\\p{IsDigit}]+$", "")
                .replaceAll("[^\\p{IsAlphabetic}\\p{IsDigit}]", "_");
    }

    /** HTTP/1.1 strips surrounding white space and HTTP/2 does not. */
    private static String trim(String value) {
        int start = 0;
        int end = value.length();
        while (start < end && " \t".indexOf(value.charAt(start)) >= 0) {
            start++;
        }
        while (end > start && " \t".indexOf(value.charAt(end - 1)) >= 0) {
            end--;
        }
        return value.substring(start, end);
    }

    /**
     * Decodes a value, whose characters are bytes, as UTF-8. Bytes that are not UTF-8 become
     * characters that no text has, so that different values stay different.
     */
    static String decode(String latin) {
        if (latin.chars().allMatch(c -> c < 0x80)) {
            return latin;
        }
        if (latin.chars().anyMatch(c -> c > 0xff)) {
            // The server has decoded it.
            return latin;
        }
        ByteBuffer in = ByteBuffer.wrap(latin.getBytes(StandardCharsets.ISO_8859_1));
        CharBuffer out = CharBuffer.allocate(latin.length() * 2);
        CharsetDecoder decoder = StandardCharsets.UTF_8.newDecoder();
        while (true) {
            CoderResult result = decoder.decode(in, out, true);
            if (!result.isError()) {
                return out.flip().toString();
            }
            for (int i = 0; i < result.length(); i++) {
                out.put(Character.toChars(0x10ff00 | in.get() & 0xff));
            }
        }
    }
}
