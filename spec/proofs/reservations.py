"""Reservations that wait, are cancelled, and stand beside holds that are settled
(crates/fluxgate-core/src/algorithm/bucket.rs, lua/bucket_refund.lua, lua/adjust.lua).

A reservation of n units moves the bucket's instant D by n (all as time) and gets M = D. It goes on at
M - F. S is the sum of all valid reservations with its M or a later one. U is the latest instant that
any charge got. The invariant, for every valid reservation i:

    D >= M_i + S_i - F - Q    with Q the units returned while no reservation waited

There is no bound on how many reservations there are: a step changes one, `x`, and what it does to any
other, `i`, is proved for an arbitrary `i`. A third one is the next behind a new one.
"""

from z3 import And, If, Implies, Real, Reals

from prover import end, proved, refuted

D, U, F, Q, now = Reals("D U F Q now")


class Reservation:
    def __init__(self, name):
        self.M, self.S, self.n = Reals(f"M_{name} S_{name} n_{name}")


x, i, j = Reservation("x"), Reservation("i"), Reservation("j")


def holds_for(r, D, U, Q):
    return And(D >= r.M + r.S - F - Q, r.M <= U, r.n > 0, r.S >= r.n)


def are_ordered(r, other):
    """S of the earlier one includes that of the later one and its own units."""
    return And(
        Implies(r.M < other.M, r.S >= other.S + r.n),
        Implies(other.M < r.M, other.S >= r.S + other.n),
        Implies(r.M == other.M, r.S == other.S),
    )


def largest(a, b):
    return If(a > b, a, b)


def positive(a):
    return If(a > 0, a, 0)


bucket = [F > 0, Q >= 0, D >= now, U >= D]
others = [holds_for(x, D, U, Q), holds_for(i, D, U, Q), are_ordered(x, i)]

# --- A new reservation. ------------------------------------------------------------------------
# `j` is the next later one, if any is as late as the new one.
n, new_S, after_i = Reals("n new_S after_i")
M = D + n
is_new = [*bucket, n > 0]
follows_j = [holds_for(j, D, U, Q), M <= j.M, new_S == n + j.S]
is_last = [new_S == n]
proved("a new one before others holds", [*is_new, *follows_j], M >= M + new_S - F - Q)
proved("a new one behind all holds", [*is_new, *is_last, n <= F], M >= M + new_S - F - Q)
moved = [after_i == If(i.M <= M, i.S + n, i.S)]
proved("a new one leaves every other as it was", [*is_new, *moved, holds_for(i, D, U, Q)], And(M >= i.M + after_i - F - Q, i.M <= largest(U, M)))
next_is_next = [
    are_ordered(i, j),
    Implies(i.M >= M, i.M >= j.M),
]
new = Reservation("new")
is_made = [new.M == M, new.S == new_S, new.n == n, holds_for(i, D, U, Q)]
later_i = Reservation("later_i")
is_moved = [later_i.M == i.M, later_i.n == i.n, later_i.S == after_i, *moved]
proved("a new one before others is in order", [*is_new, *follows_j, *next_is_next, *is_made, *is_moved], are_ordered(later_i, new))
proved("a new one behind all is in order", [*is_new, *is_last, *is_made, *is_moved, i.M < M], are_ordered(later_i, new))

# --- x is cancelled. ---------------------------------------------------------------------------
# What returns: n, less what is behind it, or what has refilled since another bucket delayed it.
def after_cancel(back):
    return [after_i == If(i.M <= x.M, i.S - x.n, i.S)], largest(now, D - back)


back = positive(x.n - largest(positive(U - x.M), positive(now + x.n - x.M)))
lost, left = after_cancel(back)
proved("a cancellation keeps the invariant", [*bucket, *others, *lost], And(left >= i.M + after_i - F - Q, i.M <= U, U >= left))
proved("a cancellation returns at most its units", [*bucket, *others], And(back >= 0, back <= x.n))
# The server keeps U rounded up.
rounded = Real("rounded")
back_rounded = positive(x.n - largest(positive(rounded - x.M), positive(now + x.n - x.M)))
lost, left = after_cancel(back_rounded)
proved("a cancellation with U rounded up, too", [*bucket, *others, *lost, rounded >= U], And(left >= i.M + after_i - F - Q))

