-------------------------------- MODULE Trace --------------------------------
(***************************************************************************)
(* Holds a real run against the model: a behaviour of Onceonly must exist  *)
(* that gives the events of the log, in their order. TraceData, written by *)
(* proof/src/onceonly_proof/traces.py, has one or more logs; TLC says of each  *)
(* how many events could be explained.                                     *)
(*                                                                         *)
(* A driver is a row of plans, each of which continues the one before.     *)
(* What a log does not tell (reading, looking, what was put or committed   *)
(* by a process that died before it could say so) are hidden steps. They   *)
(* are taken as late as possible, as each takes a driver only to the next  *)
(* event that it has.                                                      *)
(***************************************************************************)
EXTENDS Onceonly, TraceData

VARIABLES
    w,  \* which log
    i   \* the number of the event that is to be explained next

L == Traces[w].log
Ev == L[i]
Nobody == [e |-> 0, s |-> <<"none", 0>>, d |-> 0, a |-> 0]  \* a transaction of which nothing tells
T(n) == IF n = 0 THEN Nobody ELSE Traces[w].tx[n]
Named(numbers) == {T(n) : n \in numbers}
Window == 6  \* a process that is gone has left no more than this many events between its last one and its act

FreeFault == UNCHANGED faults  \* in place of Fault: nobody counts them here
Related(d, o) == d = o \/ Traces[w].applications[d] = Traces[w].applications[o]

TraceInit == Init /\ w \in DOMAIN Traces /\ i = 1

HasMore(d) == Traces[w].last[d] >= i
Recent(d) == Traces[w].last[d] >= i - Window

-----------------------------------------------------------------------------
(* Steps that are not in the log *)

Coming(d) ==  \* the names of the link that the driver is going to put, by the log
    LET later == {j \in i..Len(L) : L[j].d = d /\ L[j].k \in {"link", "taken"}}
        next == CHOOSE j \in later : \A o \in later : j <= o
    IN IF later # {} /\ L[next].k = "link" /\ L[next].kind = "COMMIT" THEN Named(L[next].names)
       ELSE {t \in drv[d].votes : Owes(d, SinkOf(t.s))}

TraceDecide(d) ==
    /\ drv[d].pc = "voted"
    /\ LET votes == IF drv[d].mode = "tentative" THEN Coming(d) ELSE drv[d].votes IN
        /\ votes \subseteq drv[d].votes
        /\ Go(d, Putting(d, Link("COMMIT", d, drv[d].e, votes, drv[d].carried, None), drv[d].e, drv[d].at, "decide"))
    /\ UNCHANGED <<Log, done, tx>> /\ NoFault

LeaveFence(d) ==
    /\ drv[d].pc = "fencing"
    /\ Go(d, Swept(d))
    /\ UNCHANGED <<Log, done, tx>> /\ NoFault

Looks(d) == Read(d) \/ Drain(d) \/ List(d) \/ Look(d) \/ Abandon(d)
PutFree(d) == drv[d].pc = "putting" /\ Len(chain[drv[d].le]) = drv[d].at /\ Put(d)

Own(d) ==
    \/ Looks(d) \/ TraceDecide(d) \/ PutFree(d) \/ SweepFails(d) \/ LeaveFence(d)
    \/ drv[d].then = "resolve" /\ Sync(d)
    \/ SendCommits(d) \/ Outcomes(d) \/ NoAnswer(d)

(* Others act before this event where the log could not tell: they stand before it, or have died since. *)
Meets(d) == drv[d].pc \in {"off", "reading", "draining", "putting", "looking", "dead", "overtaken"}
Others(o) ==
    /\ o # Ev.d /\ Recent(o)
    /\ Ev.k \in {"started", "link", "receipt"} \/ Meets(Ev.d)
    /\ \/ Looks(o) \/ TraceDecide(o) \/ PutFree(o)
       \/ ~HasMore(o) /\ (Outcomes(o) \/ PutReceipt(o))

Hidden ==
    /\ i <= Len(L)
    /\ Own(Ev.d) \/ \E o \in Drivers : Others(o)
    /\ UNCHANGED <<w, i>>

