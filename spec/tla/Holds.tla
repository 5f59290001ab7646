-------------------------------- MODULE Holds --------------------------------
(***************************************************************************)
(* Holds: charges that are settled later, and slots that live as long.     *)
(*                                                                         *)
(* A request takes a slot of K and reserves units of a window of C, or     *)
(* neither.  The store keeps a record of what it reserved and where.  The  *)
(* hold is settled with the real cost, renewed, or expires: then its slot  *)
(* is free, and its units stay charged.                                    *)
(*                                                                         *)
(* Settlements and renewals are lost, late and repeated: they can happen   *)
(* at any time and any number of times after the request was decided,      *)
(* also if the reply to it was lost (then never).  Processes crash: then   *)
(* nothing is settled.  The store's clock goes on and back; a failover     *)
(* loses the last writes; an operator resets or refunds.                   *)
(*                                                                         *)
(* The code: fluxgate-redis/src/lua/hold.lua, settle.lua, concurrency.lua  *)
(* and adjust.lua, fluxgate-core/src/algorithm/adjust.rs and               *)
(* concurrency.rs.                                                         *)
(***************************************************************************)
EXTENDS Integers

CONSTANTS
    Ids,        \* a set of model values: the holds
    Capacity,   \* C, of each window
    Width,      \* ticks of a window
    Slots,      \* K
    Life,       \* ticks that a hold lives after it was taken or renewed
    MaxTime,    \* the last tick
    MaxReserved,\* the most units that a request reserves
    MaxExcess,  \* by how many units a real cost may exceed what was reserved
    MaxBack,    \* how often the clock goes back, a tick each time
    MaxGifts,   \* how often an operator resets or refunds
    MaxLosses   \* how often a failover loses writes

VARIABLES
    now,
    window,     \* the counter: which window it counts, and the units
    slots,      \* when the slot of a hold ends; None if it has none
    records,    \* the records in the store
    costs,      \* what a hold really costs: what it has reserved until it is settled, and where
    settled,    \* holds that were settled
    expired,    \* holds whose slot has ended by itself
    gifts,      \* units that operators gave back, by window
    backs, given, losses,
    replica     \* what a failover would restore

vars == <<now, window, slots, records, costs, settled, expired, gifts, backs, given, losses, replica>>

None == -1
NoRecord == [ends |-> None, mark |-> None, reserved |-> 0]
NoCost == [units |-> 0, mark |-> None]
NoWindow == [index |-> None, count |-> 0]
Windows == 0..(MaxTime \div Width)
NoReplica == [window |-> NoWindow, slots |-> {}, records |-> {}]

Least(a, b) == IF a < b THEN a ELSE b
Positive(a) == IF a > 0 THEN a ELSE 0

RECURSIVE SumOver(_, _)
SumOver(ids, f) ==
    IF ids = {} THEN 0
    ELSE LET id == CHOOSE id \in ids : TRUE IN f[id] + SumOver(ids \ {id}, f)
Count(ids) == SumOver(ids, [id \in Ids |-> 1])

-----------------------------------------------------------------------------
(* The store.                                                              *)

\* The window to decide in.  One that begins within a window's length is decided as if it had begun.
Current ==
    LET index == now \div Width IN
    IF window.index = index \/ window.index = index + 1 THEN window
    ELSE IF window.index > index + 1 THEN [index |-> index, count |-> window.count]
    ELSE [index |-> index, count |-> 0]

\* A slot that would end later than its life allows, because the clock went back, ends earlier.
Corrected(s) == [id \in Ids |-> IF s[id] > now + Life THEN now + Life ELSE s[id]]
Live(s) == {id \in Ids : s[id] > now}

\* Takes a slot and units, or neither.  Slots that have ended are removed.
Take(id, units) ==
    LET current == Current
        corrected == Corrected(slots)
    IN /\ costs[id] = NoCost
       /\ current.count + units <= Capacity
       /\ Count(Live(corrected)) < Slots
       /\ window' = [current EXCEPT !.count = @ + units]
       /\ slots' = [other \in Ids |->
              IF other = id THEN now + Life
              ELSE IF corrected[other] > now THEN corrected[other] ELSE None]
       /\ records' = [records EXCEPT ![id] =
              [ends |-> now + Life, mark |-> current.index, reserved |-> units]]
       /\ costs' = [costs EXCEPT ![id] = [units |-> units, mark |-> current.index]]
       /\ UNCHANGED <<now, settled, expired, gifts, backs, given, losses, replica>>

\* A hold ends with its slot, or when its record says so.
EndOf(id) == IF slots[id] # None THEN slots[id] ELSE records[id].ends
IsHeld(id) == records[id] # NoRecord /\ EndOf(id) > now

\* Units return to the window that was charged, while it counts.
Returned(id, units) ==
    IF window.index = records[id].mark /\ Current.index = records[id].mark
    THEN [window EXCEPT !.count = Positive(@ - units)]
    ELSE window
\* What exceeds the reserved units is charged at once, in the window of now, up to twice the capacity.
Charged(units) == [Current EXCEPT !.count = @ + Least(units, Positive(2 * Capacity - @))]

