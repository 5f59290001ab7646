---------------------------- MODULE LeasesMutants ----------------------------
(* Wrong versions of Leases.tla: each takes the place of a definition and breaks an invariant.     *)
EXTENDS Leases

\* MUTANT Usable <- WholeSpan breaks HeldIsOut with Leases.cfg
\* An instance that does not stop early, though its clock may be behind.
WholeSpan == Span

\* MUTANT Receive <- ReceiveAndCountFromNow breaks NeverOver with Leases.cfg
\* An instance that counts the life of its units from the reply.
ReceiveAndCountFromNow(reply) ==
    LET i == reply.instance
        grant == [units |-> reply.units, spent |-> 0, end |-> reply.end, life |-> Usable, behind |-> 0]
    IN /\ grants' = IF reply.units > 0 THEN [grants EXCEPT ![i] = Append(@, grant)] ELSE grants
       /\ calls' = [calls EXCEPT ![i] = NoCall]
       /\ network' = network \ {reply}
       /\ UNCHANGED <<owed, out, meter, backs, losses, replica>>

\* MUTANT Crash <- CrashAndReturn breaks NeverOver with LeasesLate.cfg
\* A store that takes the units of an instance back when it crashes, though they may be spent.
CrashAndReturn(i) ==
    /\ grants[i] # NoGrants
    /\ grants[i][1].end \in Ends
    /\ LET units == grants[i][1].units + grants[i][1].spent IN
        /\ owed' = Positive(owed - units)
        /\ out' = [out EXCEPT ![grants[i][1].end] = Positive(@ - units)]
    /\ grants' = [grants EXCEPT ![i] = NoGrants]
    /\ calls' = [calls EXCEPT ![i] = NoCall]
    /\ network' = Unawaited(i)
    /\ UNCHANGED <<meter, backs, losses, replica>>

\* MUTANT Grantable <- GrantableByTheBucket breaks ShareKept with Leases.cfg
\* A store that grants what the bucket has, whatever is out.
GrantableByTheBucket(state) == (Capacity - Share) - state.owed

\* MUTANT AfterReport <- StillThere breaks HeldIsOut with Leases.cfg
\* An instance that keeps the units that it gives back.
StillThere(grant, gives_back) == [grant EXCEPT !.spent = 0]
=============================================================================