-----------------------------------------------------------------------------
(* Steps that are in the log *)

Same == UNCHANGED <<Log, done, tx, drv>> /\ NoFault
Set(t, state) ==
    /\ tx' = (t :> state) @@ tx
    /\ UNCHANGED <<Log, done, drv>> /\ NoFault
Ev_d(pc) == drv[Ev.d].pc = pc /\ drv[Ev.d].e = Ev.e

Started ==
    /\ Ev.k = "started"
    /\ Go(Ev.d, [Idle EXCEPT !.pc = "reading", !.e = Ev.e, !.goes = TRUE,  \* one that begins has no links yet
                             !.from = IF Ev.e = 1 THEN 0 ELSE None])  \* offsets are not in the log: nobody strays
    /\ done' = Ev.e - 1  \* commits/N is Spark's, and not in the log
    /\ passed' = {e \in Epochs : e < Ev.e /\ (chain[e] = <<>> \/ Last(chain[e]).kind = "ABORT")}
    /\ UNCHANGED <<chain, synced, receipt, kept, Files, tx>> /\ NoFault

Planned ==
    /\ Ev.k = "planned"
    /\ drv[Ev.d].mode = Ev.mode /\ Ev_d(IF Ev.mode = "drain" THEN "done" ELSE "running")
    /\ Same

Begun ==
    /\ Ev.k = "begun"
    /\ Ev.planned  \* an event before said that tasks of this plan may write
    /\ T(Ev.t) \notin DOMAIN tx /\ Set(T(Ev.t), "open")

Prepared ==
    /\ Ev.k = "prepared"
    /\ T(Ev.t) \in DOMAIN tx /\ tx[T(Ev.t)] = "open" /\ Set(T(Ev.t), "prepared")

Dropped ==  \* by its own executor
    /\ Ev.k = "failed"
    /\ T(Ev.t) \in DOMAIN tx
    /\ Set(T(Ev.t), IF tx[T(Ev.t)] \in Pending THEN "expired" ELSE tx[T(Ev.t)])

Votes ==
    /\ Ev.k = "votes"
    /\ IF drv[Ev.d].mode = "drain" THEN Ev_d("done") /\ Ev.names = {} /\ Same
       ELSE /\ Ev_d("running")
            /\ \A t \in Named(Ev.names) :
                t \in DOMAIN tx /\ tx[t] # "open" /\ t.d = Ev.d /\ t.e = Ev.e
            /\ \A t, u \in Named(Ev.names) : t.s = u.s => t = u
            /\ Go(Ev.d, [drv[Ev.d] EXCEPT !.pc = "voted", !.votes = Named(Ev.names)])
            /\ UNCHANGED <<Log, done, tx>> /\ NoFault

LinkStands ==
    /\ Ev.k = "link"
    /\ LET v == drv[Ev.d] IN
        /\ v.pc = "syncing" /\ v.then # "resolve" /\ v.le = Ev.e /\ v.at = Ev.index
        /\ v.link.kind = Ev.kind
        /\ v.link.votes = Named(Ev.names) /\ v.link.carried = Named(Ev.carried)
    /\ Sync(Ev.d)

LinkIsTaken ==
    /\ Ev.k = "taken"
    /\ LET v == drv[Ev.d] IN v.pc = "putting" /\ v.le = Ev.e /\ v.at = Ev.index /\ Len(chain[v.le]) > v.at
    /\ Put(Ev.d)

Answered ==
    /\ Ev.k = "answer"
    /\ Ev_d("committing") /\ T(Ev.t) \in drv[Ev.d].link.votes
    /\ drv[Ev.d].then = Ev.then
    /\ LET now == tx[T(Ev.t)] IN
        CASE Ev.outcome = "done" -> now \in {"sent", "committed"} /\ Set(T(Ev.t), "committed")
          [] Ev.outcome = "lost" ->
                now \in {"sent", "aborted", "expired"} /\ Set(T(Ev.t), IF now = "sent" THEN "expired" ELSE now)
          [] OTHER -> Same

