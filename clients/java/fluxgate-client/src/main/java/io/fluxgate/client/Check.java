package io.fluxgate.client;

import java.util.Objects;
import java.util.function.UnaryOperator;

/** One check of a batch. */
public record Check(String ruleSet, RequestContext context, boolean peek) {
    public Check {
        Objects.requireNonNull(ruleSet, "ruleSet");
        Objects.requireNonNull(context, "context");
    }

    public static Check of(String ruleSet, UnaryOperator<RequestContext.Builder> context) {
        return new Check(ruleSet, context.apply(RequestContext.builder()).build(), false);
    }
}
