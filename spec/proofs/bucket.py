"""Token bucket and leaky bucket (crates/fluxgate-core/src/algorithm/bucket.rs, lua/bucket.lua).

1. The pair (T, f), which stands for T + f/R microseconds, is exact.
2. In every interval a rule admits at most C + R*t/P, whatever other rules do to the same state,
   however the clock jumps, and with refunds only what was refunded more.
"""

from z3 import And, If, Implies, Ints, Or, Real

from prover import System, end, proved, refuted

# --- 1. Pairs. ---------------------------------------------------------------------------------
# A span or an instant is the integer T*R + f. All operations on pairs are those on integers.

T, f, q, r, R, d, n, P = Ints("T f q r R d n P")
pair = [R >= 1, T >= 0, 0 <= f, f < R]
other = [q >= 0, 0 <= r, r < R]


def value(whole, part):
    return whole * R + part


def carried(whole, part):
    return If(part >= R, whole + 1, whole), If(part >= R, part - R, part)


def difference(whole, part, less, less_part):
    whole, part = whole - less, part - less_part
    whole, part = If(part < 0, whole - 1, whole), If(part < 0, part + R, part)
    return If(whole < 0, 0, whole), If(whole < 0, 0, part)


def is_less(whole, part, other_whole, other_part):
    return Or(whole < other_whole, And(whole == other_whole, part < other_part))


# Z3 needs these two facts about products spelled out: a whole microsecond is R parts.
whole_is_more = [Implies(T < q, T * R + R <= q * R), Implies(q < T, q * R + R <= T * R)]
proved("pairs: a whole microsecond is R parts", [R >= 1, T < q], (q - T) * R >= R)

total, total_part = carried(T + q, f + r)
proved("pairs: the sum is exact", pair + other, And(value(total, total_part) == value(T, f) + value(q, r), 0 <= total_part, total_part < R))
proved("pairs: the order is that of integers", pair + other + whole_is_more, is_less(T, f, q, r) == (value(T, f) < value(q, r)))
rest, rest_part = difference(T, f, q, r)
exact = value(T, f) - value(q, r)
proved("pairs: the difference is exact, and not below 0", pair + other + whole_is_more, And(value(rest, rest_part) == If(exact > 0, exact, 0), 0 <= rest_part, rest_part < R))
proved("pairs: n units move an instant by n*P", pair + other + [n * P == q * R + r], value(total, total_part) == value(T, f) + n * P)
refuted("pairs: a sum without carry", pair + other, f + r < R)
refuted("pairs: an order by whole microseconds", pair + other + whole_is_more, (T < q) == (value(T, f) < value(q, r)))

# Another rule reads the fraction f/R in its own parts, d to a microsecond. It rounds up.
x = Ints("x")[0]
proved("pairs: a fraction that fits is exact, and below one", pair + [d >= 1, x * R == f * d], And(0 <= x, x < d))
later = Ints("later")[0]
is_rounded = [d >= 1, f >= 1, later == (T + 1) * R]
proved("pairs: another one is read less than a microsecond later", pair + is_rounded, And(later > value(T, f), later - value(T, f) < R))

# --- 2. Decisions. -----------------------------------------------------------------------------
# All spans are real numbers of microseconds; a unit is the time P/R that it takes to refill. So
# n units admitted in t are n*P/R <= F + t, which is n <= C + R*t/P.
C, t = Ints("C t")
proved("decisions: time and units are the same bound", [R >= 1, P >= 1], (n * P <= C * P + R * t) == (n * P - C * P <= R * t))

# `owed`: time until the bucket is full. `horizon`: stored with it. `admitted`: by one rule, ours,
# with fill F = C*P/R and horizon H, since the interval began. `passed`: how far the clock went on
# since then. `refunded`: what operators returned. The other rule has the fill F2 and the horizon H2;
# as its numbers are any, it stands for all others, of any time.


def start(s):
    # Whatever happened before the interval.
    return [s.owed >= 0, s.horizon >= 0, s.admitted == 0, s.passed == 0, s.refunded == 0]


def admit(s, new):
    w = new("w")
    return [w > 0, s.owed + w <= s.F], {"owed": s.owed + w, "admitted": s.admitted + w, "horizon": s.H}


