package io.fluxgate.client;

import java.math.BigDecimal;
import java.util.List;
import java.util.Objects;

/**
 * A call that charges one bucket or one configured rule.
 *
 * <pre>{@code
 * Consume.of("mail", "ann").bucket(5, "0.5")     // a bucket of 5, refilled by one in two seconds
 * Consume.of("api-limits/per-user", "ann")       // a configured rule
 * }</pre>
 */
public final class Consume {
    private final String ruleId;
    private final List<String> identity;
    private final Long cost;
    private final Long capacity;
    private final BigDecimal rate;

    private Consume(String ruleId, List<String> identity, Long cost, Long capacity, BigDecimal rate) {
        this.ruleId = Objects.requireNonNull(ruleId, "ruleId");
        this.identity = List.copyOf(identity);
        this.cost = cost;
        this.capacity = capacity;
        this.rate = rate;
    }

    /** Charges one unit to an identity; several values are a composite one. */
    public static Consume of(String ruleId, String... identity) {
        return new Consume(ruleId, List.of(identity), null, null, null);
    }

    public Consume cost(long units) {
        return new Consume(ruleId, identity, units, capacity, rate);
    }

    /**
     * Sets the limit: a token bucket. The rate is in units per second, with up to six decimals, and
     * is a text because it is used exactly.
     */
    public Consume bucket(long size, String unitsPerSecond) {
        return new Consume(ruleId, identity, cost, size, new BigDecimal(unitsPerSecond));
    }

    byte[] body() {
        Json.Writer json = new Json.Writer().begin();
        json.member("rule_id", ruleId);
        json.member("identity", identity.size() == 1 ? identity.get(0) : identity);
        json.optional("cost", cost);
        json.optional("capacity", capacity);
        json.optional("refill_tokens_per_second", rate);
        return json.end().bytes();
    }
}
