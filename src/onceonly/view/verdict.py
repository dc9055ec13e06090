"""How a checkpoint stands: what is safe, what is stuck and since when, who waits for it, what to type. Pure."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from onceonly.checkpoint.batches import is_batch
from onceonly.model import Guarantee, Skip, seconds_of
from onceonly.operations.disk import put
from onceonly.operations.states import QUIET, VISIBLE, EpochState, HandleState, is_quiet, meaning
from onceonly.view.values import Level, Verdict
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceonly.model import Link
    from onceonly.operations.checkpoint_model import CheckpointModel, EpochModel

_TAKEN_OVER: Final = frozenset({Skip.FOREIGN.value, Skip.SWALLOWED.value})
"""Reasons for which an epoch with rows has no decision: the user took it over as it is."""


def verdict(model: CheckpointModel) -> Verdict:
    """Judge by the newest epochs that the model has: what is older than a settled one has nothing pending."""
    found = _by_log(model)
    if not model.is_moved:
        return found
    if model.is_left:
        # Nothing is stuck: what was decided here is committed, or the restore would have been refused.
        restored = "its query was restored there from a savepoint, and no run starts here"
        return replace(found, next_step=f"start the job at {model.home}: {restored}")
    moved = f"the checkpoint was moved or copied here from {model.home}, and no run starts before that is accepted"
    return replace(
        found,
        level=Level.STUCK,
        # What is decided stands last: since when is said behind it.
        stuck=f"{moved}; {found.stuck}" if found.stuck else moved,
        waits=f"the query, {found.waits}" if found.waits else "the query",
        next_step="accept the move, if it was meant and no copy is in use",
        command=f"onceonly checkpoints accept-move {shlex.quote(model.path)}",
    )


def _by_log(model: CheckpointModel) -> Verdict:
    safe = _safe(model)
    newest = model.epochs[0] if model.epochs else None
    if newest is None or is_quiet(newest.view):
        level = Level.WORKING if newest is None and model.run.alive else Level.SAFE
        return Verdict(level=level, safe=safe, next_step=_idle(model))
    if newest.view.state in {EpochState.IN_FLIGHT, EpochState.ABORTED}:
        return _undecided(model, newest, safe)
    return _unsettled(model, newest, safe)


def _safe(model: CheckpointModel) -> str:
    if not model.epochs:
        return "no epoch has begun yet, so that nothing is open and nothing is in doubt"
    done = [each.view for each in model.epochs if each.view.state in QUIET]
    if not done:
        return "nothing of what is shown is settled yet"
    tried = [each.name for each in done if not VISIBLE.issuperset(each.outcomes)]
    taken = [each for each in done if each.state is EpochState.SKIPPED and each.reason in _TAKEN_OVER]
    safe = f"everything up to {done[0].name} is settled: what was decided is committed"
    if tried:
        safe += f", save what {_named(tried)} tried at most once and gave up"
    if taken:
        names = _named([each.name for each in taken])
        safe += f"; nothing was decided here of {names}: {meaning(taken[0].reason)}"
    return safe


def _named(names: Sequence[str]) -> str:
    """Name the newest of some epochs, and how many more there are."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _undecided(model: CheckpointModel, newest: EpochModel, safe: str) -> Verdict:
    """Nothing is decided of the newest epoch, so that nothing can be in doubt."""
    name, aborted = newest.view.name, newest.view.state is EpochState.ABORTED
    why = f" ({meaning(newest.view.reason)})" if aborted else ""
    since, at_latest = _since(newest, newest.chain[-1:]) if aborted else (newest.at, False)
    is_lost = any(handle.state is HandleState.LOST for handle in newest.handles)
    what = f"what was decided of {name} was lost" if is_lost else f"nothing of {name} is decided yet"
    return Verdict(
        level=_level(model, Level.STUCK if is_lost else Level.WAITING),
        safe=safe,
        stuck=what + why,
        since=since,
        at_latest=at_latest,
        waits=f"whoever reads rows of {name}"
        + ("" if is_batch(model.query) else ", or of what comes after it"),
        next_step=_next(
            model, "the run that is alive writes it", f"{_start(model)}, which writes all of {name}"
        ),
    )


def _unsettled(model: CheckpointModel, newest: EpochModel, safe: str) -> Verdict:
    """Something is decided and not known to be committed."""
    name, owed = newest.view.name, newest.owed
    sinks = ", ".join(dict.fromkeys(handle.vote.sink for handle in owed))
    rows = sum(handle.vote.rows for handle in owed)
    since, at_latest = _since(newest, [handle.link for handle in owed] or newest.chain[-1:])
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
    after = "" if is_batch(model.query) else f"the epoch after {name}, and "
    does = "gives up what it cannot find committed" if once else f"finishes {name} before it reads a row"
    return Verdict(
        level=_level(model, Level.STUCK),
        safe=safe,
        stuck=stuck,
        since=since,
        at_latest=at_latest,
        waits=after + "whoever reads its rows" + (f" from {sinks}" if sinks else ""),
        next_step=_next(
            model,
            "the run that is alive sees to it, and nothing is to be done",
            f"{_start(model)}, which {does}" + ("; or, with the job down, type" if by_hand else ""),
        ),
        command=f"onceonly transactions commit {name} {shlex.quote(model.path)}" if by_hand else "",
    )


def _since(newest: EpochModel, links: Sequence[Link]) -> tuple[float | None, bool]:
    """Return since when links are there, and whether that is only the latest that it can be.

    An older onceonly did not stamp them. Then it is the first of what came after them: of their files' times, of what
    the log has behind them; None where nothing tells.
    """
    stamps = [seconds_of(link.stamp) for link in links]
    if all(stamps):
        return min(stamps), False
    first = min(link.index for link in links)
    behind = [link for link in newest.chain if link.index >= first]
    files = {put(link) for link in behind}
    later = [seconds_of(link.stamp) for link in behind] + [
        step.at for step in newest.steps if step.what in files
    ]
    # Where no file tells its time, it was last heard of by its plan, which was before.
    if newest.at not in {seconds_of(link.planned) for link in newest.chain}:
        later.append(newest.at or 0.0)
    return min(filter(None, later), default=None), True


def _level(model: CheckpointModel, level: Level) -> Level:
    """Return how it stands where no run is alive, or what a run makes of that."""
    return {True: Level.WORKING, False: level, None: Level.UNKNOWN}[model.run.alive]


def _next(model: CheckpointModel, alive: str, dead: str) -> str:
    """Say what happens where a run is alive, and what is to be done where none is."""
    if model.run.alive is None:
        return f"whether a run is alive cannot be told ({model.run.who}); if none is, {dead}"
    return alive if model.run.alive else dead


def _start(model: CheckpointModel) -> str:
    """Say what somebody does who starts it again: a batch is one epoch, and no query of Spark's."""
    return "run the batch again" if is_batch(model.query) else "start the query"


def _idle(model: CheckpointModel) -> str:
    on = "goes on from here" if model.epochs else "begins with the first epoch"
    if model.epochs and is_batch(model.query):
        on = "finds the batch done, and writes nothing"
    down = "no run is alive; " if model.run.alive is False else ""
    return _next(model, "nothing is to be done: a run is alive", f"{down}the next start {on}")