Settle(id, cost) ==
    /\ IsHeld(id)
    /\ window' = IF cost < records[id].reserved THEN Returned(id, records[id].reserved - cost)
                 ELSE IF cost > records[id].reserved THEN Charged(cost - records[id].reserved)
                 ELSE window
    /\ slots' = [slots EXCEPT ![id] = None]
    /\ costs' = [costs EXCEPT ![id].units = Least(cost, records[id].reserved)]
    /\ records' = [records EXCEPT ![id] = NoRecord]
    /\ settled' = settled \cup {id}
    /\ UNCHANGED <<now, expired, gifts, backs, given, losses, replica>>

Renew(id) ==
    /\ IsHeld(id)
    /\ slots' = [slots EXCEPT ![id] = IF @ > now THEN now + Life ELSE @]
    /\ records' = [records EXCEPT ![id].ends = now + Life]
    /\ UNCHANGED <<now, window, costs, settled, expired, gifts, backs, given, losses, replica>>

\* The key of a record expires at its end.
Expire(id) ==
    /\ records[id] # NoRecord
    /\ records[id].ends <= now
    /\ records' = [records EXCEPT ![id] = NoRecord]
    /\ UNCHANGED <<now, window, slots, costs, settled, expired, gifts, backs, given, losses, replica>>

-----------------------------------------------------------------------------
(* Operators and the world.                                                *)

\* Gives back units of the window; a reset gives back all.
Refund(units) ==
    /\ given < MaxGifts
    /\ window.index \in Windows
    /\ units \in 1..window.count
    /\ given' = given + 1
    /\ window' = [window EXCEPT !.count = @ - units]
    /\ gifts' = [gifts EXCEPT ![window.index] = @ + units]
    /\ UNCHANGED <<now, slots, records, costs, settled, expired, backs, losses, replica>>

\* Removes all slots, while their holders still run.
ResetSlots ==
    /\ given < MaxGifts
    /\ given' = given + 1
    /\ slots' = [id \in Ids |-> None]
    /\ UNCHANGED <<now, window, records, costs, settled, expired, gifts, backs, losses, replica>>

Tick ==
    /\ now < MaxTime
    /\ now' = now + 1
    /\ expired' = expired \cup {id \in Ids : slots[id] # None /\ slots[id] <= now + 1}
    /\ UNCHANGED <<window, slots, records, costs, settled, gifts, backs, given, losses, replica>>

GoBack ==
    /\ backs < MaxBack
    /\ now > 0
    /\ now' = now - 1
    /\ backs' = backs + 1
    /\ UNCHANGED <<window, slots, records, costs, settled, expired, gifts, given, losses, replica>>

Replicate ==
    /\ losses < MaxLosses
    /\ replica' = [window |-> window, slots |-> slots, records |-> records]
    /\ UNCHANGED <<now, window, slots, records, costs, settled, expired, gifts, backs, given, losses>>

\* What the lost writes had charged counts as a gift of that window.
CostIn(index) == SumOver(Ids, [id \in Ids |-> IF costs[id].mark = index THEN costs[id].units ELSE 0])
Failover ==
    /\ losses < MaxLosses
    /\ replica # NoReplica
    /\ losses' = losses + 1
    /\ window' = replica.window
    /\ slots' = replica.slots
    /\ records' = replica.records
    /\ gifts' = [index \in Windows |->
           LET count == IF replica.window.index = index THEN replica.window.count ELSE 0
               lost == CostIn(index) - count
           IN IF lost > gifts[index] THEN lost ELSE gifts[index]]
    /\ UNCHANGED <<now, costs, settled, expired, backs, given, replica>>

Init ==
    /\ now = 0
    /\ window = NoWindow
    /\ slots = [id \in Ids |-> None]
    /\ records = [id \in Ids |-> NoRecord]
    /\ costs = [id \in Ids |-> NoCost]
    /\ settled = {}
    /\ expired = {}
    /\ gifts = [index \in Windows |-> 0]
    /\ backs = 0
    /\ given = 0
    /\ losses = 0
    /\ replica = NoReplica

Next ==
    \/ \E id \in Ids :
        \/ \E units \in 1..MaxReserved : Take(id, units)
        \/ \E cost \in 0..(MaxReserved + MaxExcess) : Settle(id, cost)
        \/ Renew(id)
        \/ Expire(id)
    \/ \E units \in 1..(2 * Capacity) : Refund(units)
    \/ ResetSlots
    \/ Tick
    \/ GoBack
    \/ Replicate
    \/ Failover

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
\* What all holds of a window have reserved and committed is at most C, and what was given away.
\* An excess is counted by the store, and bounded: see Bounded.
NeverOver == \A index \in Windows : CostIn(index) <= Capacity + gifts[index]

\* The store counts all of it: no unit is minted.
NothingMinted ==
    window.index \in Windows => CostIn(window.index) <= window.count + gifts[window.index]

SlotsNeverOver == Count({id \in Ids : slots[id] > now}) <= Slots

\* A settled hold has no slot, and one that has expired gets none any more.
NoSlotRevived ==
    losses = 0 =>
        /\ \A id \in settled : slots[id] = None
        /\ backs = 0 => \A id \in expired : slots[id] <= now

Bounded == window.count \in 0..(2 * Capacity)
=============================================================================