lost, left = after_cancel(x.n)
refuted("a cancellation that returns all units", [*bucket, *others, *lost], left >= i.M + after_i - F - Q)
lost, left = after_cancel(positive(x.n - positive(D - x.M)))
refuted("a cancellation that looks at D instead of U", [*bucket, *others, *lost], left >= i.M + after_i - F - Q)

# --- x, a hold, is settled with d less. --------------------------------------------------------
d, beside, Q_after = Reals("d beside Q_after")
waits = U > now + F
returned = If(waits, positive(d - (U - x.M)), d)
settles = [0 <= d, d <= x.n, Q_after == If(waits, Q, Q + d), after_i == If(i.M <= x.M, i.S - d, i.S)]
left = largest(now, D - returned)
proved("a settlement keeps the invariant", [*bucket, *others, *settles], left >= i.M + after_i - F - Q_after)
proved("a settlement beside a waiting reservation mints nothing", [*bucket, *others, *settles, waits], And(Q_after == Q, returned <= d))
refuted(
    "a settlement that returns all units beside a waiting reservation",
    [*bucket, *others, *settles, waits],
    largest(now, D - d) >= i.M + after_i - F - Q_after,
)
# An excess moves D and U on, and time only D. An operator's refund counts towards Q.
excess, span, units = Reals("excess span units")
proved("an excess keeps the invariant", [*bucket, holds_for(i, D, U, Q), excess >= 0], And(D + excess >= i.M + i.S - F - Q, i.M <= largest(U, D + excess)))
proved("time keeps the invariant", [*bucket, holds_for(i, D, U, Q), span >= 0], largest(D, now + span) >= i.M + i.S - F - Q)
proved("a refund keeps the invariant", [*bucket, holds_for(i, D, U, Q), units >= 0], largest(now, D - units) >= i.M + i.S - F - (Q + units))

# --- In every interval from a to b, at most F + (b - a) + Q goes on. ---------------------------
# W: those that wait at a. G: those that have gone on by then, and return units beside a reservation
# later; g is the first of them. `taken`: the units of W and of all that are charged after a, and
# what G will return, less what returns. It never exceeds D - a + Q:
a, b, taken, M_y, r, all_of_G, returned_by_G, kept_by_g = Reals("a b taken M_y r G returned_by_G kept_by_g")
at_a = [*bucket, holds_for(x, D, U, Q), now == a]
proved("W is within D - a", [*at_a, x.M >= a + F, taken == x.S], taken <= D - a + Q)
U_at_r = Real("U_at_r")
returns_later = [
    x.S == taken - returned_by_G + all_of_G,
    # g returns at r, beside a reservation, and keeps what is behind it.
    r >= a,
    U_at_r > r + F,
    kept_by_g >= U_at_r - x.M,
    returned_by_G <= all_of_G - kept_by_g,
]
proved("W and G are within D - a", [*at_a, *returns_later], taken <= D - a + Q)
proved("and with a new one", [taken <= D - a + Q, n > 0], taken + n <= (D + n) - a + Q)
proved("and without a cancelled one", [*bucket, *others, a <= now, taken <= D - a + Q], taken - x.n <= largest(now, D - back) - a + Q)
returns_now = [*bucket, *others, *settles, a <= now, taken <= D - a + Q]
proved("and after a settlement", returns_now, taken - If(waits, returned, 0) <= left - a + Q_after)
# y is the last to be charged of those that go on by b, so M_y <= b + F. `taken` is that at its charge.
proved("what goes on from a to b is within the limit", [M_y <= b + F, taken <= M_y - a + Q], taken <= F + (b - a) + Q)
# If y was charged before a: of all charged by then, x is the first to go on after a.
proved("also if all of it was charged before a", [holds_for(x, M_y, U, Q), x.M >= a + F, M_y <= b + F], x.S <= F + (b - a) + Q)

end()
