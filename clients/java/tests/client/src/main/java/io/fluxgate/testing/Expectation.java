package io.fluxgate.testing;

import java.math.BigDecimal;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.regex.Pattern;

/** Compares values with those of a case. */
final class Expectation {
    private Expectation() {}

    /** @throws AssertionError if a value is not as expected */
    static void check(String what, Object expected, Object actual) {
        if (expected instanceof Map<?, ?> map) {
            checkMap(what, map, actual);
        } else if (expected instanceof List<?> list) {
            require(actual instanceof List<?> found && found.size() == list.size(), what, expected, actual);
            for (int i = 0; i < list.size(); i++) {
                check(what + "[" + i + "]", list.get(i), ((List<?>) actual).get(i));
            }
        } else {
            require(Objects.equals(expected, normal(actual)), what, expected, actual);
        }
    }

    private static void checkMap(String what, Map<?, ?> expected, Object actual) {
        if (expected.containsKey("regex")) {
            Pattern pattern = Pattern.compile(expected.get("regex").toString());
            require(actual != null && pattern.matcher(actual.toString()).find(), what, expected, actual);
        } else if (expected.containsKey("between")) {
            List<?> bounds = (List<?>) expected.get("between");
            require(
                    actual instanceof Number number
                            && decimal(number).compareTo(decimal(bounds.get(0))) >= 0
                            && decimal(number).compareTo(decimal(bounds.get(1))) <= 0,
                    what,
                    expected,
                    actual);
        } else {
            require(actual instanceof Map, what, expected, actual);
            Map<?, ?> found = (Map<?, ?>) actual;
            expected.forEach((name, value) -> check(what + "." + name, value, found.get(name)));
        }
    }

    private static BigDecimal decimal(Object number) {
        return new BigDecimal(number.toString());
    }

    private static Object normal(Object actual) {
        return actual instanceof Integer number ? (Object) number.longValue() : actual;
    }

    private static void require(boolean holds, String what, Object expected, Object actual) {
        if (!holds) {
            throw new AssertionError(what + ": expected " + expected + ", found " + actual);
        }
    }
}
