package io.fluxgate.client.web;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class RequestPathTest {
    @ParameterizedTest
    @CsvSource({
        "/%61pi/x, /api/x",
        "/api%2fx, /api/x",
        "/api\\x, /api/x",
        "/api%5cx, /api/x",
        "//api///x//, /api/x/",
        "/api/, /api/",
        "/api;v=1/x, /api/x",
        "/a/;x/b, /a/b",
        "/;, /",
        "/a;..;b/c%2Fd/..e/;./f.., /a/c/d/..e/f..",
        "/%2561pi, /%61pi",
        "/%zz%4, /%zz%4",
        "/%C3%A9, /é",
        "*, ",
        "/api/x, ",
        "/.well-known/..x/..., ",
    })
    void aPathHasANormalForm(String raw, String normal) throws AmbiguousRequestException {
        RequestPath path = RequestPath.read(raw);
        assertEquals(raw.equals("*") ? "/*" : raw, path.raw());
        if (normal == null || withoutSlash(normal).equals(raw)) {
            assertEquals(null, path.other());
        } else {
            assertEquals(normal, path.other());
        }
    }

    private static String withoutSlash(String path) {
        return path.length() > 1 && path.endsWith("/") ? path.substring(0, path.length() - 1) : path;
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "/..", "/./x", "/a/../b", "/a/%2e%2E/b", "/a/..;x/b", "/a\\..\\b", "/a%00", "/a%0a", "/a%7f", "/a%80",
                "/a%c3", "/a;%2fx", "/a;\\x", "x", "http://x/"
            })
    void otherReadingsAreRefused(String raw) {
        assertThrows(AmbiguousRequestException.class, () -> RequestPath.read(raw));
    }

    @Test
    void patternsIncludeByEitherFormAndExcludeByBoth() throws AmbiguousRequestException {
        PathPattern pattern = new PathPattern("/api/health");
        for (String raw : List.of("/%61pi/health", "/api/health/", "//host/api/health", "/api//health")) {
            assertTrue(RequestPath.read(raw).either(pattern::matches), raw);
            assertFalse(RequestPath.read(raw).both(pattern::matches), raw);
        }
        assertTrue(RequestPath.read("/api/health").both(pattern::matches));
    }

    @ParameterizedTest
    @CsvSource({
        "/**, /, true",
        "/**, /a/b, true",
        "/api/**, /api, true",
        "/api/**, /api/, true",
        "/api/**, /api/a/b, true",
        "/api/**, /apis, false",
        "/**/x, /x, true",
        "/**/x, /a/b/x, true",
        "/**/x, /a/b/xy, false",
        "/a/**/b/**/c, /a/b/b/c, true",
        "/a/**/b/**/c, /a/c, false",
        "/a/*, /a/b, true",
        "/a/*, /a/, true",
        "/a/*, /a/b/c, false",
        "/a/*.js, /a/x.js, true",
        "/a/*.js, /a/xjs, false",
        "/a/?, /a/é, true",
        "/a/?, /a/, false",
        "/a/{id}/c, /a/b/c, true",
        "/a/{id}/c, /a//c, false",
        "/a/, /a, false",
        "/a, /a/, false",
        "/(a)+, /aa, false",
    })
    void patternsAreThoseOfRules(String pattern, String path, boolean matches) {
        assertEquals(matches, new PathPattern(pattern).matches(path));
    }

    @ParameterizedTest
    @ValueSource(strings = {"api", "", "/a**", "/x{id}", "/{a", "/}", "/{}"})
    void otherPatternsAreRefused(String pattern) {
        assertThrows(IllegalArgumentException.class, () -> new PathPattern(pattern));
    }
}
