"""The two-phase protocol without I/O: events in, commands out.

There is no clock, no socket, no thread and no Spark here. A state is a frozen value; ``step(state, event)``
looks up one row of a table and gives the next state with the commands to carry out. An illegal move is a
missing row, and becomes a typed error before anything is sent.

The loop that drives it (``coordinator.coordinator`` is the real one, the property tests have another)::

    state, commands = begin(context)
    while commands:
        event = carry_out(commands.popleft())      # I/O; some commands answer with no event
        state, more = step(state, event)
        commands.extend(more)

``messages`` are the commands and events, ``states`` where a try can stand, ``transitions`` the table. Its rows are in
``planning`` (a chain was read), ``recovery`` (what must be done before the epoch can run), ``skipping`` (epochs that
Spark has noted and nobody decided) and ``deciding`` (from the votes on); ``moves`` are what they are made of.

The laws, which the property tests hold against it through crashes at every step:

1. ``CommitHandle`` comes only out of the event ``LinkPersisted``: a decision is durable before any commit.
2. A handle is committed or aborted, never both: ``AbortHandle`` and ``Sweep`` never name what a link names.
3. Every decided row becomes visible exactly once; no undecided row ever does.
4. A run that finds its link number taken stops and changes nothing. No task of a run writes before a link of
   that run stands in the log, so that an older run cannot overlook it.
5. What is unknown is neither done nor failed: the protocol stops and keeps everything as it is.
6. An epoch that is late is not decided. Once its link is put, no clock changes what it says.

Presumed abort: an epoch without a link has not happened. See Gray and Lamport, "Consensus on Transaction
Commit" (2006), for the vocabulary of two-phase commit; the chain of links is what replaces the coordinator's
memory after a crash.
"""

from onceonly.protocol.messages import (
    AbortHandle,
    ChainRead,
    Checked,
    CheckPrepared,
    Command,
    CommitHandle,
    Event,
    InputsNotRestored,
    InputsRestored,
    LinkPersisted,
    LinkTaken,
    PutLink,
    PutReceipt,
    ReadChain,
    ReceiptPersisted,
    Report,
    ReportKind,
    Resolved,
    RestoreInputs,
    StartTasks,
    Stop,
    StopReason,
    Sweep,
    SweepFailed,
    Swept,
    SyncLink,
    VotesCollected,
)
from onceonly.protocol.moves import repeats
from onceonly.protocol.planning import open_epoch
from onceonly.protocol.skipping import why_stop
from onceonly.protocol.states import Context, Resolving, State
from onceonly.protocol.transitions import abandon, begin, resume, step

__all__ = [
    "AbortHandle",
    "ChainRead",
    "CheckPrepared",
    "Checked",
    "Command",
    "CommitHandle",
    "Context",
    "Event",
    "InputsNotRestored",
    "InputsRestored",
    "LinkPersisted",
    "LinkTaken",
    "PutLink",
    "PutReceipt",
    "ReadChain",
    "ReceiptPersisted",
    "Report",
    "ReportKind",
    "Resolved",
    "Resolving",
    "RestoreInputs",
    "StartTasks",
    "State",
    "Stop",
    "StopReason",
    "Sweep",
    "SweepFailed",
    "Swept",
    "SyncLink",
    "VotesCollected",
    "abandon",
    "begin",
    "open_epoch",
    "repeats",
    "resume",
    "step",
    "why_stop",
]
