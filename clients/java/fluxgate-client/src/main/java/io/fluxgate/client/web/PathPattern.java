package io.fluxgate.client.web;

import java.util.List;
import java.util.regex.Pattern;

/**
 * A pattern of paths: {@code ?} is one character, {@code *} any number inside a segment,
 * {@code {name}} one segment that is not empty, {@code **} any number of whole segments.
 */
final class PathPattern {
    private final String[] segments;
    private final Pattern[] compiled;

    PathPattern(String pattern) {
        if (!pattern.startsWith("/")) {
            throw new IllegalArgumentException("the pattern `" + pattern + "` must begin with `/`");
        }
        segments = split(pattern);
        compiled = new Pattern[segments.length];
        for (int i = 0; i < segments.length; i++) {
            compiled[i] = compile(pattern, segments[i]);
        }
    }

    static List<PathPattern> all(List<String> patterns) {
        return patterns.stream().map(PathPattern::new).toList();
    }

    boolean matches(String path) {
        return path.startsWith("/") && matches(split(path));
    }

    /** Compares from the end: `rest[j]` is whether the pattern's segments from here match the path's from j. */
    private boolean matches(String[] path) {
        boolean[] rest = new boolean[path.length + 1];
        rest[path.length] = true;
        for (int i = segments.length - 1; i >= 0; i--) {
            boolean[] here = new boolean[path.length + 1];
            for (int j = path.length; j >= 0; j--) {
                here[j] = segments[i].equals("**")
                        ? rest[j] || j < path.length && here[j + 1]
                        : j < path.length && rest[j + 1] && matches(i, path[j]);
            }
            rest = here;
        }
        return rest[0];
    }

    private boolean matches(int segment, String text) {
        return compiled[segment] == null ? segments[segment].equals(text) : compiled[segment].matcher(text).matches();
    }

    private static String[] split(String path) {
        return path.substring(1).split("/", -1);
    }

    /** Returns an expression for a segment, or null if it stands for itself. */
    private static Pattern compile(String pattern, String segment) {
        if (segment.equals("**")) {
            return null;
        }
        if (segment.contains("**")) {
            throw new IllegalArgumentException("in the pattern `" + pattern + "` `**` must be a whole segment");
        }
        if (segment.matches("\\{[^{}*?]+\\}")) {
            return Pattern.compile(".+", Pattern.DOTALL);
        }
        if (segment.contains("{") || segment.contains("}")) {
            String advice = "` `{name}` must be a whole segment; write `*`";
            throw new IllegalArgumentException("in the pattern `" + pattern + advice);
        }
        if (!segment.contains("*") && !segment.contains("?")) {
            return null;
        }
        StringBuilder expression = new StringBuilder();
        segment.codePoints().forEach(c -> {
            switch (c) {
                case '*' -> expression.append(".*");
                case '?' -> expression.append('.');
                default -> expression.append(Pattern.quote(Character.toString(c)));
            }
        });
        return Pattern.compile(expression.toString(), Pattern.DOTALL);
    }
}
