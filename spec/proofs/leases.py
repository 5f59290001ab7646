"""Leases (crates/fluxgate-core/src/algorithm/grant.rs, lua/lease.lua, lease/holder.rs).

1. A holder stops before its units end in the store, as long as the speeds of the clocks differ by
   less than 1.5%.
2. Buckets: in every interval all instances together admit at most C + R*t/P; C - L more if the store
   loses its state in the interval, and L more if it lost it before.
3. Windows: all instances together admit at most C in each.

There is no bound on how many instances, grants and messages there are: only sums matter, and an
action changes them by the units of one grant.
"""

from z3 import And, If, Implies, Ints, Or, Reals, ToReal

from prover import System, end, proved, refuted

# --- 1. The end of a lease. --------------------------------------------------------------------
# Clocks show whole microseconds. `sent` and `granted` are true times by the clocks of the holder and
# of the store, `now` is that of a decision by the holder's clock. The request came before the grant.
span, window_left, whole, usable, floor_sent, floor_granted, floor_now, ends = Ints("span window_left whole usable floor_sent floor_granted floor_now ends")
sent, granted, now, elapsed_in_store = Reals("sent granted now elapsed_in_store")


def floors(clock, shown):
    return And(ToReal(shown) <= clock, clock < ToReal(shown) + 1)


clocks = [
    span >= 100_000,
    floors(sent, floor_sent),
    floors(granted, floor_granted),
    floors(now, floor_now),
    # The store's clock at the decision is at most `granted + elapsed_in_store`.
    elapsed_in_store >= 0,
    1000 * elapsed_in_store <= 1015 * (now - sent),
    floor_now < floor_sent + usable,
]
in_bucket = [whole == span, ends > floor_granted + span]
in_window = [window_left >= 1, whole <= span, whole <= window_left, Or(ends == floor_granted + window_left, ends > floor_granted + span), window_left >= whole]


def lives(usable_for):
    return [usable == usable_for, *clocks]


def parts(of):
    """One part in 64, rounded up."""
    return (of + 63) / 64


at_decision = granted + elapsed_in_store
proved("a holder stops before its units end, in a bucket", [*in_bucket, *lives(whole - 1 - parts(whole - 1))], at_decision < ToReal(ends))
proved("a holder stops before its units end, in a window", [*in_window, *lives(whole - 1 - parts(whole - 1))], at_decision < ToReal(ends))
refuted("a holder that uses all of the span", [*in_bucket, *lives(whole)], at_decision < ToReal(ends))
refuted("a holder that forgets that clocks show whole microseconds", [*in_window, *lives(whole - whole / 64)], at_decision < ToReal(ends))
delay = Reals("delay")[0]
refuted("a holder that counts from the reply", [*in_bucket, *lives(whole - 1 - parts(whole - 1)), delay > 0], at_decision + delay < ToReal(ends))

# --- 2. Buckets. -------------------------------------------------------------------------------
# `owed`: of the shared bucket, whose fill F is that of C - L. `out`: the units that the store has as
# out. What became of them: `held`, spendable by an instance or in a reply on its way; `spent` and not
# yet reported to the store; `returning`, in a report on its way; `lost`, with a crash or a message.
# What the store has forgotten is `old`: those that may be spent or return, and those whose report
# may arrive. `forgotten`: units that are out and that the store took for old ones.


def start(s):
    """An empty store."""
    return [v == 0 for v in counts(s) + [s.admitted]]


def counts(s):
    return [
        s.owed, s.passed, s.extra, s.out, s.held, s.spent, s.returning, s.lost,
        s.old_held, s.old_spent, s.old_returning, s.forgotten,
    ]


def begin_interval(s, new):
    """An interval may begin at any time. `extra` is what the bound of it has more: L after a loss."""
    return [], {"admitted": 0, "passed": 0, "extra": If(s.extra == 0, 0, s.L)}


def decide_in_store(s, new):
    u = new("u")
    return [u > 0, s.owed + u <= s.F], {"owed": s.owed + u, "admitted": s.admitted + u}


def grant(s, new):
    u = new("u")
    return [u > 0, s.owed + u <= s.F, s.out + u <= s.L], {"owed": s.owed + u, "out": s.out + u, "held": s.held + u}


def spend(s, new):
    u = new("u")
    return [u > 0, u <= s.held], {"held": s.held - u, "spent": s.spent + u, "admitted": s.admitted + u}


def give_back(s, new):
    u = new("u")
    return [u > 0, u <= s.held], {"held": s.held - u, "returning": s.returning + u}


