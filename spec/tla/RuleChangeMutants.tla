--------------------------- MODULE RuleChangeMutants ---------------------------
(* Wrong versions of RuleChange.tla: each takes the place of a definition and breaks an invariant. *)
EXTENDS RuleChange

\* MUTANT PulledTo <- HorizonOfTheReader breaks NeverOver with RuleChangeNoLease.cfg
\* A call under a smaller rule that pulls the instant back to its own horizon.
HorizonOfTheReader(r) == Horizons[r]

\* MUTANT HorizonAfterNothing <- HorizonOfWhoAsks breaks NeverOver with RuleChangeNoLease.cfg
\* A settlement of which nothing fits, and that writes its own horizon.
HorizonOfWhoAsks(r) == Horizons[r]

\* MUTANT Decide <- DecideAfresh breaks NeverOver with RuleChangeNoLease.cfg
\* A rule that takes the state of another rule for none.
DecideAfresh(r) ==
    LET own == IF horizon = Horizons[r] THEN owed ELSE 0 IN
    /\ own + UnitTime[r] <= SharedFill(r)
    /\ owed' = own + UnitTime[r]
    /\ horizon' = Horizons[r]
    /\ Admit(r)
    /\ UNCHANGED <<rule, held, returning, lost, backs>>

\* MUTANT MaySpend <- MaySpendAnyway, SpentUnder <- RuleOfNow breaks NeverOver with RuleChange.cfg
\* An instance that spends units of the old rule under the new one.
MaySpendAnyway(i) == held[i].units > 0
RuleOfNow(i) == rule[i]

=============================================================================