def admit_by_another_rule(s, new):
    w, F2, H2, rounding = new("w"), new("F2"), new("H2"), new("rounding")
    guard = [w > 0, F2 > 0, H2 >= 2 * F2, rounding >= 0, s.owed + rounding + w <= F2]
    return guard, {"owed": s.owed + rounding + w, "horizon": H2}


def charge_excess(s, new):
    """A settlement above what was reserved, and `charge: always`: down to a debt of C."""
    w, F2, H2 = new("w"), new("F2"), new("H2")
    guard = [w >= 0, F2 > 0, H2 >= 2 * F2, s.owed + w <= If(2 * F2 > s.owed, 2 * F2, s.owed)]
    return guard, {"owed": s.owed + w, "horizon": If(w > 0, H2, s.horizon)}


def clock_goes_on(s, new):
    span = new("span")
    return [span >= 0], {"owed": If(s.owed > span, s.owed - span, 0), "passed": s.passed + span}


def clock_goes_back(s, new):
    """The instant stays, so the bucket is further from full; one that was full may be so still."""
    span, grows = new("span"), new("grows")
    return [span >= 0, 0 <= grows, grows <= span, Or(s.owed == 0, grows == span)], {"owed": s.owed + grows}


def correct(s, new):
    return [s.owed > s.horizon], {"owed": s.horizon}


def refund(s, new):
    w = new("w")
    return [w >= 0], {"owed": If(s.owed > w, s.owed - w, 0), "refunded": s.refunded + w}


def expire(s, new):
    """A key expires when its bucket is full."""
    return [s.owed == 0], {"horizon": 0}


def invariant(s):
    net = s.admitted - s.passed - s.refunded
    return {
        "a span": And(s.owed >= 0, s.horizon >= 0),
        "what was admitted is owed": net <= s.owed,
        "it is at most the fill": net <= s.F,
        "it is within the horizon": net <= s.horizon,
    }


decisions = System(
    "decisions",
    "owed horizon admitted passed refunded",
    "F H",
    lambda s: [s.F > 0, s.H >= 2 * s.F],
    start,
    [admit, admit_by_another_rule, charge_excess, clock_goes_on, clock_goes_back, correct, refund, expire],
    invariant,
    lambda s: s.admitted <= s.F + s.passed + s.refunded,
    sort=Real,
)
decisions.prove()


def admit_one_more(s, new):
    w = new("w")
    return [w > 0, s.owed + w <= s.F + 1], {"owed": s.owed + w, "admitted": s.admitted + w, "horizon": s.H}


def horizon_of_the_reader(s, new):
    F2, H2 = new("F2"), new("H2")
    return [F2 > 0, H2 >= 2 * F2, s.owed > H2], {"owed": H2}


def excess_of_nothing_changes_the_horizon(s, new):
    F2, H2 = new("F2"), new("H2")
    return [F2 > 0, H2 >= 2 * F2, H2 < 4 * F2, s.owed >= 2 * F2], {"horizon": H2}


def clock_that_went_back_fills(s, new):
    return [], {"owed": 0}


def expire_early(s, new):
    return [s.owed < s.F / 2], {"owed": 0, "horizon": 0}


def horizon_below_the_fill(s, new):
    w = new("w")
    guard, changes = admit(s, new)
    return guard, {**changes, "horizon": s.F / 2}


decisions.refute(admit_one_more, replaces=admit)
decisions.refute(horizon_of_the_reader)
decisions.refute(excess_of_nothing_changes_the_horizon)
decisions.refute(clock_that_went_back_fills, replaces=clock_goes_back)
decisions.refute(expire_early, replaces=expire)
decisions.refute(horizon_below_the_fill, replaces=admit)

# A clock that goes back and on again does not count twice. `ahead` is how far the clock is behind
# the furthest it has shown: as long as that is at most the fill, nothing is pulled back, so the
# bucket's instant, which `highest + F` bounds, does not move back at all.
owed, behind, w, F, H, span = (Real(x) for x in "owed behind w F H span".split())
proved(
    "decisions: a clock behind by at most the fill pulls nothing back",
    [F > 0, H >= 2 * F, owed - behind <= F, behind <= F],
    owed <= H,
)

# A wrong clock heals: the horizon is the least power of two that is not less than 2F + max_wait, and
# a request that is not more than C passes when the bucket is at most F - n away from full.
wait = Real("wait")
proved("decisions: a bucket heals within four times its fill", [F > 0, wait >= 0, H < 2 * (2 * F + wait), owed <= H], owed < 4 * F + 2 * wait)

end()
