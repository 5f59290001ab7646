------------------------------- MODULE Leases -------------------------------
(***************************************************************************)
(* Leases: instances take units of a shared bucket in advance and spend    *)
(* them without asking.                                                    *)
(*                                                                         *)
(* The store keeps a bucket that refills one unit a tick, and the units    *)
(* that are out on lease by when they end.  Of the capacity C, the share L *)
(* may be out; the bucket has the capacity C - L.  An instance asks for    *)
(* units, and in the same call reports what it has spent and what it gives *)
(* back of earlier grants.  It counts the life of a grant by its own       *)
(* clock, from before it asked, and stops early.                           *)
(*                                                                         *)
(* Calls and replies are lost and arrive late, also after the instance has *)
(* given up waiting; instances crash; their clocks fall behind; the        *)
(* store's clock goes back; a failover loses the last writes.              *)
(*                                                                         *)
(* All times are relative to the present, so the state space is finite.    *)
(* The code: fluxgate-core/src/algorithm/grant.rs,                         *)
(* fluxgate-redis/src/lua/lease.lua, fluxgate-redis/src/lease/holder.rs.   *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Instances,  \* a set of model values
    Capacity,   \* C
    Share,      \* L, at most half of C
    Span,       \* how many ticks a lease lasts
    Drift,      \* by how many ticks an instance's clock may fall behind in one lease
    MaxGrants,  \* the most grants of an instance
    MaxMessages,\* the most messages on their way
    MaxBack,    \* how often the store's clock goes back, a tick each time
    MaxLosses   \* how often a failover loses writes

VARIABLES
    owed,       \* ticks until the shared bucket is full
    out,        \* units on lease, by the ticks until they end
    grants,     \* of each instance, a sequence of grants
    calls,      \* of each instance, the call that it waits for
    network,    \* messages on their way
    meter,      \* what was admitted: see Admit
    backs,      \* how often the store's clock has gone back
    losses,     \* how often writes were lost
    replica     \* what a failover would restore

vars == <<owed, out, grants, calls, network, meter, backs, losses, replica>>

\* The store rounds the end of a grant up, here by at most a tick.
MaxEnd == Span + 1
Ends == 1..MaxEnd
\* How far the bucket's instant may lie ahead: its horizon.
Horizon == 2 * (Capacity - Share)
\* An instance does not use the last ticks of a lease, because its clock may be behind.
Usable == Span - Drift
NoCall == [life |-> -1, behind |-> 0]
NoGrants == <<>>
NothingOut == [end \in Ends |-> 0]

Least(a, b) == IF a < b THEN a ELSE b
Positive(a) == IF a > 0 THEN a ELSE 0

RECURSIVE SumTo(_, _)
SumTo(f, n) == IF n = 0 THEN 0 ELSE f[n] + SumTo(f, n - 1)
SumOut(o) == SumTo(o, MaxEnd)

(***************************************************************************)
(* The meter is an ideal leaky bucket that watches: it grows by each unit  *)
(* that is admitted, anywhere, and falls by one each tick.  Its level is   *)
(* the largest, over all intervals that end now, of the units admitted in  *)
(* the interval less its ticks.  So it is at most C if and only if every   *)
(* interval of t ticks admits at most C + t units.                         *)
(***************************************************************************)
Admit(units) == meter' = meter + units

-----------------------------------------------------------------------------
(* The store.  It handles one call at a time.                              *)

\* A request that the store decides itself.
Decide ==
    /\ owed + 1 <= Capacity - Share
    /\ owed' = owed + 1
    /\ Admit(1)
    /\ UNCHANGED <<out, grants, calls, network, backs, losses, replica>>

\* Applies a report to a state.  It is ignored unless that many units are out until that end.
Applied(state, report) ==
    LET units == report.spent + report.back IN
    IF report.end \in Ends /\ state.out[report.end] >= units
    THEN [owed |-> Positive(state.owed - report.back),
          out |-> [state.out EXCEPT ![report.end] = @ - units]]
    ELSE state

RECURSIVE AllApplied(_, _)
AllApplied(state, reports) ==
    IF reports = <<>> THEN state ELSE AllApplied(Applied(state, Head(reports)), Tail(reports))

\* The most units that may be granted.  The code grants at most half of either.
Grantable(state) ==
    Least(Share - SumOut(state.out), (Capacity - Share) - state.owed)

Granted(state, units, end) ==
    [owed |-> state.owed + units, out |-> [state.out EXCEPT ![end] = @ + units]]

\* The store handles a call.  It answers unless the instance no longer waits.
Handle(call) ==
    LET before == AllApplied([owed |-> owed, out |-> out], call.reports) IN
    \E units \in 0..Positive(Grantable(before)), end \in {Span, Span + 1} :
        /\ units = 0 => end = Span
        /\ LET after == Granted(before, units, end) IN
            /\ owed' = after.owed
            /\ out' = after.out
        /\ network' = (network \ {call}) \cup
            IF call.late THEN {}
            ELSE {[kind |-> "reply", instance |-> call.instance, units |-> units, end |-> end]}
        /\ UNCHANGED <<grants, calls, meter, backs, losses, replica>>

-----------------------------------------------------------------------------
(* An instance.                                                            *)

ReportOf(grant, gives_back) ==
    [end |-> grant.end, spent |-> grant.spent, back |-> IF gives_back THEN grant.units ELSE 0]

AfterReport(grant, gives_back) ==
    [grant EXCEPT !.spent = 0, !.units = IF gives_back THEN 0 ELSE @]


\* Asks for units.  Each unit is reported once, as spent or as given back.
Ask(i, gives_back) ==
    /\ calls[i] = NoCall
    /\ gives_back \/ Len(grants[i]) < MaxGrants
    /\ Cardinality(network) < MaxMessages
    /\ LET reports == [g \in DOMAIN grants[i] |-> ReportOf(grants[i][g], gives_back)]
           rest == [g \in DOMAIN grants[i] |-> AfterReport(grants[i][g], gives_back)]
       IN /\ gives_back => reports # <<>>
          /\ network' = network \cup
              {[kind |-> "call", instance |-> i, late |-> FALSE,
                reports |-> SelectSeq(reports, LAMBDA r : r.spent + r.back > 0)]}
          /\ grants' = [grants EXCEPT ![i] = SelectSeq(rest, LAMBDA g : g.units > 0)]
    /\ calls' = [calls EXCEPT ![i] = [life |-> Usable, behind |-> 0]]
    /\ UNCHANGED <<owed, out, meter, backs, losses, replica>>

\* The life of the units has begun when the call was made.
Receive(reply) ==
    LET i == reply.instance
        grant == [units |-> reply.units, spent |-> 0, end |-> reply.end,
                  life |-> calls[i].life, behind |-> calls[i].behind]
    IN /\ grants' = IF reply.units > 0 /\ grant.life > 0
                    THEN [grants EXCEPT ![i] = Append(@, grant)] ELSE grants
       /\ calls' = [calls EXCEPT ![i] = NoCall]
       /\ network' = network \ {reply}
       /\ UNCHANGED <<owed, out, meter, backs, losses, replica>>

Spend(i) ==
    \E g \in DOMAIN grants[i] :
        /\ grants[i][g].units > 0
        /\ grants' = [grants EXCEPT ![i][g].units = @ - 1, ![i][g].spent = @ + 1]
        /\ Admit(1)
        /\ UNCHANGED <<owed, out, calls, network, backs, losses, replica>>

\* What is on its way from or to an instance that no longer waits: its call may arrive late.
Unawaited(i) ==
    {IF m.instance = i /\ m.kind = "call" THEN [m EXCEPT !.late = TRUE] ELSE m :
        m \in {m \in network : ~(m.instance = i /\ m.kind = "reply")}}

\* Nothing is sent again: the store may have handled the call.
GiveUp(i) ==
    /\ calls[i] # NoCall
    /\ calls' = [calls EXCEPT ![i] = NoCall]
    /\ network' = Unawaited(i)
    /\ UNCHANGED <<owed, out, grants, meter, backs, losses, replica>>

Crash(i) ==
    /\ grants[i] # NoGrants
    /\ grants' = [grants EXCEPT ![i] = NoGrants]
    /\ calls' = [calls EXCEPT ![i] = NoCall]
    /\ network' = Unawaited(i)
    /\ UNCHANGED <<owed, out, meter, backs, losses, replica>>

-----------------------------------------------------------------------------
(* The world.                                                              *)

LoseMessage(m) ==
    /\ network' = network \ {m}
    /\ UNCHANGED <<owed, out, grants, calls, meter, backs, losses, replica>>

\* The ticks until an end go by with the store's clock.  An end that passed stays recorded for
\* as long as the clock may go back to it.
Later(end) == IF end > -MaxBack THEN end - 1 ELSE end
MessageLater(m) ==
    IF m.kind = "reply" THEN [m EXCEPT !.end = Later(@)]
    ELSE [m EXCEPT !.reports = [r \in DOMAIN @ |-> [@[r] EXCEPT !.end = Later(@)]]]
Earlier(end) == end + 1
MessageEarlier(m) ==
    IF m.kind = "reply" THEN [m EXCEPT !.end = Earlier(@)]
    ELSE [m EXCEPT !.reports = [r \in DOMAIN @ |-> [@[r] EXCEPT !.end = Earlier(@)]]]

OutLater(o) == [end \in Ends |-> IF end = MaxEnd THEN 0 ELSE o[end + 1]]
\* Units that would last longer than any lease end with the longest.
OutEarlier(o) ==
    [end \in Ends |-> CASE end = 1 -> 0
                        [] end = MaxEnd -> o[end - 1] + o[end]
                        [] OTHER -> o[end - 1]]

Aged(life, slow) == [life EXCEPT !.life = IF slow THEN @ ELSE Positive(@ - 1),
                                 !.behind = IF slow THEN @ + 1 ELSE @]
MayBeSlow(i) ==
    /\ \A g \in DOMAIN grants[i] : grants[i][g].behind < Drift
    /\ calls[i] # NoCall => calls[i].behind < Drift
GrantLater(grant, slow) == [Aged(grant, slow) EXCEPT !.end = Later(@)]

\* A tick by the store's clock.  The clocks of some instances fall behind.
Tick ==
    \E slow \in SUBSET {i \in Instances : MayBeSlow(i)} :
        /\ \A i \in slow : grants[i] # NoGrants \/ calls[i] # NoCall
        /\ owed' = Positive(owed - 1)
        /\ out' = OutLater(out)
        /\ grants' = [i \in Instances |-> SelectSeq(
               [g \in DOMAIN grants[i] |-> GrantLater(grants[i][g], i \in slow)],
               LAMBDA g : g.life > 0)]
        /\ calls' = [i \in Instances |->
               \* A call without life left is still waited for, and grants nothing.
               IF calls[i] = NoCall THEN NoCall ELSE Aged(calls[i], i \in slow)]
        /\ network' = {MessageLater(m) : m \in network}
        /\ meter' = Positive(meter - 1)
        /\ replica' = IF replica = <<>> THEN <<>>
                      ELSE <<[owed |-> Positive(replica[1].owed - 1), out |-> OutLater(replica[1].out)]>>
        /\ UNCHANGED <<backs, losses>>

