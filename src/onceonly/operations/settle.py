"""``transactions commit`` and ``abort``: an epoch in doubt is ended with the job down.

In line with the log both do what a start would: the newest epoch is planned, and the plan is dropped. What is decided
is committed; everything else that the query has open is fenced and aborted under an ABORT link of this plan. Killed
anywhere, it is run again; a run that starts meanwhile is told apart by the log, as two drivers are, and a run that
lives after all finds links of another application and ends as superseded (docs/adr/0005-claims.md).

Against the log only an abort is possible: ``against`` has how.
"""

from __future__ import annotations

import contextlib
import enum
import secrets
import shlex
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from onceonly import events
from onceonly.checkpoint.passed import passed
from onceonly.coordinator import by_hand
from onceonly.coordinator.coordinator import Coordinator
from onceonly.errors import ConfigurationError, InDoubtError, LogError, OnceonlyError, UnavailableError
from onceonly.log import open_log
from onceonly.log.actions import OPERATOR, Action, ActionFiles, user
from onceonly.log.presence import Presence
from onceonly.model import Guarantee, LinkKind
from onceonly.operations import against, look, sinks
from onceonly.operations.ended import ended, stands
from onceonly.operations.states import OWED, SETTLED, EpochState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onceonly.coordinator.coordinator import Participant
    from onceonly.operations.checkpoint_model import CheckpointModel, EpochModel
    from onceonly.operations.find import Checkpoint
    from onceonly.operations.given import Given

_WORDS = {
    "Committed": ("committed", "green"),
    "AlreadyCommitted": ("already committed", "green"),
    "Lost": ("lost", "red"),
    "RetryLater": ("not taken now", "yellow"),
    "Unknown": ("in doubt", "red"),
}
_ABORTED = "aborted and fenced"
_VISIBLE = frozenset({_WORDS["Committed"][0], _WORDS["AlreadyCommitted"][0]})


class Verb(enum.StrEnum):
    """What is asked for."""

    COMMIT = "commit"
    ABORT = "abort"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What an operator asks for: an epoch, by its number or by one of its transactions, and their reason.

    ``against`` says that the decision in the log shall not stand.
    """

    verb: Verb
    epoch: int | None = None
    transaction: str = ""
    because: str = ""
    against: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """What is to be done with one checkpoint; ``is_done`` says that there is nothing left to do.

    ``record`` is that of the command that has aborted the transaction, where one has.
    """

    model: CheckpointModel
    epoch: EpochModel
    order: Order
    is_done: bool = False
    record: Action | None = None


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
    action: Action | None = None

    @property
    def lost(self) -> int:
        """How many transactions were proven lost: the query's next run writes their rows again."""
        return sum(item.outcome == _WORDS["Lost"][0] for item in self.done)

    @property
    def committed(self) -> frozenset[str]:
        """The transactions of which targets have said that they are committed."""
        return frozenset(item.transaction for item in self.done if item.outcome in _VISIBLE)

    @property
    def aborted(self) -> tuple[str, ...]:
        """The transactions that were open, and named by no decision."""
        return tuple(item.transaction for item in self.done if item.outcome == _ABORTED)


def refuse_if_alive(checkpoint: Checkpoint, *, force: bool) -> None:
    """Raise where a run works on the checkpoint, or may: then not with ``force``.

    A lock tells for sure. A heartbeat tells that a run was alive a moment ago: it may have been killed since.
    """
    run = checkpoint.run
    if run.alive and (checkpoint.folder is not None or not force):
        more = "" if checkpoint.folder is not None else "; if you know that it is dead, add --force"
        raise ConfigurationError(
            f"a run is alive on {checkpoint.path}: {run.who}",
            next_step=f"stop it first; while it lives it ends its transactions by itself{more}",
        )
    if run.alive is None and not force:
        raise UnavailableError(
            f"{checkpoint.path}: {run.who}", next_step="make sure that no run is alive, and add --force"
        )


