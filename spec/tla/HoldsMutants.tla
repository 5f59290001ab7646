----------------------------- MODULE HoldsMutants -----------------------------
(* Wrong versions of Holds.tla: each takes the place of a definition and breaks an invariant.      *)
EXTENDS Holds

\* MUTANT Renew <- RenewWithoutLooking breaks NoSlotRevived with Holds.cfg
\* A renewal that does not look whether the slot has ended.
RenewWithoutLooking(id) ==
    /\ records[id] # NoRecord
    /\ slots' = [slots EXCEPT ![id] = now + Life]
    /\ records' = [records EXCEPT ![id].ends = now + Life]
    /\ UNCHANGED <<now, window, costs, settled, expired, gifts, backs, given, losses, replica>>

\* MUTANT Renew <- RenewOfTheSettled breaks NoSlotRevived with Holds.cfg
\* A renewal that needs no record.
RenewOfTheSettled(id) ==
    /\ costs[id] # NoCost
    /\ slots' = [slots EXCEPT ![id] = now + Life]
    /\ UNCHANGED <<now, window, records, costs, settled, expired, gifts, backs, given, losses, replica>>

\* MUTANT Live <- LiveWithoutRenewal breaks SlotsNeverOver with Holds.cfg
\* A count that misses slots about to end.
LiveWithoutRenewal(s) == {id \in Ids : s[id] > now + 1}

\* MUTANT Settle <- SettleAgain breaks NothingMinted with Holds.cfg
\* A settlement that keeps the record, so that a repeated one returns units again.
SettleAgain(id, cost) ==
    /\ IsHeld(id)
    /\ cost < records[id].reserved
    /\ window' = Returned(id, records[id].reserved - cost)
    /\ costs' = [costs EXCEPT ![id].units = cost]
    /\ UNCHANGED <<now, slots, records, settled, expired, gifts, backs, given, losses, replica>>

\* MUTANT Returned <- ReturnedToAnyWindow breaks NothingMinted with Holds.cfg
\* Units that return to the window of now, wherever they were charged.
ReturnedToAnyWindow(id, units) == [Current EXCEPT !.count = Positive(@ - units)]

\* MUTANT Charged <- ChargedWithoutBound breaks Bounded with Holds.cfg
\* An excess without a bound.
ChargedWithoutBound(units) == [Current EXCEPT !.count = @ + 4 * units]
=============================================================================
