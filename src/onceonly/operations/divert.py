"""``transactions divert``: rows that the target refuses after their decision become dead letters, with the job down.

A decided transaction cannot be changed, so a new one takes its place, as where one was lost: the rows that the target
takes are staged once more, the others are prepared as dead letters, and one link names both in place of the former
transaction. That one is void before, so that no driver that woke up applies it, and its rows are removed behind. Killed
before the link is there, nothing is diverted, and it can be run again: what was prepared is swept. Or the query is
started: a transaction that is void by then is lost, so that its rows are written again.
"""

from __future__ import annotations

import contextlib
import secrets
import shlex
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onceonly import events, failpoints
from onceonly.coordinator import diverting
from onceonly.coordinator.diverting import staged_rows
from onceonly.errors import ConfigurationError, InDoubtError
from onceonly.executor import diverted
from onceonly.executor.dead_letters import Letters, columns_of, refuse_same_target
from onceonly.families.staged import StagedSink
from onceonly.families.staged.sink import named
from onceonly.log import open_log
from onceonly.log.actions import OPERATOR, Action, ActionFiles, user
from onceonly.log.presence import Presence
from onceonly.model import LinkKind, Mode, Plan, letters_name
from onceonly.operations import look, sinks
from onceonly.operations.ended import stands
from onceonly.operations.settle import refuse_if_alive, refuse_if_unfit
from onceonly.ports import QueryContext, WriteContext
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.coordinator.coordinator import Participant
    from onceonly.model import Handle, Link, Vote
    from onceonly.operations.find import Checkpoint
    from onceonly.operations.given import Given
    from onceonly.ports import Refused

_OPERATOR = "operator"
_REASON = "rows that the target refused after the decision became dead letters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diverted:
    """What became of a transaction: its rows that are left, and those that became letters, each with its reason."""

    epoch: int
    link: str
    kept: int
    refused: tuple[Refused, ...]


def divert(checkpoint: Checkpoint, given: Given, name: str, *, because: str, force: bool) -> Diverted:
    """Divert what the target refuses of a transaction that is decided and pending. Operator's process, no run alive.

    Afterwards the epoch is as any other that is decided: ``settle``, or the query's next start, commits it. Raises
    ``ConfigurationError`` where there is nothing to divert, or no place for letters; ``UnavailableError``,
    ``LogError``.
    """
    refuse_if_alive(checkpoint, force=force)
    refuse_if_unfit(checkpoint)
    with (
        contextlib.closing(Presence.hold(checkpoint.location, actor="onceonly transactions divert")),
        sinks.participants(checkpoint, given) as made,
    ):
        link, vote = _pending(checkpoint, name)
        sinks.refuse_other_target(checkpoint, given, made)
        return _divert(checkpoint, made, link, vote, because)


