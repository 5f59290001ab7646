------------------------------ MODULE RuleChange ------------------------------
(***************************************************************************)
(* Two versions of a rule on one bucket, while instances change over.      *)
(*                                                                         *)
(* The store keeps the instant at which the bucket is full, and no number  *)
(* of any rule but one: the horizon, the furthest that this instant may    *)
(* lie ahead of the clock.  A rule whose units take u ticks to refill      *)
(* moves the instant by u for each unit, and admits a unit if the instant  *)
(* is then at most its own time to fill, F = C*u, ahead.                   *)
(*                                                                         *)
(* Calls that were made under the old rule arrive late, so both rules      *)
(* decide at any time.  Instances change over and back, one by one, with   *)
(* units on lease.  The store's clock goes back.                           *)
(*                                                                         *)
(* All times are relative to the present.  The code:                       *)
(* fluxgate-core/src/algorithm/bucket.rs, fluxgate-redis/src/lua/          *)
(* bucket.lua, fluxgate-redis/src/lease/table.rs and shard.rs.             *)
(***************************************************************************)
EXTENDS Integers

CONSTANTS
    Instances,  \* a set of model values
    C1, C2,     \* the capacity of each rule
    U1, U2,     \* ticks in which a unit refills, of each rule
    L1, L2,     \* units that may be on lease, of each rule
    MaxBack     \* how often the store's clock goes back, a tick each time

Rules == {1, 2}
Capacity == <<C1, C2>>
UnitTime == <<U1, U2>>
Share == <<L1, L2>>

VARIABLES
    owed,       \* ticks until the bucket is full
    horizon,    \* of the rule that last took units
    rule,       \* the rule of each instance
    held,       \* the units that each instance has on lease, and under which rule
    returning,  \* units that were given back, on their way to the store
    lost,       \* units on lease that nobody can spend any more
    meters,     \* for each rule an ideal leaky bucket that watches, in ticks, as in Leases.tla
    joint,      \* one for both
    backs

vars == <<owed, horizon, rule, held, returning, lost, meters, joint, backs>>

Least(a, b) == IF a < b THEN a ELSE b
Positive(a) == IF a > 0 THEN a ELSE 0
Fill(r) == Capacity[r] * UnitTime[r]
\* What is left of a rule for requests that the store decides, and for grants.
SharedFill(r) == Fill(r) - Share[r] * UnitTime[r]
\* A horizon is at least twice the time to fill.  The code rounds it up to a power of two.
Horizons == <<2 * Fill(1), 2 * Fill(2)>>
Longest == IF Fill(1) > Fill(2) THEN Fill(1) ELSE Fill(2)
Nothing == [units |-> 0, rule |-> 1]

RECURSIVE SumHeld(_)
SumHeld(instances) ==
    IF instances = {} THEN 0
    ELSE LET i == CHOOSE i \in instances : TRUE IN held[i].units + SumHeld(instances \ {i})
\* All units on lease, of whichever rule: the store keeps one sum.
Out == SumHeld(Instances) + returning.units + lost

Admit(r) ==
    /\ meters' = [meters EXCEPT ![r] = @ + UnitTime[r]]
    /\ joint' = joint + UnitTime[r]

\* Moves the instant by units of a rule.
Charge(r, units) ==
    /\ owed' = owed + units * UnitTime[r]
    /\ horizon' = Horizons[r]

Decide(r) ==
    /\ owed + UnitTime[r] <= SharedFill(r)
    /\ Charge(r, 1)
    /\ Admit(r)
    /\ UNCHANGED <<rule, held, returning, lost, backs>>

\* A settlement above what was reserved, and `charge: always`: as many units as fit into 2*C, also none.
Excess(r, units) ==
    /\ owed + units * UnitTime[r] <= 2 * Fill(r)
    /\ units > 0
    /\ Charge(r, units)
    /\ UNCHANGED <<rule, held, returning, lost, meters, joint, backs>>

Grant(i) ==
    LET r == rule[i] IN
    /\ held[i] = Nothing
    /\ \E units \in 1..Share[r] :
        /\ Out + units <= Share[r]
        /\ owed + units * UnitTime[r] <= SharedFill(r)
        /\ Charge(r, units)
        /\ held' = [held EXCEPT ![i] = [units |-> units, rule |-> r]]
    /\ UNCHANGED <<rule, returning, lost, meters, joint, backs>>

\* Units are spent under the rule under which they were granted.
SpentUnder(i) == held[i].rule
MaySpend(i) == held[i].units > 0 /\ held[i].rule = rule[i]
Spend(i) ==
    /\ MaySpend(i)
    /\ Admit(SpentUnder(i))
    \* The store counts them until they are reported or end.
    /\ held' = [held EXCEPT ![i] = IF @.units = 1 THEN Nothing ELSE [@ EXCEPT !.units = @ - 1]]
    /\ lost' = lost + 1
    /\ UNCHANGED <<owed, horizon, rule, returning, backs>>

GiveBack(i) ==
    /\ held[i].units > 0
    /\ returning.units = 0
    /\ returning' = held[i]
    /\ held' = [held EXCEPT ![i] = Nothing]
    /\ UNCHANGED <<owed, horizon, rule, lost, meters, joint, backs>>

\* The refund is of the rule under which the units were charged.
TakeBack ==
    /\ returning.units > 0
    /\ owed' = Positive(owed - returning.units * UnitTime[returning.rule])
    /\ returning' = Nothing
    /\ UNCHANGED <<horizon, rule, held, lost, meters, joint, backs>>

Crash(i) ==
    /\ held[i].units > 0
    /\ lost' = lost + held[i].units
    /\ held' = [held EXCEPT ![i] = Nothing]
    /\ UNCHANGED <<owed, horizon, rule, returning, meters, joint, backs>>

\* Units that were reported as spent, or that have ended, are not out any more.
End ==
    /\ lost > 0
    /\ lost' = lost - 1
    /\ UNCHANGED <<owed, horizon, rule, held, returning, meters, joint, backs>>

Switch(i) ==
    /\ rule' = [rule EXCEPT ![i] = 3 - @]
    /\ UNCHANGED <<owed, horizon, held, returning, lost, meters, joint, backs>>

Tick ==
    /\ owed' = Positive(owed - 1)
    \* The key expires when the bucket is full.
    /\ horizon' = IF owed <= 1 THEN 0 ELSE horizon
    /\ meters' = [r \in Rules |-> Positive(meters[r] - 1)]
    /\ joint' = Positive(joint - 1)
    /\ UNCHANGED <<rule, held, returning, lost, backs>>

GoBack ==
    /\ backs < MaxBack
    /\ backs' = backs + 1
    /\ owed' = IF owed = 0 THEN 0 ELSE owed + 1
    /\ UNCHANGED <<horizon, rule, held, returning, lost, meters, joint>>

\* A call under a rule pulls an instant back that lies beyond the horizon, and whether it is denied
\* or charges nothing, it changes nothing else.
PulledTo(r) == horizon
Correct(r) ==
    /\ owed > PulledTo(r)
    /\ owed' = PulledTo(r)
    /\ UNCHANGED <<horizon, rule, held, returning, lost, meters, joint, backs>>

\* A settlement of which nothing fits keeps the horizon.
HorizonAfterNothing(r) == horizon
ChargeNothing(r) ==
    /\ owed + UnitTime[r] > 2 * Fill(r)
    /\ horizon' = HorizonAfterNothing(r)
    /\ horizon' # horizon
    /\ UNCHANGED <<owed, rule, held, returning, lost, meters, joint, backs>>

Init ==
    /\ owed = 0
    /\ horizon = 0
    /\ rule = [i \in Instances |-> 1]
    /\ held = [i \in Instances |-> Nothing]
    /\ returning = Nothing
    /\ lost = 0
    /\ meters = [r \in Rules |-> 0]
    /\ joint = 0
    /\ backs = 0

Next ==
    \/ \E r \in Rules :
        \/ Decide(r)
        \/ \E units \in 1..(2 * Capacity[r]) : Excess(r, units)
        \/ Correct(r)
        \/ ChargeNothing(r)
    \/ \E i \in Instances : Grant(i) \/ Spend(i) \/ GiveBack(i) \/ Crash(i) \/ Switch(i)
    \/ TakeBack
    \/ End
    \/ Tick
    \/ GoBack

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
\* The most time that units on lease may come to when an interval begins: those of rule r are spent,
\* and those of the other one return.
LeasedTime(r) ==
    LET other == 3 - r
        most == IF Share[1] > Share[2] THEN Share[1] ELSE Share[2]
        time(own) == own * UnitTime[r] + (most - own) * UnitTime[other]
    IN IF time(Share[r]) > time(0) THEN time(Share[r]) ELSE time(0)

\* In every interval of t ticks, each rule admits at most C units and what it refills in t.  While
\* units on lease under another rule return, it may admit as many as that rule leases beyond its own
\* share.
NeverOver == \A r \in Rules : meters[r] <= SharedFill(r) + LeasedTime(r)

\* Both together admit at most what both would.
TogetherNeverOver == joint <= Fill(1) + Fill(2)

\* Without leases, what one rule uses is gone for the other.
JointlyNeverOver == (\A r \in Rules : Share[r] = 0) => joint <= Longest

\* A state within its horizon heals: the bucket owes no more than that after the next call.
Bounds == backs = 0 => owed <= horizon
=============================================================================