def less(owed, u):
    return If(owed > u, owed - u, 0)


def apply_report(s, new):
    """A report that matches units that are out. It arrives at most once."""
    used, back = new("used"), new("back")
    guard = [used >= 0, back >= 0, used <= s.spent, back <= s.returning, used + back <= s.out]
    return guard, {"spent": s.spent - used, "returning": s.returning - back, "out": s.out - used - back, "owed": less(s.owed, back)}


def lose(s, new):
    """A crash, a lost request or a lost reply."""
    a, b, c = new("a"), new("b"), new("c")
    guard = [a >= 0, b >= 0, c >= 0, a <= s.held, b <= s.spent, c <= s.returning]
    return guard, {"held": s.held - a, "spent": s.spent - b, "returning": s.returning - c, "lost": s.lost + a + b + c}


def expire(s, new):
    """Units end. Nobody can spend them any more (1.), and a report that arrives later is ignored, so
    all that is left of them is lost."""
    u = new("u")
    return [u >= 0, u <= s.lost, u <= s.out], {"lost": s.lost - u, "out": s.out - u}


def clock_goes_on(s, new):
    span = new("span")
    return [span >= 0], {"owed": less(s.owed, span), "passed": s.passed + span}


def clock_goes_back(s, new):
    """The bucket owes more, or as much as its horizon, which is more than its fill."""
    grows, owed = new("grows"), new("owed")
    return [grows >= 0, Or(owed == s.owed + grows, And(owed >= s.F, owed < s.owed + grows))], {"owed": owed}


# Old units, after a loss of state.


def spend_old(s, new):
    u = new("u")
    return [u > 0, u <= s.old_held], {"old_held": s.old_held - u, "old_spent": s.old_spent + u, "admitted": s.admitted + u}


def give_back_old(s, new):
    u = new("u")
    return [u > 0, u <= s.old_held], {"old_held": s.old_held - u, "old_returning": s.old_returning + u}


def apply_old_report(s, new):
    """It may match a new grant that ends at the same instant; then the store forgets that many."""
    used, back = new("used"), new("back")
    guard = [used >= 0, back >= 0, used <= s.old_spent, back <= s.old_returning, used + back <= s.out]
    return guard, {
        "old_spent": s.old_spent - used, "old_returning": s.old_returning - back, "out": s.out - used - back,
        "owed": less(s.owed, back), "forgotten": s.forgotten + used + back,
    }


def lose_old(s, new):
    a, b, c = new("a"), new("b"), new("c")
    guard = [a >= 0, b >= 0, c >= 0, a <= s.old_held, b <= s.old_spent, c <= s.old_returning]
    return guard, {"old_held": s.old_held - a, "old_spent": s.old_spent - b, "old_returning": s.old_returning - c}


def expire_forgotten(s, new):
    u = new("u")
    return [u >= 0, u <= s.lost, u <= s.forgotten], {"lost": s.lost - u, "forgotten": s.forgotten - u}


def lose_state(s, new):
    """The store starts empty: a failover, or a loss of memory. What was out is old. It happens once:
    units end within seconds, so another loss adds as much again."""
    return [s.extra == 0], {
        "owed": 0, "out": 0, "extra": s.F, "lost": 0,
        "held": 0, "spent": 0, "returning": 0,
        "old_held": s.held, "old_spent": s.spent, "old_returning": s.returning,
    }


def invariant(s):
    may_be_admitted = s.held + s.returning + s.old_held + s.old_returning
    return {
        "that no count is below 0": And(*[v >= 0 for v in counts(s)]),
        "that units are old after a loss only": Implies(s.extra == 0, s.old_held + s.old_spent + s.old_returning + s.forgotten == 0),
        "that at most L is out": s.out <= s.L,
        "that all units are somewhere": s.out + s.forgotten == s.held + s.spent + s.returning + s.lost,
        "that old units are few": s.old_held + s.old_spent + s.old_returning + s.forgotten <= s.L,
        "that admitted units were charged or out": s.admitted + may_be_admitted <= s.owed + s.passed + s.L + s.extra,
        "the bound": s.admitted + may_be_admitted <= s.F + s.passed + s.L + s.extra,
    }


VARIABLES = "owed admitted passed extra out held spent returning lost old_held old_spent old_returning forgotten"
ACTIONS = [
    begin_interval, decide_in_store, grant, spend, give_back, apply_report, lose, expire, clock_goes_on, clock_goes_back,
    spend_old, give_back_old, apply_old_report, lose_old, expire_forgotten,
]


