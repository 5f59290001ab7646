package io.fluxgate.client;

import java.util.Locale;
import java.util.Optional;

/** How a decision came about. */
public enum Outcome {
    /** All rules that apply have enough units. */
    ALLOWED,
    /** A limit is used up. */
    DENIED,
    /** The request can never pass: its cost is above the capacity, or its key is missing. */
    NEVER,
    /** Denied by a rule with {@code action: deny}. */
    FORBIDDEN,
    /** Allowed by a rule with {@code action: allow}. */
    EXEMPT,
    /** Allowed; a shadow rule would have denied it. */
    SHADOW_DENIED,
    /** Allowed, because no rule matches. */
    NO_RULE,
    /** Allowed, because the store or the service failed. */
    FAILED_OPEN,
    /** Denied, because the store or the service failed. Says nothing about the quota. */
    FAILED_CLOSED,
    /** The store failed, and the service decided by itself. */
    FALLBACK;

    private final String text = name().toLowerCase(Locale.ROOT);

    /** Returns the name that the API uses, such as {@code shadow_denied}. */
    @Override
    public String toString() {
        return text;
    }

    static Optional<Outcome> parse(String text) {
        for (Outcome outcome : values()) {
            if (outcome.text.equals(text)) {
                return Optional.of(outcome);
            }
        }
        return Optional.empty();
    }

    /** Returns whether a decision with this outcome may be allowed, or denied. */
    boolean isConsistentWith(boolean allowed) {
        return switch (this) {
            case ALLOWED, SHADOW_DENIED, NO_RULE, EXEMPT, FAILED_OPEN -> allowed;
            case DENIED, NEVER, FORBIDDEN, FAILED_CLOSED -> !allowed;
            case FALLBACK -> true;
        };
    }
}
