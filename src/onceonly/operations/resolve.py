"""``transactions resolve``: what a start of the query would do, done with the job down.

It plans the newest epoch, as a run would, and drops the plan: what is decided is committed, everything else that
the query has open is fenced and aborted under an ABORT link of this plan. Killed anywhere, it is run again; a run
that starts meanwhile is told apart by the log, as two drivers are (docs/adr/0005-claims.md).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from onceonly.checkpoint.passed import passed
from onceonly.coordinator.coordinator import Coordinator
from onceonly.errors import ConfigurationError, LogError, OnceonlyError, UnavailableError
from onceonly.log import open_log
from onceonly.log.presence import Presence
from onceonly.model import LinkKind
from onceonly.operations import sinks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.coordinator.coordinator import Participant
    from onceonly.operations.find import Checkpoint
    from onceonly.operations.given import Given

_WORDS = {
    "Committed": ("committed", "green"),
    "AlreadyCommitted": ("already committed", "green"),
    "Lost": ("lost", "red"),
    "RetryLater": ("not taken now", "yellow"),
    "Unknown": ("in doubt", "red"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What was done with one transaction."""

    epoch: int
    sink: str
    transaction: str
    outcome: str
    slot: int | None = None
    reason: str = ""
    style: str = ""


@dataclass(slots=True, kw_only=True)
class Result:
    """What became of one checkpoint; ``told`` is what people should know, ``error`` why it stopped before its end."""

    done: list[Done] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    receipt: bool = False
    told: list[str] = field(default_factory=list)
    error: OnceonlyError | None = None

    @property
    def lost(self) -> int:
        """How many transactions were proven lost: the query's next run writes their rows again."""
        return sum(item.outcome == _WORDS["Lost"][0] for item in self.done)


def refuse_if_alive(checkpoint: Checkpoint, *, force: bool) -> None:
    """Raise where a run works on the checkpoint, or where that cannot be told and ``force`` is not given."""
    run = checkpoint.run
    if run.alive:
        raise ConfigurationError(
            f"a run is alive on {checkpoint.path}: {run.who}",
            next_step="stop it first; while it lives it resolves its transactions by itself",
        )
    if run.alive is None and not force:
        raise UnavailableError(
            f"{checkpoint.path}: {run.who}", next_step="make sure that no run is alive, and add --force"
        )


def refuse_if_unfit(checkpoint: Checkpoint) -> None:
    """Raise where there is nothing that could be resolved, or it is not safe here."""
    if checkpoint.moved is not None:
        raise checkpoint.moved
    if not checkpoint.log.epochs():
        raise LogError(
            f"the decision log of {checkpoint.path} has no link yet: no transaction was ever begun under it",
            next_step="nothing; the query's first epoch begins its log",
        )


def resolve(checkpoint: Checkpoint, given: Given, *, timeout_s: float, force: bool) -> Result:
    """Resolve one checkpoint. Operator's process, with no run alive; idempotent, safe to be killed in.

    What stops it is in the result, beside what was done before. Raises ``ConfigurationError`` (a run is alive;
    a sink, an option or a target is wrong), ``SetupError``, ``UnavailableError`` or ``LogError`` before anything
    is touched.
    """
    refuse_if_alive(checkpoint, force=force)  # again: a person may have thought for long
    with (
        contextlib.closing(Presence.hold(checkpoint.location, actor="onceonly transactions resolve")),
        sinks.participants(checkpoint, given) as made,
    ):
        sinks.refuse_other_target(checkpoint, given, made)
        return _plan(checkpoint, made, timeout_s)


def _plan(checkpoint: Checkpoint, made: Mapping[str, Participant], timeout_s: float) -> Result:
    """Plan the newest epoch, and drop the plan."""
    result = Result()
    epoch, barrier = _in_flight(checkpoint)
    coordinator = Coordinator(
        log=open_log(checkpoint.location, query=checkpoint.query, create=True),
        actor="operator",
        commit_timeout_s=timeout_s,
        call_timeout_s=300.0,
        watch=lambda step: _note(result, step),
    )
    for name, participant in made.items():
        coordinator.join(name, participant)
    try:
        coordinator.plan(
            epoch,
            sinks=sinks.decided_by(checkpoint, epoch),
            barrier=barrier,
            # What may be taken over is for the query's user to say, by onceonly.adopt.
            passed=partial(passed, checkpoint.told, taken=False),
        )
    except OnceonlyError as error:
        result.error = error
    except Exception as error:  # noqa: BLE001  whatever a sink lets slip; what was done before is still shown
        result.error = UnavailableError(
            f"query {checkpoint.query}, chk-{epoch}: a sink failed: {type(error).__name__}: {error}",
            next_step="see to the target and run this again: what is decided stays decided",
        )
    return result


def _in_flight(checkpoint: Checkpoint) -> tuple[int, tuple[str, ...]]:
    """Return the epoch to resolve, and its barrier.

    It is the newest that Spark has set a barrier for. Spark does not sync its files, so after a power loss the
    log may hold a decision whose barrier is gone; then that is the epoch, and there is nothing to compare.
    """
    decided = [link.epoch for link in sinks.links(checkpoint) if link.kind is LinkKind.COMMIT]
    try:
        epoch = checkpoint.told.epoch()
    except LogError:
        if not decided:
            raise
        epoch = -1
    if decided and decided[0] > epoch:
        return decided[0], ()
    return epoch, checkpoint.told.barrier(epoch)


def _note(result: Result, step: Mapping[str, Any]) -> None:
    """Take what the coordinator does, as it does it."""
    match step["kind"]:
        case "link.persisted":
            result.links.append(f"{step['epoch']}.{step['index']} {step['link']}")
        case "target.changed":
            result.told.append(str(step["message"]))
        case "receipt.persisted":
            result.receipt = True
        case "handle.resolved" | "handle.committed":
            outcome, style = _WORDS.get(str(step["outcome"]), (str(step["outcome"]), ""))
            result.done.append(
                Done(
                    epoch=int(step["epoch"]), sink=str(step["sink"]), slot=int(step["slot"]),
                    transaction=str(step["transaction"]), outcome=outcome, style=style,
                    reason=str(step.get("reason", "")),
                )
            )  # fmt: skip
        case "swept":
            result.done.append(
                Done(
                    epoch=int(step["epoch"]), sink=str(step["sink"]), transaction=str(step["transaction"]),
                    outcome="aborted and fenced", style="yellow",
                )
            )  # fmt: skip
