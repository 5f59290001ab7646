package io.fluxgate.client.web;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.function.Predicate;

/**
 * The path of a request, as sent and in its normal form.
 *
 * <p>Servers disagree about {@code %61}, {@code %2f}, {@code //}, {@code \}, {@code ;x} and a slash
 * at the end. In the normal form every percent escape is decoded once, {@code \} is {@code /}, each
 * segment is cut at its first {@code ;}, repeated slashes are merged, and a slash at the end is
 * dropped.
 */
final class RequestPath {
    private static final Set<String> DOTS = Set.of(".", "..");
    private static final int DELETE = 0x7f;

    private final String raw;
    /** The normal form with its slash at the end. */
    private final String normal;
    /**
     * The normal form of what is behind the first segment, if the path begins with two slashes:
     * servers that parse it as a URL take that segment for a host. Otherwise null.
     */
    private final String behindHost;

    private RequestPath(String raw, String normal, String behindHost) {
        this.raw = raw;
        this.normal = normal;
        this.behindHost = behindHost;
    }

    /** Reads the path of a request's target, without the query. */
    static RequestPath read(String path) throws AmbiguousRequestException {
        if (path.equals("*")) {
            return new RequestPath("/*", "/*", null);
        }
        if (path.isEmpty()) {
            return new RequestPath("/", "/", null);
        }
        if (!path.startsWith("/")) {
            throw new AmbiguousRequestException("the target is not a path");
        }
        String behindHost = behindHost(path);
        return new RequestPath(path, normalize(path), behindHost == null ? null : normalize(behindHost));
    }

    String raw() {
        return raw;
    }

    /** Returns the normal form with its slash at the end, or null if no server reads another path. */
    String other() {
        return withoutSlash(normal).equals(raw) ? null : normal;
    }

    /** Returns whether a pattern applies that includes paths: to either form. */
    boolean either(Predicate<String> matches) {
        return forms().stream().anyMatch(matches);
    }

    /** Returns whether a pattern applies that excludes paths: to both forms, with the slash at the end. */
    boolean both(Predicate<String> matches) {
        return matches.test(raw) && matches.test(normal) && (behindHost == null || matches.test(behindHost));
    }

    private List<String> forms() {
        List<String> forms = new ArrayList<>(List.of(raw, normal, withoutSlash(normal)));
        if (behindHost != null) {
            forms.addAll(List.of(behindHost, withoutSlash(behindHost)));
        }
        return forms;
    }

    private static String withoutSlash(String path) {
        return path.length() > 1 && path.endsWith("/") ? path.substring(0, path.length() - 1) : path;
    }

    private static String behindHost(String path) {
        if (path.length() < 2 || !isSlash(path.charAt(1))) {
            return null;
        }
        int at = 2;
        while (at < path.length() && !isSlash(path.charAt(at))) {
            at++;
        }
        return at == path.length() ? "/" : path.substring(at);
    }

    private static boolean isSlash(int c) {
        return c == '/' || c == '\\';
    }

    private static String normalize(String path) throws AmbiguousRequestException {
        byte[] bytes = path.getBytes(StandardCharsets.UTF_8);
        ByteArrayOutputStream normal = new ByteArrayOutputStream(bytes.length);
        int last = -1;
        // Whether a `;` has ended the segment.
        boolean isCut = false;
        for (int at = 0; at < bytes.length; at++) {
            int escaped = escape(bytes, at);
            int c = escaped >= 0 ? escaped : bytes[at] & 0xff;
            boolean isPlainSlash = escaped < 0 && c == '/';
            at += escaped >= 0 ? 2 : 0;
            if (c < ' ' || c == DELETE) {
                throw new AmbiguousRequestException("the path has a control character in it");
            } else if (isSlash(c)) {
                if (isCut && !isPlainSlash) {
                    throw new AmbiguousRequestException("the path has an escaped slash or a backslash behind a `;`");
                }
                isCut = false;
                if (last != '/') {
                    normal.write('/');
                    last = '/';
                }
            } else if (c == ';') {
                isCut = true;
            } else if (!isCut) {
                normal.write(c);
                last = c;
            }
        }
        String text;
        try {
            ByteBuffer decoded = ByteBuffer.wrap(normal.toByteArray());
            text = StandardCharsets.UTF_8.newDecoder().decode(decoded).toString();
        } catch (CharacterCodingException e) {
            throw new AmbiguousRequestException("the path is not UTF-8 when its escapes are decoded");
        }
        for (String segment : text.split("/", -1)) {
            if (DOTS.contains(segment)) {
                throw new AmbiguousRequestException("the path has `.` or `..` in it");
            }
        }
        return text;
    }

    /** Returns the byte of a percent escape at this place, or -1 if there is none. */
    private static int escape(byte[] bytes, int at) {
        if (bytes[at] != '%' || at + 2 >= bytes.length) {
            return -1;
        }
        int high = Character.digit(bytes[at + 1], 16);
        int low = Character.digit(bytes[at + 2], 16);
        return high < 0 || low < 0 ? -1 : high * 16 + low;
    }
}
