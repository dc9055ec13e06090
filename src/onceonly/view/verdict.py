"""How a checkpoint stands: what is safe, what is stuck and since when, who waits for it, what to type. Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from onceonly.model import Guarantee, seconds_of
from onceonly.operations.states import QUIET, EpochState, meaning
from onceonly.view.telling import n
from onceonly.view.values import Level, Verdict

if TYPE_CHECKING:
    from onceonly.operations.checkpoint_model import CheckpointModel, EpochModel


def verdict(model: CheckpointModel) -> Verdict:
    """Judge by the newest epochs that the model has: what is older than a settled one has nothing pending."""
    safe = _safe(model)
    newest = model.epochs[0] if model.epochs else None
    if model.is_moved:
        return Verdict(
            level=Level.STUCK,
            safe=safe,
            stuck=f"the checkpoint was moved here from {model.home}, and no run starts before that is accepted",
            waits="the query",
            next_step="accept the move, if it was meant",
            command=f"onceonly checkpoints accept-move {shlex.quote(model.path)}",
        )
    if newest is None:
        return Verdict(level=_level(model, Level.WAITING), safe=safe, next_step=_idle(model))
    if newest.view.state in QUIET:
        return Verdict(level=Level.SAFE, safe=safe, next_step=_idle(model))
    if newest.view.state in {EpochState.IN_FLIGHT, EpochState.ABORTED}:
        return _undecided(model, newest, safe)
    return _unsettled(model, newest, safe)


def _safe(model: CheckpointModel) -> str:
    done = next((each for each in model.epochs if each.view.state in QUIET), None)
    if done is None:
        return "nothing is settled yet" if not model.epochs else "nothing of what is shown is settled yet"
    return f"everything up to {done.view.name} is settled: what was decided is committed"


def _undecided(model: CheckpointModel, newest: EpochModel, safe: str) -> Verdict:
    """Nothing is decided of the newest epoch, so that nothing can be in doubt."""
    name, aborted = newest.view.name, newest.view.state is EpochState.ABORTED
    what = f"{name} is void ({meaning(newest.view.reason)})" if aborted else f"nothing of {name} is decided"
    return Verdict(
        level=_level(model, Level.WAITING),
        safe=safe,
        stuck=what,
        since=(seconds_of(newest.chain[-1].stamp) or None) if aborted else newest.at,
        waits=f"{name} and what comes after it",
        next_step="the run that is alive writes it"
        if model.run.alive
        else f"start the query: it writes {name} again",
    )


def _unsettled(model: CheckpointModel, newest: EpochModel, safe: str) -> Verdict:
    """Something is decided and not known to be committed."""
    name, owed = newest.view.name, newest.owed
    sinks = ", ".join(dict.fromkeys(handle.vote.sink for handle in owed))
    rows = sum(handle.vote.rows for handle in owed)
    since = min((seconds_of(handle.link.stamp) for handle in owed), default=0.0)
    since = since or seconds_of(newest.chain[-1].stamp)
    stuck = (
        f"{name} is decided, and {n(len(owed), 'transaction')} of it with {n(rows, 'row')} ({sinks}) "
        f"{'is' if len(owed) == 1 else 'are'} not known to be committed"
        if owed
        else f"all of {name} is committed as far as is known, and its receipt is missing"
    )
    if newest.view.state is EpochState.REPAIRING:
        stuck = f"a part of {name} is committed, and a part with {n(rows, 'row')} was lost and is to be written again"
    once = newest.chain[-1].guarantee is Guarantee.AT_MOST_ONCE
    by_hand = not model.run.alive and newest.view.state is EpochState.DECIDED and not once
    does = "gives up what it cannot find committed" if once else f"finishes {name} before it reads a row"
    return Verdict(
        level=_level(model, Level.STUCK if newest.view.state is EpochState.DECIDED else Level.WAITING),
        safe=safe,
        stuck=stuck,
        since=since or None,
        waits=f"the epoch after {name}, and whoever reads its rows" + (f" from {sinks}" if sinks else ""),
        next_step="the run that is alive sees to it, and nothing is to be done"
        if model.run.alive
        else f"start the query, which {does}" + ("; or, with the job down, type" if by_hand else ""),
        command=f"onceonly transactions commit {name} {shlex.quote(model.path)}" if by_hand else "",
    )


def _level(model: CheckpointModel, level: Level) -> Level:
    """Return how it stands where no run is alive, or what a run makes of that."""
    return {True: Level.WORKING, False: level, None: Level.UNKNOWN}[model.run.alive]


def _idle(model: CheckpointModel) -> str:
    if model.run.alive:
        return "a run is alive"
    if model.run.alive is None:
        return f"whether a run is alive cannot be told: {model.run.who}"
    return "no run is alive; the next start goes on from here"
