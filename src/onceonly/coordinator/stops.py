"""The typed error for each reason for which the protocol stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly import errors
from onceonly.protocol import StopReason

if TYPE_CHECKING:
    from onceonly.protocol import Stop

_ERRORS: dict[StopReason, tuple[type[errors.OnceonlyError], str, str]] = {
    StopReason.SUPERSEDED: (
        errors.SupersededError,
        (
            "A newer run has taken this checkpoint over, or an operator has, and may be over itself; this one has "
            "stopped and changed nothing."
        ),
        errors.TAKEN_OVER,
    ),
    StopReason.OVERTAKEN: (
        errors.UnavailableError,
        "Another run, or an operator's command, put a link of this epoch first; this one has changed nothing.",
        "Start the query again: it sees what was put. If two runs are meant to be, there must be only one.",
    ),
    StopReason.IN_DOUBT: (
        errors.InDoubtError,
        "The outcome cannot be told, so nothing was aborted and nothing was written again.",
        "Mend the target (a broker is down, a mount is gone), and start the query again: that is nearly always all.",
    ),
    StopReason.DELAYED: (
        errors.CommitDelayedError,
        "The target system did not take it within the time; what is decided stays decided.",
        "Start the query again when the target answers; a supervised query does so by its restart strategy.",
    ),
    StopReason.UNSWEPT: (
        errors.ConfigurationError,
        "What earlier runs left open in a target cannot be listed or ended, so no task has run.",
        "Do what the last words in the brackets say, and start the query again.",
    ),
    StopReason.REFUSED: (
        errors.CommitRefusedError,
        "The target system refused a commit for as long as it was asked; what is decided stays decided.",
        "Do what the last words in the brackets say, and start the query again: it commits what is decided.",
    ),
    StopReason.LATE: (
        errors.EpochTimeoutError,
        "The epoch came too late, so it was not decided; what it had prepared is removed.",
        (
            "Let the query start again, as a supervised one does: the epoch runs anew. If it is late every time, "
            "raise onceonly.epoch.timeout, or the transaction time-out that is named."
        ),
    ),
    StopReason.UNSYNCED: (
        errors.UnavailableError,
        "Spark's checkpoint could not be made durable, so the epoch was not decided; what it had prepared is removed.",
        "See to the checkpoint's file system, and start the query again: the epoch runs anew.",
    ),
    StopReason.MOVED: (
        errors.CheckpointChangedError,
        "Spark's offsets were written over while it ran, so this run decided nothing; what it had prepared is removed.",
        "Let the query start again, as a supervised one does: the epoch runs anew. There must be only one driver.",
    ),
    StopReason.RESTORED: (
        errors.CheckpointChangedError,
        "Spark's checkpoint did not say what was decided (a loss of power, another driver, an edit); it does again.",
        "Let the query start again, as a supervised one does: it goes on from what was decided.",
    ),
    StopReason.EXCHANGED: (
        errors.UnavailableError,
        "The target was exchanged while the epoch was written, so it was not decided; what it had prepared is removed.",
        "Let the query start again, as a supervised one does: the epoch runs anew, into the target that is there now.",
    ),
    StopReason.LOST: (
        errors.TransactionLostError,
        "Decided transactions were dropped by the target; this is proven, and they are fenced.",
        "Start the query again: it writes the lost rows again, exactly once.",
    ),
    StopReason.MISMATCH: (
        errors.ReplayMismatchError,
        "Lost rows must be written again, but the replay gives other rows; nothing of it was kept.",
        (
            "Make the query deterministic (no random values, clocks, unordered collections) and restore the "
            "former number of shuffle partitions, then start again."
        ),
    ),
    StopReason.LETTERS: (
        errors.ReplayMismatchError,
        (
            "Lost rows must be written again, and the sink refuses others of them now than when the epoch was decided, "
            "so that a row could be there beside its dead letter; nothing of it was kept."
        ),
        (
            "Give back what the sink went by then (its options; for Kafka the topic's max.message.bytes), start again, "
            "and change it once this epoch is through."
        ),
    ),
    StopReason.REPLAY: (
        errors.ReplayMismatchError,
        "A decided epoch was replayed with other rows, where the same are promised or asked for; its output stands.",
        (
            "See what became of the input (files gone or rewritten, a topic made anew, another code). To go on "
            "without them, start once with onceonly.replay=tell: the epoch's output stays as it was decided."
        ),
    ),
    StopReason.BARRIER: (
        errors.LogError,
        "An epoch was decided at other source offsets than Spark's checkpoint says, and cannot be restored by itself.",
        "Put the named file back from a backup of this checkpoint, then start again: it is compared with the decision.",
    ),
    StopReason.SETTINGS: (
        errors.ConfigurationError,
        "Decided transactions are still pending for another target; none was touched.",
        (
            "Start once with the former options, and with the former target brought back where it is another one (not "
            "mounted, emptied, made anew), so that they are committed; then change them. If that is gone for good, "
            "take a savepoint, and go on with a fork of it: onceonly savepoint fork --same-targets."
        ),
    ),
    StopReason.OWED: (
        errors.ConfigurationError,
        "An earlier epoch is decided for a sink that this one does not write to; it is still to be committed there.",
        (
            "Commit it with the job down, by onceonly transactions commit, with that epoch, the checkpoint, the sink's "
            "secrets; or let this epoch write to that sink, too, even an empty frame. Then start the query again."
        ),
    ),
    StopReason.SHARED: (
        errors.ConfigurationError,
        "This query is a fork, and writes to a target of the query that it was forked from; nothing was written.",
        "Name other targets in the fork's job; where both are meant to write there, fork anew with --same-targets.",
    ),
    StopReason.BRANCH: (
        errors.ReplayMismatchError,
        "The epoch was decided for other sinks than its replay writes to; nothing was touched.",
        (
            "Let the replay take the branch that the epoch took (the former code, a condition that does not change), "
            "and change the sinks once the epoch is through."
        ),
    ),
    StopReason.GAP: (
        errors.LogError,
        "The decision log does not fit Spark's checkpoint: epochs are missing.",
        "Restore the whole checkpoint folder, onceonly's part with Spark's, or begin with a new checkpoint.",
    ),
    StopReason.PASSED: (
        errors.AdoptionError,
        "Spark has noted an earlier epoch, named in the brackets, whose rows onceonly's log does not know of.",
        (
            "See what became of its rows. If the folder onceonly was put back from an older backup, put the newest one "
            "back. If another sink has written them, or they may be left out, start with onceonly.adopt=true, "
            "which takes over what was noted before that start. If the query has a foreachBatch function, mend it "
            "first where it returns early or keeps errors back: every call enters onceonly.epoch (or onceonly.sink)."
        ),
    ),
    StopReason.FOREIGN_VOTE: (
        errors.ProtocolError,
        "Votes do not belong to this epoch's plan; nothing was decided.",
        "Start the query again; please report this.",
    ),
}


def error_of(stop: Stop, *, query: str, epoch: int) -> errors.OnceonlyError:
    """Return the error to raise for a stop. Pure."""
    kind, what, next_step = _ERRORS[stop.reason]
    return kind(f"Query {query}, chk-{epoch}: {what} ({stop.detail})", next_step=next_step)
