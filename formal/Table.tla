-------------------------------- MODULE Table --------------------------------
(***************************************************************************)
(* Tells of each step that takes a row of the code's table what it was     *)
(* taken from and where it led. tests/formal/table.py gives the same       *)
(* inputs to the table, and compares the answers.                          *)
(***************************************************************************)
EXTENDS Onceonly

Told(action, d, seen) == PrintT(ToString(<<"told", action, d, drv[d], drv'[d], seen>>))
Around == [chain |-> chain, receipt |-> receipt, off |-> off, passed |-> passed]  \* what a planner reads

ToldStep(d) ==  \* in place of Step
    \/ Read(d) /\ Told("Read", d, Around)
    \/ Drain(d) /\ Told("Drain", d, Around)
    \/ Abandon(d) /\ Told("Abandon", d, Around)
    \/ /\ Put(d)  \* one that is free has no answer yet
       /\ Len(chain[drv[d].le]) # drv[d].at => Told("Put", d, chain[drv[d].le][drv[d].at + 1])
    \/ Sync(d) /\ Told("Sync", d, None)
    \/ /\ Look(d)
       /\ drv'[d].pc # "fencing" => Told("Look", d, IsLast(d))
    \/ Fence(d) /\ Told("Fence", d, None)
    \/ Decide(d) /\ Told("Decide", d, off[drv[d].e])
    \/ TaskFails(d) /\ Told("TaskFails", d, off[drv[d].e])
    \/ Outcomes(d) /\ Told("Outcomes", d, {t \in drv[d].link.votes : tx[t] \in {"aborted", "expired"}})
    \/ PutReceipt(d) /\ Told("PutReceipt", d, None)
    \/ NoteSkip(d) /\ Told("NoteSkip", d, None)
    \/ Restore(d) /\ Told("Restore", d, None)
    \/ Begin(d) \/ List(d) \/ SendCommits(d) \/ Finish(d) \/ LatePut(d) \/ WriteOffsets(d) \/ Discard(d)

ToldFailure(d) ==  \* in place of Failure
    \/ SweepFails(d) /\ Told("SweepFails", d, None)
    \/ NoAnswer(d) /\ Told("NoAnswer", d, None)
    \/ NotRestored(d) /\ Told("NotRestored", d, None)
    \/ PutInDoubt(d) \/ Crash(d) \/ CrashInPut(d) \/ CrashInReceipt(d)
=============================================================================
