------------------------------ MODULE Onceonly ------------------------------
(***************************************************************************)
(* The two-phase protocol of onceonly: the table of src/onceonly/protocol  *)
(* for exactly-once, with the world around it: the decision log, the      *)
(* sinks, Spark, and drivers that are paused, killed and overtaken.       *)
(*                                                                         *)
(* A driver is one run of the query, in an application of its own. It may  *)
(* stand still between any two steps: a paused driver is one that takes no *)
(* step. The steps of a driver carry the names of the protocol's states    *)
(* (protocol/states.py); a transaction is named by epoch, slot, driver and *)
(* attempt. The input is a row of numbers; an epoch reads those after the  *)
(* end of the epoch before, up to its own, and each slot writes them all.  *)
(*                                                                         *)
(* Mutant is "" or the name of one defect; see M below.                    *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Drivers,      \* 1..n, in the order in which they start
    LastEpoch,    \* the query has epochs 1..LastEpoch
    Sinks,
    SlotsMax,     \* the slots of each sink
    FaultsMax,    \* how many faults happen, of whatever kinds
    Mutant

VARIABLES
    chain,        \* the links of each epoch, as everybody sees them
    synced,       \* how many of them outlive a loss of power
    receipt,      \* the number of the link that is settled, 0 for none
    kept,         \* the epochs whose receipt outlives a loss of power
    passed,       \* the epochs that Spark has noted without any of these drivers
    done,         \* Spark's newest commits/N, 0 for none
    off,          \* Spark's offsets/N: the number of the last row of an epoch's input, None for no file
    safe,         \* what of them outlives a loss of power
    tx,           \* the transactions that were begun, and their states
    drv,          \* the drivers
    faults        \* how many faults may still happen

vars == <<chain, synced, receipt, kept, passed, off, safe, done, tx, drv, faults>>

M(name) == Mutant = name

Slots == Sinks \X (1..SlotsMax)
SinkOf(s) == s[1]
Alike == Permutations(Sinks)  \* no sink differs from another: see SYMMETRY in the configurations

Epochs == 1..LastEpoch
None == -1
First == 1      \* the attempt that Spark starts
Second == 2     \* its twin, or the one after it failed
Late == 3       \* a task that nobody waits for any more

Pending == {"open", "prepared", "sent"}  \* "sent": prepared, and a commit is on its way
Ended(t) == tx[t] \in {"committed", "aborted", "expired"}  \* aborted: by us; expired: by the sink
Last(c) == c[Len(c)]
Output(l) == l.votes \cup l.carried
NoLink == [kind |-> "none"]
Link(kind, d, e, votes, carried, end) ==  \* end: what a decision says of offsets/N
    [kind |-> kind, plan |-> <<d, e>>, votes |-> votes, carried |-> carried, end |-> end]

(* le, at: epoch and number of the link at hand; then: what its putting is for. from, to: the range that Spark *)
(* has in its memory. goes: it has run the epoch before. files: the offsets that are to be restored. *)
Idle == [pc |-> "off", e |-> 0, mode |-> "none", link |-> NoLink, le |-> 0, at |-> 0, then |-> "none",
         lost |-> {}, carried |-> {}, votes |-> {}, found |-> {},
         from |-> 0, to |-> None, goes |-> FALSE, files |-> {}]
Alive(d) == drv[d].pc \notin {"off", "dead", "end", "late", "overtaken"}

Init ==
    /\ chain = [e \in 1..(LastEpoch + 2) |-> <<>>]
    /\ synced = [e \in 1..(LastEpoch + 2) |-> 0]
    /\ receipt = [e \in 1..(LastEpoch + 2) |-> 0]
    /\ kept = {}
    /\ passed = {}
    /\ off = [e \in 0..(LastEpoch + 2) |-> IF e = 0 THEN 0 ELSE None]
    /\ safe = off
    /\ done = 0
    /\ tx = <<>>
    /\ drv = [d \in Drivers |-> Idle]
    /\ faults = FaultsMax

Fault == faults > 0 /\ faults' = faults - 1
NoFault == UNCHANGED faults
Files == <<off, safe>>
Log == <<chain, synced, receipt, kept, passed, Files>>

Go(d, new) == drv' = [drv EXCEPT ![d] = new]
InEpoch(d, pc) == [Idle EXCEPT !.pc = pc, !.e = drv[d].e, !.from = drv[d].from, !.to = drv[d].to]
Writes(d) == drv[d].mode \in {"run", "tentative"}
Dead(d) ==
    LET dead == [Idle EXCEPT !.pc = "dead", !.e = drv[d].e, !.mode = drv[d].mode]
    IN IF Writes(d) THEN [dead EXCEPT !.from = drv[d].from, !.to = drv[d].to] ELSE dead
Overtaken(d) == [Dead(d) EXCEPT !.pc = "overtaken"]  \* starts again, as a driver of its own
Fenced(these) == [t \in DOMAIN tx |-> IF t \in these /\ tx[t] \in Pending THEN "aborted" ELSE tx[t]]

-----------------------------------------------------------------------------
(* Spark *)

Newest == CHOOSE e \in 0..LastEpoch : off[e] # None /\ \A o \in (e + 1)..LastEpoch : off[o] = None

Start(d) ==  \* an epoch that has offsets and is not noted is run again, with the range that they say
    /\ drv[d].pc = "off" /\ \A o \in Drivers : o < d => drv[o].pc # "off"
    /\ IF \E o \in Drivers : Alive(o) THEN Fault ELSE done < LastEpoch /\ NoFault
    /\ done < LastEpoch
    /\ LET again == Newest # done /\ Newest # 0
           e == IF again THEN Newest ELSE Newest + 1
       IN Go(d, [Idle EXCEPT !.pc = IF off[e - 1] = None THEN "gap" ELSE IF again THEN "reading" ELSE "writing",
                             !.e = e, !.from = off[e - 1], !.to = off[e]])
    /\ UNCHANGED <<Log, done, tx>>

WriteOffsets(d) ==  \* it looked, and there were none; its rename writes over what has come since. Who starts later sees more
    /\ drv[d].pc = "writing"
    /\ LET to == drv[d].from + d IN
        /\ off' = [off EXCEPT ![drv[d].e] = to]
        /\ Go(d, [drv[d] EXCEPT !.pc = "reading", !.to = to])
    /\ UNCHANGED <<chain, synced, receipt, kept, passed, safe, done, tx>> /\ NoFault

PassedBy ==  \* state repartitioned offline, a start with another sink: an epoch is noted that none of ours saw.
             \* What was planned before has its range; else there is nothing new in it
    /\ Fault
    /\ done < LastEpoch
    /\ LET c == chain[done + 1] IN IF c = <<>> THEN TRUE ELSE Last(c).kind = "ABORT"
    /\ \A d \in Drivers : ~Alive(d) /\ drv[d].pc # "late"
    /\ done' = done + 1
    /\ passed' = passed \cup {done + 1}
    /\ off' = [off EXCEPT ![done + 1] = IF @ = None THEN off[done] ELSE @]
    /\ UNCHANGED <<chain, synced, receipt, kept, safe, tx, drv>>

Finish(d) ==  \* commits/N
    /\ drv[d].pc = "done"
    /\ LET e == drv[d].e IN
        /\ done' = IF e > done THEN e ELSE done
        /\ Go(d, IF e = LastEpoch THEN [Dead(d) EXCEPT !.pc = "end"]
                 ELSE IF off[e + 1] # None THEN Overtaken(d)  \* Spark itself finds that
                 ELSE [Idle EXCEPT !.pc = "writing", !.e = e + 1, !.from = drv[d].to, !.goes = TRUE])
    /\ UNCHANGED <<Log, tx>> /\ NoFault

-----------------------------------------------------------------------------
(* Planning: what the chain says of an epoch *)

Running(d, mode, at) == [drv[d] EXCEPT !.pc = "running", !.mode = mode, !.at = at, !.le = drv[d].e,
                                       !.link = NoLink, !.then = "none", !.found = {}, !.goes = FALSE]
Drained(d) == IF M("drain writes again") THEN Running(d, "run", Len(chain[drv[d].e]))
              ELSE [InEpoch(d, "done") EXCEPT !.mode = "drain"]
Putting(d, link, le, at, then) ==
    [drv[d] EXCEPT !.pc = "putting", !.link = link, !.le = le, !.at = at, !.then = then]
ClaimingAt(d, le, at, then) ==
    LET link == Link("ABORT", d, drv[d].e, {}, {}, None)
    IN IF M("no ABORT link before the sweep")
       THEN [Putting(d, link, le, at - 1, then) EXCEPT !.pc = "listing"]
       ELSE Putting(d, link, le, at, then)
Claiming(d, le, then) == ClaimingAt(d, le, Len(chain[le]), then)

Restoring(d, files) == [InEpoch(d, "restoring") EXCEPT !.files = files]
Differs(e) ==  \* what Spark's file says of an epoch, and what its decision says
    /\ chain[e] # <<>> /\ Last(chain[e]).kind # "ABORT" /\ off[e] # Last(chain[e]).end
    /\ ~M("offsets not compared with the decisions")
AsDecided(e) == <<e, Last(chain[e]).end>>
Withdrawing(d, files) ==  \* what nobody decided was planned from a wrong start: it goes, under a claim
    LET found == <<drv[d].e, off[drv[d].e]>>
        claiming == IF M("offsets removed without a claim") THEN InEpoch(d, "discarding")
                    ELSE Claiming(d, drv[d].e, "withdraw")
    IN [claiming EXCEPT !.files = files \cup {found}]

SameApplication(d, o) == d = o  \* in the model each run is an application of its own

IsOpen(e) == chain[e] = <<>> \/ Last(chain[e]).kind = "ABORT"
Opens(e) ==  \* the first epoch before it that lies open, 0 for none; of an empty log only the one before it
    LET open == {o \in 1..(e - 1) : IsOpen(o)}
    IN IF open = {} THEN 0
       ELSE IF \A o \in 1..(e - 1) : chain[o] = <<>> THEN e - 1
       ELSE CHOOSE o \in open : \A u \in open : o <= u

Read(d) ==
    /\ drv[d].pc = "reading"
    /\ LET e == drv[d].e
           c == chain[e]
           before == e > 1
           previous == Last(chain[e - 1])
           open == Opens(e)
           is_passed == c = <<>> /\ open \in passed /\ ~M("a skipped epoch taken for a gap")
           unsettled == c = <<>> /\ before /\ ~IsOpen(e - 1) /\ previous.kind = "SKIPPED" /\ receipt[e - 1] = 0
           gap == \/ before /\ (IsOpen(e - 1) \/ receipt[e - 1] = 0)
                  \/ receipt[e] # 0 /\ receipt[e] # Len(c)
           mine == drv[d].goes
           unbroken == mine /\ before /\ previous.plan = <<d, e - 1>>
           goes_on == unbroken \/ (mine /\ \E i \in DOMAIN c : c[i].plan = <<d, e - 1>>)
           decided == c # <<>> /\ Last(c).kind # "ABORT"
           wrong == {AsDecided(o) : o \in {o \in {e - 1, e} \cap Epochs : Differs(o)}}
           start == IF e = 1 THEN 0 ELSE previous.end
           strayed == /\ ~unbroken /\ drv[d].from # start
                      /\ ~M("Spark not asked where it began") /\ ~M("offsets not compared with the decisions")
           moved == ~unbroken /\ drv[d].to # off[e]
           overtaken == goes_on /\ c # <<>> /\ Last(c).plan # <<d, e - 1>> /\ ~SameApplication(d, Last(c).plan[1])
       IN Go(d,
            IF is_passed
            THEN Putting(d, Link("SKIPPED", d, e, {}, {}, off[open]), open, Len(chain[open]), "skip")
            ELSE IF unsettled THEN [Putting(d, previous, e - 1, Len(chain[e - 1]) - 1, "skip") EXCEPT !.pc = "noting"]
            ELSE IF gap THEN [Dead(d) EXCEPT !.pc = "gap"]
            ELSE IF overtaken THEN Overtaken(d)
            ELSE IF (wrong # {} \/ strayed) /\ ~decided /\ off[e] # None /\ ~M("offsets not restored")
                 THEN Withdrawing(d, wrong)
            ELSE IF wrong # {} THEN Restoring(d, wrong)
            ELSE IF strayed \/ moved THEN Overtaken(d)  \* starts again, and reads the files anew
            ELSE IF c = <<>> THEN IF unbroken THEN Running(d, "run", 0) ELSE Claiming(d, e, "claim")
            ELSE IF mine /\ Last(c).plan = <<d, e - 1>> THEN Running(d, "run", Len(c))
            ELSE IF Last(c).kind = "ABORT" \/ (M("claim over a decision") /\ receipt[e] = 0)
                 THEN Claiming(d, e, "claim")
            ELSE IF receipt[e] # 0 THEN [drv[d] EXCEPT !.pc = "draining"]
            ELSE [Putting(d, Last(c), e, Len(c) - 1, "resolve")
                    EXCEPT !.pc = IF M("found link not synced") THEN "sending" ELSE "syncing"])
    /\ kept' = IF receipt[drv[d].e] # 0 /\ ~M("found receipt not synced") THEN kept \cup {drv[d].e} ELSE kept
    /\ UNCHANGED <<chain, synced, receipt, passed, Files, done, tx>> /\ NoFault

Drain(d) ==  \* claims the next epoch, sweeps under the claim, and writes nothing
    /\ drv[d].pc = "draining"
    /\ LET next == chain[drv[d].e + 1] IN
        Go(d, IF next # <<>> /\ Last(next).kind # "ABORT"  \* Spark has forgotten more than one epoch
              THEN IF Differs(drv[d].e + 1) THEN Restoring(d, {AsDecided(drv[d].e + 1)}) ELSE Drained(d)
              ELSE Claiming(d, drv[d].e + 1, "next"))
    /\ UNCHANGED <<Log, done, tx>> /\ NoFault

Discard(d) ==  \* the offsets that it found are taken away, unless somebody else has planned or claimed the epoch since
    /\ drv[d].pc = "discarding"
    /\ LET e == drv[d].e
           last == Len(chain[e]) = drv[d].at + 1 \/ M("offsets removed without a claim") \/ M("offsets removed under an old claim")
           same == <<e, off[e]>> \in drv[d].files /\ last
       IN /\ IF same THEN off' = [off EXCEPT ![e] = None] /\ safe' = [safe EXCEPT ![e] = None] ELSE UNCHANGED Files
          /\ Go(d, Restoring(d, {file \in drv[d].files : file[1] # e}))
    /\ UNCHANGED <<chain, synced, receipt, kept, passed, done, tx>> /\ NoFault

Restore(d) ==  \* as the decisions had them, durably; then the query starts again, as an application of its own
    /\ drv[d].pc = "restoring"
    /\ LET epochs == {file[1] : file \in drv[d].files}
           end(e) == (CHOOSE file \in drv[d].files : file[1] = e)[2]
           restored(now) == [e \in DOMAIN now |-> IF e \in epochs THEN end(e) ELSE now[e]]
       IN IF M("offsets not restored") THEN UNCHANGED Files ELSE off' = restored(off) /\ safe' = restored(safe)
    /\ Go(d, Idle)
    /\ UNCHANGED <<chain, synced, receipt, kept, passed, done, tx>> /\ NoFault

NotRestored(d) ==  \* a list of files was too long to be kept in a link, or the disk fails: somebody sees to it
    /\ Fault
    /\ drv[d].pc \in {"discarding", "restoring"}
    /\ Go(d, Dead(d))
    /\ UNCHANGED <<Log, done, tx>>

-----------------------------------------------------------------------------
(* The log *)

After(d, new) ==  \* where a driver goes when its link is durable
    [new EXCEPT !.pc = CASE new.then \in {"decide", "resolve"} -> "sending"
                         [] new.then = "skip" -> "noting"
                         [] new.then = "withdraw" -> "discarding"
                         [] OTHER -> "listing"]
Refused(d) ==  \* taken: overtaken in a claim; else superseded for good, or somebody else has had the last word
    IF drv[d].then \in {"claim", "next", "skip", "withdraw"} THEN Overtaken(d) ELSE Dead(d)

Append1(d) ==
    LET le == drv[d].le IN chain' = [chain EXCEPT ![le] = Append(@, drv[d].link)]

Put(d) ==  \* the link is seen by everybody; it is not durable yet
    /\ drv[d].pc = "putting"
    /\ LET w == drv[d]
           free == Len(chain[w.le]) = w.at
       IN IF free \/ M("a taken link number ignored")
          THEN /\ Append1(d)
               /\ Go(d, IF M("link not synced") /\ w.then = "decide"
                        THEN After(d, w)
                        ELSE [w EXCEPT !.pc = "syncing", !.at = Len(chain[w.le])])
          ELSE /\ Go(d, Refused(d)) /\ UNCHANGED chain
    /\ safe' = IF drv[d].then = "skip" THEN off ELSE safe
    /\ UNCHANGED <<synced, receipt, kept, passed, off, done, tx>> /\ NoFault

Sync(d) ==  \* the folder, and with it every name in it
    /\ drv[d].pc = "syncing"
    /\ LET w == drv[d] IN
        /\ synced' = [synced EXCEPT ![w.le] = IF @ > w.at + 1 THEN @ ELSE w.at + 1]
        /\ Go(d, After(d, w))
    /\ UNCHANGED <<chain, receipt, kept, passed, Files, done, tx>> /\ NoFault

PutInDoubt(d) ==  \* the disk fails: put or not put, and the answer is lost
    /\ Fault
    /\ drv[d].pc = "putting" /\ Len(chain[drv[d].le]) = drv[d].at
    /\ Append1(d) \/ UNCHANGED chain
    /\ Go(d, IF drv[d].then = "decide" THEN [drv[d] EXCEPT !.pc = "abandoning"] ELSE Dead(d))
    /\ UNCHANGED <<synced, receipt, kept, passed, Files, done, tx>>

CrashInPut(d) ==  \* killed with its put on the way, as to a file server: what comes of it, comes later
    /\ Fault
    /\ drv[d].pc = "putting"
    /\ Go(d, [drv[d] EXCEPT !.pc = "late"])
    /\ UNCHANGED <<Log, done, tx>>

LatePut(d) ==  \* put-if-absent holds for it, too; nobody hears the answer
    /\ drv[d].pc = "late"
    /\ IF Len(chain[drv[d].le]) = drv[d].at THEN Append1(d) ELSE UNCHANGED chain
    /\ Go(d, Dead(d))
    /\ UNCHANGED <<synced, receipt, kept, passed, Files, done, tx>> /\ NoFault

-----------------------------------------------------------------------------
(* The sweep: list, look, fence *)

Swept(d) ==  \* where a driver goes after its sweep
    CASE drv[d].then = "claim" ->
            IF drv[d].link.kind = "ABORT" THEN Running(d, "run", drv[d].at + 1)
            ELSE [Running(d, "tentative", drv[d].at + 1)
                    EXCEPT !.lost = drv[d].link.votes, !.carried = drv[d].link.carried]
      [] drv[d].then = "next" -> Drained(d)
      [] drv[d].then = "decide" -> [InEpoch(d, "done") EXCEPT !.mode = drv[d].mode]
      [] drv[d].then = "void" -> Dead(d)
NotSwept(d) ==
    IF drv[d].then \in {"claim", "next"} THEN Dead(d) ELSE Swept(d)

Early == M("the sweep looks before it lists")
Listed(d) == {t \in DOMAIN tx : tx[t] \in Pending /\ t \notin drv[d].link.votes}
IsLast(d) == LET w == drv[d] IN Len(chain[w.le]) = w.at + 1 /\ chain[w.le + 1] = <<>>

List(d) ==
    /\ drv[d].pc = "listing"
    /\ IF Early THEN IsLast(d) /\ Go(d, [drv[d] EXCEPT !.pc = "looking"])
       ELSE Go(d, [drv[d] EXCEPT !.pc = "looking", !.found = Listed(d)])
    /\ UNCHANGED <<Log, done, tx>> /\ NoFault

Look(d) ==
    /\ drv[d].pc = "looking"
    /\ LET found == IF Early THEN Listed(d) ELSE drv[d].found IN
        Go(d, IF IsLast(d) \/ Early \/ M("the sweep of a voted handle")
              THEN IF found = {} THEN Swept(d) ELSE [drv[d] EXCEPT !.pc = "fencing", !.found = found]
              ELSE NotSwept(d))
    /\ UNCHANGED <<Log, done, tx>> /\ NoFault

Fence(d) ==
    /\ drv[d].pc = "fencing"
    /\ tx' = Fenced(drv[d].found)
    /\ Go(d, Swept(d))
    /\ UNCHANGED <<Log, done>> /\ NoFault

SweepFails(d) ==  \* the broker is down
    /\ Fault
    /\ drv[d].pc = "listing"
    /\ Go(d, NotSwept(d))
    /\ UNCHANGED <<Log, done, tx>>

-----------------------------------------------------------------------------
(* Tasks: an attempt begins, prepares and votes *)

Owes(d, sink) == \E t \in drv[d].lost : SinkOf(t.s) = sink
Wanted(d) == IF drv[d].mode = "tentative" /\ ~M("a repair writes everything")
             THEN {s \in Slots : Owes(d, SinkOf(s))} ELSE Slots
Name(d, s, a) == [e |-> drv[d].e, s |-> s, d |-> d, a |-> a, r |-> <<drv[d].from, drv[d].to>>]
Voted(d, s) == \E t \in drv[d].votes : t.s = s

(* Each transaction has a producer epoch of its own. *)
SameProducerEpoch(t, u) ==
    t = u \/ (M("second transaction on one producer epoch") /\ t.d = u.d /\ t.s = u.s)

Opened(new) ==
    LET former == {u \in DOMAIN tx : \E t \in new : u.d = t.d /\ u.s = t.s}  \* on the same transactional id
    IN [t \in new |-> "open"] @@ (IF M("initialise before resolve") THEN Fenced(former) ELSE tx)

Begin(d) ==  \* all slots at once: one that begins later differs in nothing from one that stands still
    /\ drv[d].pc = "running"
    /\ LET new == {Name(d, s, First) : s \in Wanted(d)} IN
        /\ new \cap DOMAIN tx = {}
        /\ tx' = Opened(new)
    /\ UNCHANGED <<Log, done, drv>> /\ NoFault

BeginSecond(d, s) ==  \* an executor died, or Spark speculates
    /\ Fault
    /\ drv[d].pc = "running" /\ s \in Wanted(d)
    /\ Name(d, s, First) \in DOMAIN tx /\ Name(d, s, Second) \notin DOMAIN tx
    /\ tx' = Opened({Name(d, s, Second)})
    /\ UNCHANGED <<Log, done, drv>>

BeginLate(d, s) ==  \* a task wakes up when its driver is gone or far ahead
    /\ Fault
    /\ drv[d].pc \notin {"off", "running"} /\ Writes(d)
    /\ Name(d, s, Late) \notin DOMAIN tx
    /\ tx' = Opened({Name(d, s, Late)})
    /\ UNCHANGED <<Log, done, drv>>

Prepare(t) ==
    /\ tx[t] = "open"
    /\ tx' = [tx EXCEPT ![t] = "prepared"]
    /\ LET w == drv[t.d]
           counts == w.pc = "running" /\ w.e = t.e /\ t.a # Late /\ ~Voted(t.d, t.s)
       IN \/ drv' = IF counts THEN [drv EXCEPT ![t.d].votes = @ \cup {t}] ELSE drv
          \/ /\ counts /\ t.a = First /\ [t EXCEPT !.a = Second] \in DOMAIN tx  \* died before it voted
             /\ UNCHANGED drv
    /\ UNCHANGED <<Log, done>> /\ NoFault

TaskFails(d) ==
    /\ drv[d].pc = "running"
    /\ LET failed == \E s \in Wanted(d) :
               /\ ~Voted(d, s) /\ Name(d, s, First) \in DOMAIN tx
               /\ \A a \in {First, Second} : Name(d, s, a) \in DOMAIN tx => tx[Name(d, s, a)] # "open"
       IN IF failed THEN NoFault ELSE Fault
    /\ Go(d, [drv[d] EXCEPT !.pc = "abandoning"])
    /\ UNCHANGED <<Log, done, tx>>

-----------------------------------------------------------------------------
(* The decision, its commits, the receipt *)

(* A vote of an older run is a message like another: it may arrive though its transaction is gone. *)
ForeignVotes(d) == {t \in DOMAIN tx : t.e = drv[d].e /\ t.d # d /\ tx[t] # "open"}
Ballots(d) ==
    IF M("votes of an older run accepted")
    THEN {b \in SUBSET (drv[d].votes \cup ForeignVotes(d)) :
            Cardinality(b) = Cardinality(Wanted(d)) /\ \A s \in Wanted(d) : \E t \in b : t.s = s}
    ELSE IF \A s \in Wanted(d) : Voted(d, s) THEN {drv[d].votes} ELSE {}
Matched(d, votes) ==
    IF drv[d].mode = "tentative" /\ ~M("a repair writes everything")
    THEN {t \in votes : \E u \in drv[d].lost : u.s = t.s} ELSE votes

Sent(these) == [t \in DOMAIN tx |-> IF t \in these /\ tx[t] = "prepared" THEN "sent" ELSE tx[t]]

Decide(d) ==
    /\ drv[d].pc = "running"
    /\ \E votes \in Ballots(d) :
        LET e == drv[d].e
            link == Link("COMMIT", d, e, Matched(d, votes), drv[d].carried, off[e])
            moved == off[e] # drv[d].to /\ ~M("moved offsets decided")
        IN
        /\ Go(d, IF moved THEN Overtaken(d)  \* somebody else plans this epoch
                 ELSE [Putting(d, link, e, drv[d].at, "decide") EXCEPT !.votes = votes])
        /\ tx' = IF M("commit before its link") THEN Sent(votes) ELSE tx
    /\ safe' = IF M("offsets not synced before the link") THEN safe ELSE off
    /\ UNCHANGED <<chain, synced, receipt, kept, passed, off, done>> /\ NoFault

Due(d) ==
    IF M("only one sink's handles committed")
    THEN {t \in drv[d].link.votes : SinkOf(t.s) = CHOOSE sink \in Sinks : TRUE} ELSE drv[d].link.votes

SendCommits(d) ==  \* and aborts what was written tentatively and is not needed
    /\ drv[d].pc = "sending"
    /\ LET rest == IF drv[d].then = "decide" THEN drv[d].votes \ drv[d].link.votes ELSE {} IN
        tx' = [t \in DOMAIN tx |-> IF t \in rest THEN Fenced(rest)[t] ELSE Sent(Due(d))[t]]
    /\ Go(d, [drv[d] EXCEPT !.pc = "committing"])
    /\ UNCHANGED <<Log, done>> /\ NoFault

Deliver(t) ==  \* a commit arrives: late, after its sender died, or once more
    /\ tx[t] \in {"sent", "committed"}
    /\ tx' = [u \in DOMAIN tx |-> IF SameProducerEpoch(t, u) /\ tx[u] \in Pending THEN "committed" ELSE tx[u]]
    /\ tx' # tx
    /\ UNCHANGED <<Log, done, drv>> /\ NoFault

Settling(d, lost) ==  \* what follows from the outcomes, in protocol/recovery.py and protocol/deciding.py
    LET w == drv[d]
        carried == w.link.carried \cup (w.link.votes \ lost)
    IN IF lost = {} THEN [w EXCEPT !.pc = "receipting"]
       ELSE IF w.then = "decide" THEN [w EXCEPT !.pc = "abandoning"]  \* stops: Lost
       ELSE IF carried = {} \/ M("a part lost taken for all")
            THEN ClaimingAt(d, w.e, w.at + 1, "claim")  \* behind the link that it read, which may be the last no more
       ELSE Putting(d, Link("COMMIT", d, w.e, lost, carried, w.link.end), w.e, w.at + 1, "claim")

Outcomes(d) ==
    /\ drv[d].pc = "committing"
    /\ \A t \in Due(d) : Ended(t) \/ M("receipt before all handles are committed")
    /\ LET lost == {t \in Due(d) : tx[t] \in {"aborted", "expired"}} IN Go(d, Settling(d, lost))
    /\ UNCHANGED <<Log, done, tx>> /\ NoFault

NoAnswer(d) ==  \* no answer, or none that allows a conclusion: the query stops, nothing is touched
    /\ Fault
    /\ drv[d].pc = "committing"
    /\ LET w == drv[d]
           stopped == IF w.then = "decide" THEN [w EXCEPT !.pc = "abandoning"] ELSE Dead(d)
           ended == \A t \in w.link.votes : Ended(t)
           unsure == {t \in w.link.votes :
                \/ M("unknown outcome taken for lost")
                \/ M("absent marker taken for lost") /\ ended
                \/ M("lost without a fence") /\ tx[t] = "sent"}
       IN Go(d, IF w.then = "resolve" /\ unsure # {} THEN Settling(d, unsure) ELSE stopped)
    /\ UNCHANGED <<Log, done, tx>>

PutReceipt(d) ==
    /\ drv[d].pc = "receipting"
    /\ receipt' = [receipt EXCEPT ![drv[d].e] = IF @ = 0 THEN drv[d].at + 1 ELSE @]
    /\ kept' = kept \cup {drv[d].e}
    /\ Go(d, [drv[d] EXCEPT !.pc = IF drv[d].then = "resolve" THEN "draining" ELSE "listing"])
    /\ UNCHANGED <<chain, synced, passed, Files, done, tx>> /\ NoFault

NoteSkip(d) ==  \* the receipt of an epoch that was passed by; then the chain is read again
    /\ drv[d].pc = "noting"
    /\ receipt' = [receipt EXCEPT ![drv[d].le] = drv[d].at + 1]
    /\ kept' = kept \cup {drv[d].le}
    /\ Go(d, [InEpoch(d, "reading") EXCEPT !.goes = drv[d].goes])
    /\ UNCHANGED <<chain, synced, passed, Files, done, tx>> /\ NoFault

CrashInReceipt(d) ==  \* everybody sees the receipt, and its writer died before it was durable
    /\ Fault
    /\ drv[d].pc = "receipting" /\ receipt[drv[d].e] = 0
    /\ receipt' = [receipt EXCEPT ![drv[d].e] = drv[d].at + 1]
    /\ Go(d, Dead(d))
    /\ UNCHANGED <<chain, synced, kept, passed, Files, done, tx>>

Abandon(d) ==  \* Spark calls abort after a failed commit, too: the chain is read first
    /\ drv[d].pc = "abandoning"
    /\ LET w == drv[d]
           void == IF w.mode = "tentative" THEN Link("COMMIT", d, w.e, w.lost, w.carried, Last(chain[w.e]).end)
                   ELSE Link("ABORT", d, w.e, {}, {}, None)
       IN /\ Go(d, IF Len(chain[w.e]) = w.at THEN Putting(d, void, w.e, w.at, "void") ELSE Dead(d))
          /\ tx' = IF M("abort after failed commit taken literally") THEN Fenced(w.votes) ELSE tx
    /\ UNCHANGED <<Log, done>> /\ NoFault

-----------------------------------------------------------------------------
(* Faults that are nobody's step *)

Crash(d) ==
    /\ Fault
    /\ Alive(d) /\ Go(d, Dead(d))
    /\ UNCHANGED <<Log, done, tx>>

(* Of an epoch that nobody knows but Spark, commits/N is gone only with the offsets behind it, else there is a gap. *)
Noted == \A e \in passed : e > done' /\ chain'[e] = <<>> => off'[e + 1] = None

LosePower ==  \* what nobody synced is gone: Spark may forget any number of its last offsets/N, and of its commits/N
    /\ Fault
    /\ drv' = [d \in Drivers |-> IF Alive(d) \/ drv[d].pc = "late" THEN Dead(d) ELSE drv[d]]
    /\ receipt' = [e \in DOMAIN receipt |-> IF e \in kept THEN receipt[e] ELSE 0]
    /\ chain' = [e \in DOMAIN chain |-> SubSeq(chain[e], 1, synced[e])]
    /\ \E last \in 0..LastEpoch : off' = [e \in DOMAIN off |-> IF e > last THEN safe[e] ELSE off[e]]
    /\ safe' = off'  \* what is read after it is what the disk holds
    /\ done' \in {e \in 0..done : off'[e] # None}
    /\ Noted
    /\ passed' = {e \in passed : e <= done'}
    /\ drv' # drv \/ chain' # chain \/ done' # done \/ receipt' # receipt \/ off' # off
    /\ UNCHANGED <<synced, kept, tx>>

PutBack ==  \* somebody puts back an older copy of Spark's files, or removes the newest
    /\ Fault
    /\ \A d \in Drivers : ~Alive(d) /\ drv[d].pc # "late"
    /\ \E last \in 0..(Newest - 1) :
        /\ off' = [e \in DOMAIN off |-> IF e > last THEN None ELSE off[e]]
        /\ done' \in {IF done < last THEN done ELSE last, 0}
    /\ safe' = off'
    /\ UNCHANGED <<chain, synced, receipt, kept, tx, drv>>
    /\ Noted
    /\ passed' = {e \in passed : e <= done'}

Expire(t) ==
    /\ Fault
    /\ tx[t] \in Pending
    /\ tx' = [tx EXCEPT ![t] = "expired"]
    /\ UNCHANGED <<Log, done, drv>>

-----------------------------------------------------------------------------
Step(d) ==
    \/ Begin(d) \/ Read(d) \/ Drain(d) \/ Put(d) \/ Sync(d) \/ List(d) \/ Look(d) \/ Fence(d)
    \/ TaskFails(d) \/ Decide(d) \/ SendCommits(d) \/ Outcomes(d) \/ PutReceipt(d)
    \/ Abandon(d) \/ Finish(d) \/ LatePut(d) \/ NoteSkip(d) \/ WriteOffsets(d) \/ Discard(d) \/ Restore(d)
Failure(d) ==
    \/ PutInDoubt(d) \/ SweepFails(d) \/ NoAnswer(d) \/ Crash(d) \/ CrashInPut(d) \/ CrashInReceipt(d)
    \/ NotRestored(d)

Settled == done = LastEpoch /\ \A d \in Drivers : ~Alive(d)
(* One that was overtaken would start again, and the bound has no driver left. *)
Spent == /\ \A d \in Drivers : drv[d].pc # "off" /\ ~Alive(d)
         /\ \E d \in Drivers : drv[d].pc = "overtaken"
Rest == (Settled \/ Spent) /\ UNCHANGED vars  \* so that only what is stuck elsewhere is a deadlock

Next ==
    \/ \E d \in Drivers : Start(d) \/ Step(d) \/ Failure(d)
    \/ \E d \in Drivers, s \in Slots : BeginSecond(d, s) \/ BeginLate(d, s)
    \/ \E t \in DOMAIN tx : Prepare(t) \/ Deliver(t) \/ Expire(t)
    \/ LosePower \/ PassedBy \/ PutBack
    \/ Rest

(* Faults are finite, and whatever can go on goes on. *)
Spec == Init /\ [][Next]_vars /\ WF_vars(Next)
Settles == <>[](Settled \/ Spent)

-----------------------------------------------------------------------------
(* The rows of the code's table (protocol/transitions.py), each with the actions here that take it. *)
(* A test compares them with the table, and the actions with those above. *)

Rows == {
    <<"Reading", "ChainRead", {"Read"}>>,
    <<"Skipping", "LinkPersisted", {"Sync"}>>,
    <<"Skipping", "LinkTaken", {"Put"}>>,
    <<"Skipped", "ReceiptPersisted", {"NoteSkip"}>>,
    <<"Claiming", "LinkPersisted", {"Sync"}>>,
    <<"Claiming", "LinkTaken", {"Put"}>>,
    <<"SweepingStart", "Swept", {"Look", "Fence"}>>,
    <<"SweepingStart", "SweepFailed", {"SweepFails"}>>,
    <<"SweepingStart", "LinkTaken", {"Look"}>>,
    <<"Draining", "ChainRead", {"Drain"}>>,
    <<"ClaimingNext", "LinkPersisted", {"Sync"}>>,
    <<"ClaimingNext", "LinkTaken", {"Put"}>>,
    <<"SweepingNext", "Swept", {"Look", "Fence"}>>,
    <<"SweepingNext", "SweepFailed", {"SweepFails"}>>,
    <<"SweepingNext", "LinkTaken", {"Look"}>>,
    <<"Withdrawing", "LinkPersisted", {"Sync"}>>,
    <<"Withdrawing", "LinkTaken", {"Put"}>>,
    <<"Restoring", "InputsRestored", {"Discard", "Restore"}>>,
    <<"Restoring", "InputsNotRestored", {"NotRestored"}>>,
    <<"Syncing", "LinkPersisted", {"Sync"}>>,
    <<"Resolving", "Resolved", {"Outcomes", "NoAnswer"}>>,
    <<"Receipting", "ReceiptPersisted", {"PutReceipt"}>>,
    <<"Running", "VotesCollected", {"Decide"}>>,
    <<"Checking", "Checked", {"Decide", "TaskFails"}>>,  \* late is as if a task had failed
    <<"Deciding", "LinkPersisted", {"Sync"}>>,
    <<"Deciding", "LinkTaken", {"Put"}>>,
    <<"Committing", "Resolved", {"Outcomes", "NoAnswer"}>>,
    <<"SweepingEnd", "Swept", {"Look", "Fence"}>>,
    <<"SweepingEnd", "SweepFailed", {"SweepFails"}>>,
    <<"SweepingEnd", "LinkTaken", {"Look"}>>,
    <<"Abandoning", "ChainRead", {"Abandon"}>>,
    <<"Voiding", "LinkPersisted", {"Sync"}>>,
    <<"Voiding", "LinkTaken", {"Put"}>>
}

(* Rows that the model does not have, each with its reason: none. *)
Outside == {}

(* What takes no row: Spark's and the tasks' own steps, commands that have no answer, and faults of the world. *)
NoRow == {"Crash", "PutInDoubt",
          "Start", "Finish", "Begin", "BeginSecond", "BeginLate", "Prepare", "List", "SendCommits", "Deliver",
          "Expire", "LosePower", "PassedBy", "CrashInPut", "LatePut", "CrashInReceipt", "WriteOffsets", "PutBack",
          "Rest"}

-----------------------------------------------------------------------------
(* The laws *)

Visible(e, s) == {t \in DOMAIN tx : t.e = e /\ t.s = s /\ tx[t] = "committed"}
Whole(e) == \A s \in Slots : Cardinality(Visible(e, s)) = 1
Nothing(e) == \A s \in Slots : Visible(e, s) = {}

Input(t) == (t.r[1] + 1)..t.r[2]
NoRowTwice ==  \* of the input, whichever epochs read it
    \A t, u \in DOMAIN tx :
        t # u /\ t.s = u.s /\ tx[t] = "committed" /\ tx[u] = "committed" => Input(t) \cap Input(u) = {}

(* None is lost, and no epoch is left half: neither over slots nor over sinks. *)
Skipped(e) == chain[e] # <<>> /\ Last(chain[e]).kind = "SKIPPED"
FinishedIsWhole == \A e \in 1..done : Whole(e) \/ Skipped(e) \/ e \in passed
Ends(e, s) == IF Skipped(e) THEN {Last(chain[e]).end} ELSE {t.r[2] : t \in Visible(e, s)}
NoInputLost ==  \* what is visible begins where the epoch before ends
    \A e \in Epochs, s \in Slots : \A t \in Visible(e, s) :
        IF e = 1 THEN t.r[1] = 0 ELSE Ends(e - 1, s) = {t.r[1]}
SettledIsWhole == \A e \in Epochs : receipt[e] # 0 => Whole(e) \/ Skipped(e)
ReceiptLast ==
    \A e \in Epochs : receipt[e] # 0 => receipt[e] = Len(chain[e]) /\ Last(chain[e]).kind # "ABORT"

(* Of an epoch that was passed by, nothing of ours is seen. *)
SkippedIsNothing == \A e \in Epochs : Skipped(e) \/ e \in passed => Nothing(e)

(* Nothing is sent, hence nothing is visible, before its decision is durable. *)
DecisionFirst ==
    \A t \in DOMAIN tx : tx[t] \in {"sent", "committed"} =>
        \E i \in 1..synced[t.e] : chain[t.e][i].kind = "COMMIT" /\ t \in Output(chain[t.e][i])

(* Nor does a driver decide before Spark's files say durably what the epoch reads; the link says what was read. *)
InputsFirst ==
    /\ \A d \in Drivers :  \* one whose number is taken by now decides nothing
        LET w == drv[d] IN
        /\ w.then = "decide" /\ w.pc \in {"putting", "syncing", "sending"}
        /\ w.pc = "putting" => Len(chain[w.le]) = w.at
        => safe[w.e] # None
    /\ \A e \in Epochs : \A i \in DOMAIN chain[e] :
        \A t \in Output(chain[e][i]) : t.r[2] = chain[e][i].end

(* What is visible is named by the last word on its epoch: no aborted attempt is. *)
AbortedNeverVisible ==
    \A t \in DOMAIN tx : tx[t] = "committed" =>
        chain[t.e] # <<>> /\ Last(chain[t.e]).kind = "COMMIT" /\ t \in Output(Last(chain[t.e]))

(* What the last word on an epoch names was not aborted by any of us. *)
DecidedNeverAborted ==
    \A e \in Epochs : chain[e] # <<>> =>
        \A t \in Output(Last(chain[e])) : tx[t] # "aborted"

NoGap == \A d \in Drivers : drv[d].pc # "gap"
SyncedStands == \A e \in DOMAIN chain : synced[e] <= Len(chain[e])

(* At rest there is nothing between whole and nothing. *)
RestIsWhole == Settled => \A e \in Epochs : Whole(e) \/ Skipped(e) \/ e \in passed

(* Not laws, but what must be seen to happen, else the laws say little: TLC has to find each of them broken. *)
NeverRepaired == \A e \in Epochs : receipt[e] # 0 => Last(chain[e]).carried = {}
NeverTakenOver == \A e \in Epochs : receipt[e] # 0 => \A i \in DOMAIN chain[e] : chain[e][i].plan[1] = 1
NeverRestored == \A d \in Drivers : drv[d].pc # "restoring"
NeverSkipped == \A e \in Epochs : receipt[e] # 0 => ~Skipped(e)
NeverVoided ==
    \A e \in Epochs : receipt[e] # 0 => \A i \in DOMAIN chain[e] : i > 1 => chain[e][i].kind = "COMMIT"
=============================================================================