HandleAborted ==  \* written tentatively, and not needed, or without its like
    /\ Ev.k = "unneeded" /\ T(Ev.t) \in drv[Ev.d].votes
    /\ \/ Ev_d("committing") /\ T(Ev.t) \notin drv[Ev.d].link.votes /\ Same
       \/ Ev_d("voted") /\ drv[Ev.d].mode = "tentative" /\ tx' = Fenced({T(Ev.t)})
          /\ UNCHANGED <<Log, done, drv>> /\ NoFault

Completed == Ev.k = "completed" /\ Ev_d("receipting") /\ Same
Receipted ==
    /\ Ev.k = "receipt"
    /\ \/ drv[Ev.d].e = Ev.e /\ PutReceipt(Ev.d)
       \/ drv[Ev.d].le = Ev.e /\ NoteSkip(Ev.d)

Fenced1 ==
    /\ Ev.k = "swept"
    /\ drv[Ev.d].pc = "fencing" /\ T(Ev.t) \in drv[Ev.d].found
    /\ tx' = Fenced({T(Ev.t)})
    /\ UNCHANGED <<Log, done, drv>> /\ NoFault

Over == Ev.k = "done" /\ Ev_d("done") /\ Same

GivenUp ==
    /\ Ev.k = "aborted" /\ drv[Ev.d].e = Ev.e
    /\ LET v == drv[Ev.d] IN
        IF v.pc \in {"dead", "overtaken"} THEN Same
        ELSE /\ v.mode # "none"
             /\ Go(Ev.d, IF v.mode = "drain" THEN Dead(Ev.d)
                         ELSE [Idle EXCEPT !.pc = "abandoning", !.e = v.e, !.mode = v.mode, !.at = v.at,
                                           !.lost = v.lost, !.carried = v.carried])
             /\ UNCHANGED <<Log, done, tx>> /\ NoFault

Lawful == DecisionFirst /\ AbortedNeverVisible /\ DecidedNeverAborted /\ ReceiptLast

Logged ==
    /\ i <= Len(L)
    /\ \/ Started \/ Planned \/ Begun \/ Prepared \/ Dropped \/ Votes \/ LinkStands \/ LinkIsTaken
       \/ Answered \/ HandleAborted \/ Completed \/ Receipted \/ Fenced1 \/ Over \/ GivenUp
    /\ Lawful'
    /\ i' = i + 1 /\ UNCHANGED w

(* Who is gone for good stands nowhere any more, so that what it might have done is not told apart for ever. *)
Buried == [Idle EXCEPT !.pc = "dead"]
Gone(d) == drv[d] \notin {Idle, Buried} /\ ~Recent(d)
Bury ==
    /\ drv' = [d \in Drivers |-> IF Gone(d) THEN Buried ELSE drv[d]]
    /\ UNCHANGED <<Log, done, tx, w, i>> /\ NoFault

(* Nor are the transactions of an epoch kept that no event names any more: a long log would take for ever. *)
Past(e) == Traces[w].until[e] + Window < i /\ \E t \in DOMAIN tx : t.e = e
Forget ==
    LET past == {e \in Epochs : Past(e)} IN
    /\ tx' = [t \in {t \in DOMAIN tx : t.e \notin past} |-> tx[t]]
    /\ chain' = [e \in DOMAIN chain |-> IF e \notin past THEN chain[e]
                   ELSE [k \in DOMAIN chain[e] |-> [chain[e][k] EXCEPT !.votes = {}, !.carried = {}]]]
    /\ UNCHANGED <<synced, receipt, kept, passed, Files, done, drv, w, i>> /\ NoFault

TraceNext ==
    IF \E d \in Drivers : Gone(d) THEN Bury
    ELSE IF \E t \in DOMAIN tx : Past(t.e) THEN Forget
    ELSE Logged \/ Hidden
TraceSpec == TraceInit /\ [][TraceNext]_<<vars, w, i>>

-----------------------------------------------------------------------------
(* Says once for each log and event that everything before it is explained; TLC with one worker. *)
ASSUME \A n \in DOMAIN Traces : TLCSet(n, 0)
Told == IF i > TLCGet(w) THEN TLCSet(w, i) /\ PrintT(<<"explained", w, i - 1>>) ELSE TRUE
=============================================================================
