----------------------------- MODULE WaitsMutants -----------------------------
(* Wrong versions of Waits.tla: each takes the place of a definition and breaks an invariant.      *)
EXTENDS Waits

\* MUTANT ReturnedByCancel <- AllOfIt breaks NeverOver with Waits.cfg
\* A cancellation that returns all units, also those that others were queued behind.
AllOfIt(request) == IF owed < request.cost THEN owed ELSE request.cost

\* MUTANT Cancel <- CancelAgain breaks NeverOver with Waits.cfg
\* A store without records of reservations: a cancellation that is repeated counts again.
CancelAgain(r) ==
    /\ requests[r].phase = "left"
    /\ IsInTime(requests[r])
    /\ State(Positive(owed - ReturnedByCancel(requests[r])), latest)
    /\ UNCHANGED <<requests, records, begun, inside, meter, refunded, losses, replica>>

\* MUTANT IsInTime <- Always breaks NeverOver with Waits.cfg
\* A cancellation that arrives after the turn of its request.
Always(request) == TRUE

\* MUTANT MayGoOn <- MayGoOnEarly breaks NeverOver with Waits.cfg
\* A waiting request that goes on a tick early.
MayGoOnEarly(request) == request.phase = "waiting" /\ request.mark <= Capacity + 1

=============================================================================
