-------------------------------- MODULE Waits --------------------------------
(***************************************************************************)
(* Requests that wait for their units, and leave; and holds beside them.   *)
(*                                                                         *)
(* A bucket of capacity C refills one unit a tick.  A request that finds   *)
(* too few units reserves them out of the future: it moves the bucket's    *)
(* instant, the one at which the bucket would be full, and may go on when  *)
(* that instant is C ticks away.  A request that leaves before cancels its *)
(* reservation: its units return, except those that later requests were    *)
(* queued behind.  To know them the store remembers the latest instant     *)
(* that any request got, beside the bucket's own.  A request may be        *)
(* settled later with less than it reserved.                               *)
(*                                                                         *)
(* Cancellations are lost, late and repeated: the record of a reservation  *)
(* makes it cancelled once.  Waiting processes are slow: a request may be  *)
(* cancelled after it could have gone on, but does not go on any more.     *)
(*                                                                         *)
(* All times are relative to the present.  The code:                       *)
(* fluxgate-core/src/algorithm/bucket.rs, fluxgate-redis/src/lua/          *)
(* bucket.lua, bucket_refund.lua and adjust.lua, fluxgate-redis/src/       *)
(* holds.rs.                                                               *)
(***************************************************************************)
EXTENDS Integers

CONSTANTS
    Requests,   \* a set of model values
    Capacity,   \* C
    MaxWait,    \* the longest wait, in ticks
    MaxCost,    \* the most units of a request
    WithHolds,  \* whether requests are settled with less
    MaxRefund,  \* the most units that return while no request waits
    MaxLosses   \* how often a failover loses writes

VARIABLES
    owed,       \* ticks until the bucket is full
    latest,     \* ticks until the latest instant that any request got; at least `owed`
    requests,   \* see Idle, Waiting and Running
    records,    \* the requests whose record is in the store, so that they can be cancelled or settled
    begun,      \* whether the interval that is watched has begun
    inside,     \* the requests that have gone on in it
    meter,      \* what has gone on in it, less its ticks
    refunded,   \* units that have returned while no request waited
    losses,
    replica     \* what a failover would restore

vars == <<owed, latest, requests, records, begun, inside, meter, refunded, losses, replica>>

Idle == [phase |-> "idle", cost |-> 0, mark |-> 0]
\* `mark`: ticks until the instant to which a request moved the bucket; below 0 it does not matter.
Lowest == -1
NoReplica == [owed |-> -1, latest |-> 0, records |-> {}]

Most(a, b) == IF a > b THEN a ELSE b
Positive(a) == Most(a, 0)

(***************************************************************************)
(* Without holds the meter is an ideal leaky bucket, as in Leases.tla, and *)
(* watches all intervals at once.  With holds, what a request really costs *)
(* is known later, so the watched interval begins at any one instant: a    *)
(* request that goes on in it counts with its real cost.                   *)
(***************************************************************************)
Begin ==
    /\ ~begun
    /\ begun' = TRUE
    /\ UNCHANGED <<owed, latest, requests, records, inside, meter, refunded, losses, replica>>
LeastMeter == IF WithHolds THEN -(Capacity + MaxWait) ELSE 0
Admit(r) ==
    /\ meter' = IF begun THEN meter + requests[r].cost ELSE meter
    /\ inside' = IF begun /\ WithHolds THEN inside \cup {r} ELSE inside

\* A full bucket has no state: the latest instant is forgotten with it.
State(o, l) ==
    /\ owed' = o
    /\ latest' = IF o = 0 THEN 0 ELSE Most(o, l)

-----------------------------------------------------------------------------
\* A request takes units, now or in time.
Reserve(r, cost) ==
    LET mark == owed + cost IN
    /\ requests[r].phase = "idle"
    /\ mark <= Capacity + MaxWait
    /\ State(mark, latest)
    /\ requests' = [requests EXCEPT ![r] = [phase |-> "waiting", cost |-> cost, mark |-> mark]]
    /\ records' = records \cup {r}
    /\ UNCHANGED <<begun, inside, meter, refunded, losses, replica>>

\* Its turn has come.
MayGoOn(request) == request.phase = "waiting" /\ request.mark <= Capacity

NobodyMayGoOn == \A r \in Requests : ~MayGoOn(requests[r])

GoOn(r) ==
    /\ MayGoOn(requests[r])
    /\ Admit(r)
    /\ requests' = [requests EXCEPT ![r] = IF WithHolds THEN [@ EXCEPT !.phase = "running"] ELSE Idle]
    /\ records' = IF WithHolds THEN records ELSE records \ {r}
    /\ UNCHANGED <<owed, latest, begun, refunded, losses, replica>>

-----------------------------------------------------------------------------
(* Cancellation.                                                           *)

\* What is queued behind a request, and what has refilled since the bucket let it go on, stays.
ReturnedByCancel(request) ==
    LET behind == Positive(latest - request.mark)
        refilled == Positive(request.cost - request.mark)
    IN IF owed = 0 THEN 0 ELSE Positive(request.cost - Most(behind, refilled))

\* A client leaves and cancels; the message may be lost.
Leave(r) ==
    /\ requests[r].phase = "waiting"
    /\ requests' = [requests EXCEPT ![r].phase = "left"]
    /\ UNCHANGED <<owed, latest, records, begun, inside, meter, refunded, losses, replica>>

\* The store cancels a request once: it deletes the record first.  A request whose turn has come
\* returns nothing any more.
IsInTime(request) == request.mark >= Capacity
Cancel(r) ==
    /\ requests[r].phase = "left"
    /\ IsInTime(requests[r])
    /\ r \in records
    /\ State(Positive(owed - ReturnedByCancel(requests[r])), latest)
    /\ records' = records \ {r}
    /\ UNCHANGED <<requests, begun, inside, meter, refunded, losses, replica>>

\* The record expires, and nobody remembers the request.
Forget(r) ==
    /\ requests[r].phase = "left"
    /\ requests' = [requests EXCEPT ![r] = Idle]
    /\ records' = records \ {r}
    /\ UNCHANGED <<owed, latest, begun, inside, meter, refunded, losses, replica>>

-----------------------------------------------------------------------------
(* Settlement.                                                             *)

\* As far as the store knows: a request that has left may have got the latest instant.
SomeoneWaits == latest > Capacity
SomeoneDoesWait == \E r \in Requests : requests[r].phase = "waiting" /\ requests[r].mark > Capacity

ReturnedBySettle(request, less) ==
    IF SomeoneWaits THEN Positive(less - Positive(latest - request.mark)) ELSE less

\* A request that runs is settled with `less` fewer units.  What returns while no request waits is
\* as if an operator had refunded it; beside a waiting request nobody gains by it.
Settle(r, less) ==
    LET returned == ReturnedBySettle(requests[r], less) IN
    /\ requests[r].phase = "running"
    /\ r \in records
    \* Of all that happens at an instant, those whose turn has come go on first.
    /\ NobodyMayGoOn
    /\ State(Positive(owed - returned), latest)
    /\ meter' = IF r \in inside THEN Most(meter - less, LeastMeter) ELSE meter
    /\ inside' = inside \ {r}
    /\ refunded' = IF SomeoneDoesWait THEN refunded ELSE refunded + returned
    /\ refunded' <= MaxRefund
    /\ requests' = [requests EXCEPT ![r] = Idle]
    /\ records' = records \ {r}
    /\ UNCHANGED <<begun, losses, replica>>

-----------------------------------------------------------------------------
\* A request goes on when its turn has come.  One whose process stands still goes on later, beside
\* others: that is beyond what the store can know.
Tick ==
    /\ NobodyMayGoOn
    /\ State(Positive(owed - 1), Positive(latest - 1))
    /\ meter' = IF begun THEN Most(meter - 1, LeastMeter) ELSE meter
    /\ requests' = [r \in Requests |->
           IF requests[r].phase = "idle" THEN requests[r]
           ELSE [requests[r] EXCEPT !.mark = Most(@ - 1, Lowest)]]
    /\ replica' = IF replica = NoReplica THEN replica
                  ELSE [replica EXCEPT !.owed = Positive(@ - 1),
                                       !.latest = IF replica.owed <= 1 THEN 0 ELSE Positive(@ - 1)]
    /\ UNCHANGED <<records, begun, inside, refunded, losses>>

Replicate ==
    /\ losses < MaxLosses
    /\ replica' = [owed |-> owed, latest |-> latest, records |-> records]
    /\ UNCHANGED <<owed, latest, requests, records, begun, inside, meter, refunded, losses>>

Failover ==
    /\ losses < MaxLosses
    /\ replica # NoReplica
    /\ owed' = replica.owed
    /\ latest' = replica.latest
    \* Of requests that are not known any more nothing is left to return.
    /\ records' = {r \in replica.records : requests[r].phase # "idle"}
    /\ losses' = losses + 1
    /\ replica' = NoReplica
    /\ UNCHANGED <<requests, begun, inside, meter, refunded>>

Init ==
    /\ owed = 0
    /\ latest = 0
    /\ requests = [r \in Requests |-> Idle]
    /\ records = {}
    /\ begun = ~WithHolds
    /\ inside = {}
    /\ meter = 0
    /\ refunded = 0
    /\ losses = 0
    /\ replica = NoReplica

Next ==
    \/ \E r \in Requests :
        \/ \E cost \in 1..MaxCost : Reserve(r, cost)
        \/ GoOn(r)
        \/ Leave(r)
        \/ Cancel(r)
        \/ Forget(r)
        \/ \E less \in 1..requests[r].cost : Settle(r, less)
    \/ Begin
    \/ Tick
    \/ Replicate
    \/ Failover

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
\* In every interval of t ticks, requests that go on cost at most C + t units, and what was refunded.
NeverOver == meter <= Capacity + refunded + losses * (Capacity + MaxWait)

\* While a request waits, the bucket owes what that request and those behind it have reserved, so
\* that no newcomer gets an instant that is theirs.  A hold that returned units while no request
\* waited has left room for a newcomer.
ServedInOrder ==
    losses = 0 /\ ~WithHolds => \A r \in Requests :
        requests[r].phase = "waiting" /\ ~MayGoOn(requests[r]) =>
            owed >= requests[r].mark - Capacity + requests[r].cost

Bounds == /\ owed \in 0..(Capacity + MaxWait)
          /\ owed <= latest \/ owed = 0
=============================================================================