\* The store's clock goes back.  The bucket's instant stays; a key that has expired stays gone.
GoBack ==
    /\ backs < MaxBack
    /\ backs' = backs + 1
    /\ owed' \in {Least(owed + 1, Horizon)} \cup IF owed = 0 THEN {0} ELSE {}
    /\ out' = OutEarlier(out)
    /\ grants' = [i \in Instances |->
           [g \in DOMAIN grants[i] |-> [grants[i][g] EXCEPT !.end = Earlier(@)]]]
    /\ network' = {MessageEarlier(m) : m \in network}
    /\ replica' = IF replica = <<>> THEN <<>>
                  ELSE <<[owed |-> replica[1].owed + 1, out |-> OutEarlier(replica[1].out)]>>
    /\ UNCHANGED <<calls, meter, losses>>

\* A replica has what the store has now; later writes do not reach it.
Replicate ==
    /\ losses < MaxLosses
    /\ replica' = <<[owed |-> owed, out |-> out]>>
    /\ replica' # replica
    /\ UNCHANGED <<owed, out, grants, calls, network, meter, backs, losses>>

Failover ==
    /\ losses < MaxLosses
    /\ replica # <<>>
    /\ losses' = losses + 1
    /\ owed' = replica[1].owed
    /\ out' = replica[1].out
    /\ replica' = <<>>
    /\ UNCHANGED <<grants, calls, network, meter, backs>>