def _divert(
    checkpoint: Checkpoint, made: Mapping[str, Participant], link: Link, vote: Vote, because: str
) -> Diverted:
    sink, letters = _sinks(made, vote.sink)
    handle = _handle(vote)
    rows = staged_rows(sink, vote, handle)
    others = [_handle(each) for each in link.pending if each.sink == vote.sink and each != vote]
    refused = sink.refusals(handle, others)
    if not refused:
        raise ConfigurationError(
            f"the target of sink {vote.sink} takes every row of {handle.transaction} by now",
            next_step=f"onceonly transactions commit {handle.transaction} {shlex.quote(checkpoint.path)}, or start the "
            "query",
        )
    application = f"{OPERATOR}{secrets.token_hex(4)}"
    plan = Plan(
        id=f"{application}.{uuid.uuid4().hex}",
        epoch=link.epoch,
        mode=Mode.RUN,
        index=link.index + 1,
        guarantee=link.guarantee,
        facts=_facts(checkpoint, made, vote.sink),
    )
    context = WriteContext(
        query=checkpoint.query, sink=vote.sink, run="", epoch=link.epoch, plan=plan.id, slot=vote.slot,
        attempt=_OPERATOR, guarantee=link.guarantee, index=plan.index,
    )  # fmt: skip
    action = Action(
        command="divert", epoch=link.epoch, who=user(), stamp=events.stamp(), plan=application, because=because,
        before=f"{stands(look.epoch(checkpoint, link.epoch, sizes=False).epoch)}, "
        f"{n(len(refused), 'row')} of {handle.transaction} refused",
    )  # fmt: skip
    actions = ActionFiles(checkpoint.store)
    actions.put(action)
    slot = diverted.free_slot(link.output)
    beside = Letters(letters.sink, plan, context, limit=len(refused), slot=slot)
    votes = diverting.divert(sink, context, rows, refused, handle, beside)
    failpoints.hit("divert.after_prepare")
    if handle.transaction not in sink.void(named([handle])):
        raise InDoubtError(
            f"{handle.transaction} is applied: somebody has committed it meanwhile",
            next_step="onceonly transactions list; nothing was diverted",
        )
    failpoints.hit("divert.after_void")
    left = tuple(each for each in link.votes if each != vote)
    wanted = replace(
        link, index=plan.index, plan=plan.id, run="", votes=(*left, *votes), reason=_REASON, stamp=events.stamp(),
    )  # fmt: skip
    log = open_log(checkpoint.location, query=checkpoint.query, create=True)
    standing = log.put_link(wanted)
    if standing != wanted:
        raise InDoubtError(
            f"link {standing.name} was put by somebody else meanwhile, so nothing was diverted",
            next_step="see which run it is; what was prepared is swept by the next start",
        )
    failpoints.hit("divert.after_link")
    actions.put(
        replace(
            action,
            after=f"decided anew by link {standing.name}: {n(len(refused), 'dead letter')}, "
            f"{n(votes[0].rows, 'row is')} left to the sink",
        )
    )
    sink.abort(handle)
    return Diverted(epoch=standing.epoch, link=standing.name, kept=votes[0].rows, refused=tuple(refused))


def _pending(checkpoint: Checkpoint, name: str) -> tuple[Link, Vote]:
    """Find a transaction that is decided and pending, by its name or the beginning of it."""
    found = []
    for *_, last in sinks.chains(checkpoint):
        if last.kind is LinkKind.COMMIT and checkpoint.log.receipt(last.epoch) is None:
            found += [
                (last, vote)
                for vote in last.pending
                if vote.handle is not None and vote.handle.transaction.startswith(name)
            ]
    if len(found) != 1:
        raise ConfigurationError(
            f"{checkpoint.path} has {n(len(found), 'transaction')} {name!r}, decided and pending",
            next_step="onceonly transactions list shows their names",
        )
    return found[0]


def _sinks(made: Mapping[str, Participant], name: str) -> tuple[StagedSink, Participant]:
    sink, letters = made[name].sink, made.get(letters_name(name))
    if not isinstance(sink, StagedSink):
        raise ConfigurationError(
            f"the sink {name} cannot tell which of its rows the target refuses",
            next_step="mend the target so that it takes them, and start the query",
        )
    if letters is None:
        raise ConfigurationError(
            f"the epoch was decided without a sink for dead letters of {name}",
            next_step="mend the target so that it takes the rows; from then on onceonly.refused=deadletter names one",
        )
    return sink, letters


def _facts(
    checkpoint: Checkpoint, made: Mapping[str, Participant], name: str
) -> dict[str, Mapping[str, str | int]]:
    """See that the letters' sink takes letters, and return what it says of its target."""
    letters = letters_name(name)
    each = made[letters]
    context = QueryContext(
        query=checkpoint.query, sink=letters, guarantee=each.guarantee, columns=columns_of(each.sink)
    )
    refuse_same_target(letters, each.sink, name, made[name].sink, is_checked=False)
    found = dict(each.sink.check(context))
    refuse_same_target(letters, each.sink, name, made[name].sink)
    return {letters: found}


def _handle(vote: Vote) -> Handle:
    if vote.handle is None:
        message = f"slot {vote.slot} has no transaction"
        raise LookupError(message)
    return vote.handle