def refuse_if_unfit(checkpoint: Checkpoint) -> None:
    """Raise where there is nothing that could be ended, or it is not safe here."""
    checkpoint.require_home()
    if not checkpoint.log.epochs():
        raise LogError(
            f"the decision log of {checkpoint.path} has no link yet: no transaction was ever begun under it",
            next_step="nothing; the query's first epoch begins its log",
        )


def prepare(checkpoint: Checkpoint, order: Order, given: Given, *, force: bool) -> Errand | None:
    """See that an order can be carried out on a checkpoint; None where its transaction is not of this one.

    Only looks. Raises ``ConfigurationError`` where the log says otherwise, or a run is alive, ``CheckpointMovedError``,
    ``LogError``, ``UnavailableError``.
    """
    number = order.epoch
    if number is None:
        model = look.unsettled(checkpoint, everything=True)
        named = [
            (epoch.view.epoch, handle)
            for epoch, handle in model.transactions
            if handle.transaction == order.transaction
        ]
        if named and not sinks.is_open_again(checkpoint, given, named[0][1]):
            number = named[0][0]
        elif named or any(
            item.transaction == order.transaction for _, item in sinks.open_outside(checkpoint, given)
        ):
            # No link names it, so it is of the epoch that would be run next.
            number = _in_flight(checkpoint)[0]
        elif (record := _record_of(checkpoint, order.transaction)) is None:
            return None
        elif record.after:
            return _aborted_before(checkpoint, order, record)
        else:
            number = record.epoch  # that command was broken off, and this one ends it
    refuse_if_alive(checkpoint, force=force)
    refuse_if_unfit(checkpoint)
    model = look.epoch(checkpoint, number, sizes=False)
    errand = Errand(model=model, epoch=model.epoch, order=replace(order, epoch=number))
    return replace(errand, is_done=_refuse_or_done(errand, lambda: _is_swept(checkpoint, number, given)))


def _record_of(checkpoint: Checkpoint, transaction: str) -> Action | None:
    """Return the newest record of a command that has aborted a transaction, or was to."""
    return next(
        (each for each in ActionFiles(checkpoint.store).newest() if transaction in each.aborted), None
    )


def _aborted_before(checkpoint: Checkpoint, order: Order, record: Action) -> Errand:
    """Say that a transaction is aborted. Raises ``ConfigurationError`` where it is to be committed."""
    if order.verb is not Verb.ABORT:
        raise ConfigurationError(
            f"transaction {order.transaction} is aborted, and cannot be committed: {record.sentence}",
            next_step="nothing: the next start has written its rows again, or will",
        )
    model = look.epoch(checkpoint, record.epoch, sizes=False)
    return Errand(model=model, epoch=model.epoch, order=order, is_done=True, record=record)


def _is_swept(checkpoint: Checkpoint, number: int, given: Given) -> bool:
    """Say whether nothing is left of a committed epoch: of the newest one, somebody may have died before the sweep."""
    if any(each.epoch == number and not each.after for each in ActionFiles(checkpoint.store).newest(1)):
        return False  # a command was broken off, and this one ends it
    went_on = any(link.epoch > number and link.kind is not LinkKind.ABORT for link in sinks.links(checkpoint))
    return went_on or not sinks.open_outside(checkpoint, given)


def _refuse_or_done(errand: Errand, is_swept: Callable[[], bool]) -> bool:
    """See whether the order is in line with the log; say whether nothing is left to do."""
    view, order = errand.epoch.view, errand.order
    if view.state in SETTLED:
        if order.verb is Verb.COMMIT:
            return is_swept()
        raise ConfigurationError(
            f"{view.name} is committed: its rows are visible, and no command takes them back",
            next_step="nothing was changed; what is open beside it is aborted by onceonly transactions commit "
            f"{view.name} {shlex.quote(errand.model.path)}",
        )
    if view.state in OWED:
        _refuse_against(errand)
        return False
    if order.verb is Verb.COMMIT:
        raise ConfigurationError(
            f"{view.name} is not decided ({view.state.value}): the log names no transaction of it that could be "
            "committed, and the next start writes its rows again: committed by hand, they would be there twice",
            next_step=f"onceonly transactions abort {view.name} {shlex.quote(errand.model.path)}, or start the query",
        )
    return view.state is EpochState.SKIPPED