-----------------------------------------------------------------------------
Init ==
    /\ owed = 0
    /\ out = NothingOut
    /\ grants = [i \in Instances |-> NoGrants]
    /\ calls = [i \in Instances |-> NoCall]
    /\ network = {}
    /\ meter = 0
    /\ backs = 0
    /\ losses = 0
    /\ replica = <<>>

Next ==
    \/ Decide
    \/ \E i \in Instances : Ask(i, TRUE) \/ Ask(i, FALSE) \/ Spend(i) \/ GiveUp(i) \/ Crash(i)
    \/ \E m \in network : IF m.kind = "call" THEN Handle(m) ELSE Receive(m)
    \/ \E m \in network : LoseMessage(m)
    \/ Tick
    \/ GoBack
    \/ Replicate
    \/ Failover

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
\* Every interval of t ticks admits at most C + t units; C - L more for each loss of writes.
NeverOver == meter <= Capacity + losses * (Capacity - Share)

\* At most L units are out.
ShareKept == SumOut(out) <= Share

\* Without losses, all units that can be spent are out, by their end.
RECURSIVE UnitsUntil(_, _)
UnitsUntil(sequence, end) ==
    IF sequence = <<>> THEN 0
    ELSE (IF Head(sequence).end = end THEN Head(sequence).units + Head(sequence).spent ELSE 0)
         + UnitsUntil(Tail(sequence), end)
RECURSIVE HeldUntil(_, _)
HeldUntil(instances, end) ==
    IF instances = {} THEN 0
    ELSE LET i == CHOOSE i \in instances : TRUE IN
         UnitsUntil(grants[i], end) + HeldUntil(instances \ {i}, end)
HeldIsOut ==
    losses = 0 /\ backs = 0 =>
        /\ \A end \in Ends : HeldUntil(Instances, end) <= out[end]
        /\ \A i \in Instances : \A g \in DOMAIN grants[i] : grants[i][g].end \in Ends
=============================================================================