def bucket(actions):
    return System(
        "bucket", VARIABLES, "F L", lambda s: [s.L > 0, s.F >= s.L], start, actions, invariant,
        # C is F + L.
        lambda s: s.admitted <= s.F + s.L + s.passed + s.extra,
    )


bucket([*ACTIONS, lose_state]).prove()


def grant_above_the_share(s, new):
    u = new("u")
    return [u > 0, s.owed + u <= s.F + s.L], {"owed": s.owed + u, "out": s.out + u, "held": s.held + u}


def report_that_matches_nothing_is_applied(s, new):
    """It came late, or twice."""
    u = new("u")
    return [u > 0, u <= s.L], {"owed": less(s.owed, u)}


def units_of_a_crash_return(s, new):
    u = new("u")
    return [u > 0, u <= s.spent, u <= s.out], {"owed": less(s.owed, u), "out": s.out - u, "spent": s.spent - u}


def units_end_while_held(s, new):
    u = new("u")
    return [u > 0, u <= s.held, u <= s.out], {"out": s.out - u}


def lost_units_are_granted_again(s, new):
    u = new("u")
    return [u > 0, u <= s.held], {"held": s.held + u}


def spending_keeps_the_units(s, new):
    u = new("u")
    return [u > 0, u <= s.held], {"admitted": s.admitted + u}


def decide_by_the_whole_capacity(s, new):
    u = new("u")
    return [u > 0, s.owed + u <= s.F + s.L], {"owed": s.owed + u, "admitted": s.admitted + u}


# Only a loss of state makes units old; without one, the runs are of fewer actions.
plain = bucket(ACTIONS[:ACTIONS.index(spend_old)])
plain.refute(grant_above_the_share, replaces=grant)
plain.refute(report_that_matches_nothing_is_applied)
plain.refute(units_of_a_crash_return, depth=8)
plain.refute(units_end_while_held, depth=8)
plain.refute(lost_units_are_granted_again)
plain.refute(spending_keeps_the_units, replaces=spend)
plain.refute(decide_by_the_whole_capacity, replaces=decide_in_store)


def free_loss_of_state(s, new):
    guard, changes = lose_state(s, new)
    return guard, {**changes, "extra": 0}


plain.refute(free_loss_of_state)

# --- 3. Windows. -------------------------------------------------------------------------------
# A grant is counted in its window, and ends with it. `held` and `returning`: of this window.


def window_decides(s, new):
    u = new("u")
    return [u > 0, s.count + u <= s.C], {"count": s.count + u, "admitted": s.admitted + u}


def window_grants(s, new):
    u = new("u")
    return [u > 0, s.count + u <= s.C], {"count": s.count + u, "held": s.held + u}


def window_spends(s, new):
    u = new("u")
    return [u > 0, u <= s.held], {"held": s.held - u, "admitted": s.admitted + u}


def window_gives_back(s, new):
    u = new("u")
    return [u > 0, u <= s.held], {"held": s.held - u, "returning": s.returning + u}


def window_takes_back(s, new):
    u = new("u")
    return [u > 0, u <= s.returning], {"returning": s.returning - u, "count": less(s.count, u)}


def window_loses(s, new):
    a, b = new("a"), new("b")
    return [a >= 0, b >= 0, a <= s.held, b <= s.returning], {"held": s.held - a, "returning": s.returning - b}


def window_charges_excess(s, new):
    u = new("u")
    return [u > 0, s.count + u <= 2 * s.C], {"count": s.count + u}


window = System(
    "window", "count admitted held returning", "C", lambda s: [s.C > 0],
    lambda s: [s.count == 0, s.admitted == 0, s.held == 0, s.returning == 0],
    [window_decides, window_grants, window_spends, window_gives_back, window_takes_back, window_loses, window_charges_excess],
    lambda s: {
        "that no count is below 0": And(s.count >= 0, s.admitted >= 0, s.held >= 0, s.returning >= 0),
        "that what may be admitted is counted": s.admitted + s.held + s.returning <= s.count,
        "the bound": s.admitted + s.held + s.returning <= s.C,
    },
    lambda s: s.admitted <= s.C,
)
window.prove()


def units_of_another_window_return(s, new):
    u = new("u")
    return [u > 0, u <= s.count], {"count": s.count - u}


def next_window_spends(s, new):
    return [s.held > 0], {"count": 0, "admitted": 0}


window.refute(units_of_another_window_return)
window.refute(next_window_spends)

end()