def _refuse_against(errand: Errand) -> None:
    view, order = errand.epoch.view, errand.order
    if order.verb is Verb.COMMIT:
        return
    if not order.against or not order.because:
        raise ConfigurationError(
            f"{view.name} is decided, to commit: to abort it is against the log",
            next_step=f"onceonly transactions commit {view.name} {shlex.quote(errand.model.path)}; or, to have its "
            "rows written again by the next start, add --against-decision --because TEXT",
        )
    if errand.epoch.chain[-1].guarantee is Guarantee.AT_MOST_ONCE:
        raise ConfigurationError(
            f"{view.name} was decided at most once: its one try is over, and the next start gives it up by itself",
            next_step="start the query",
        )


def settle(checkpoint: Checkpoint, errand: Errand, given: Given, *, timeout_s: float, force: bool) -> Result:
    """Carry an order out. Operator's process, with no run alive; idempotent, safe to be killed in.

    What stops it is in the result, beside what was done before. Raises ``ConfigurationError`` (a run is alive;
    a sink, an option or a target is wrong), ``SetupError``, ``UnavailableError`` or ``LogError`` before anything
    is touched.
    """
    refuse_if_alive(checkpoint, force=force)  # again: a person may have thought for long
    order, epoch = errand.order, errand.epoch
    with (
        contextlib.closing(Presence.hold(checkpoint.location, actor=f"onceonly transactions {order.verb}")),
        sinks.participants(checkpoint, given) as built,
    ):
        made = built
        sinks.refuse_other_target(checkpoint, given, made)
        sinks.require_decided(checkpoint, _in_flight(checkpoint)[0], made)
        result = Result()
        application = f"{OPERATOR}{secrets.token_hex(4)}"
        action = Action(
            command=order.verb.value,
            epoch=epoch.view.epoch,
            who=user(),
            stamp=events.stamp(),
            plan=application,
            because=order.because,
            against=order.against and epoch.view.state in OWED,
            before=stands(epoch),
            aborted=_asked_to_abort(order, epoch),
        )
        actions = ActionFiles(checkpoint.store)
        actions.put(action)
        if action.against:
            try:
                proof = f"aborted by hand, by {action.who}: {action.because}"
                made = against.aborted(built, epoch, proof, within_s=timeout_s)
            except UnavailableError as error:
                result.error = error
        if result.error is None:
            _plan(checkpoint, made, application, timeout_s, result)
        result.action = replace(
            ended(checkpoint, action, result.committed, result.error),
            aborted=tuple(
                dict.fromkeys((*(action.aborted if result.error is None else ()), *result.aborted))
            ),
        )
        actions.put(result.action)
    return result


def _asked_to_abort(order: Order, epoch: EpochModel) -> tuple[str, ...]:
    """Name the transaction that an order is to abort, where it is one that no decision names."""
    is_open = order.verb is Verb.ABORT and epoch.view.state not in OWED
    return (order.transaction,) if order.transaction and is_open else ()


# --- in line with the log -----------------------------------------------------------------------------------


def _plan(
    checkpoint: Checkpoint,
    made: Mapping[str, Participant],
    application: str,
    timeout_s: float,
    result: Result,
) -> None:
    """Plan the newest epoch, and drop the plan."""
    epoch, barrier = _in_flight(checkpoint)
    coordinator = Coordinator(
        log=open_log(checkpoint.location, query=checkpoint.query, create=True),
        actor="operator",
        application=application,
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
    except InDoubtError as error:
        applications = {link.application for link in sinks.links(checkpoint)}
        result.error = by_hand.in_doubt(error, checkpoint.location, epoch, applications)
    except OnceonlyError as error:
        result.error = error
    except Exception as error:  # noqa: BLE001  whatever a sink lets slip; what was done before is still shown
        result.error = UnavailableError(
            f"query {checkpoint.query}, chk-{epoch}: a sink failed: {type(error).__name__}: {error}",
            next_step="see to the target and run this again: what is decided stays decided",
        )


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
                    outcome=_ABORTED, style="yellow",
                )
            )  # fmt: skip
