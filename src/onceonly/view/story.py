"""Makes a ``View`` out of the model of a checkpoint. Pure."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from onceonly.log.actions import ACTIONS, TIDIES, UPKEEP
from onceonly.log.identity import FOLDER
from onceonly.model import seconds_of
from onceonly.operations.states import EpochState
from onceonly.view import telling
from onceonly.view.chapter import Chapter
from onceonly.view.clock import Clock
from onceonly.view.values import DRIVER, EXECUTORS, Bar, Epoch, Mark, View, What, Work, lane_of
from onceonly.view.verdict import verdict
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onceonly.log.actions import Action
    from onceonly.log.runs import Run
    from onceonly.operations.checkpoint_model import CheckpointModel

_UNFINISHED: Final = frozenset({EpochState.DECIDED, EpochState.REPAIRING, EpochState.IN_FLIGHT})


def view(model: CheckpointModel) -> View:
    """Return what is drawn of a checkpoint: the epochs that the model has, its runs and actions."""
    clock = Clock()
    epochs = tuple(Chapter(each, model, clock).epoch for each in reversed(model.epochs))
    lanes = dict.fromkeys((DRIVER, EXECUTORS))
    lanes |= dict.fromkeys(lane_of(name) for epoch in epochs for name in epoch.sinks)
    lanes |= dict.fromkeys(mark.lane for epoch in epochs for mark in epoch.marks)
    return View(
        query=model.query,
        address=model.address,
        path=model.path,
        run=model.run.word,
        who=model.run.who,
        promise=model.sources.promise if model.sources is not None else "",
        verdict=verdict(model),
        lanes=tuple(lanes),
        epochs=epochs,
        marks=tuple(_marks(model, epochs)),
        bars=tuple(_runs(model, epochs)),
        known=model.known,
        left_out=tuple(_left_out(model, epochs)),
        skew=clock.told,
        name=model.name,
        runs_left=model.runs_left,
    )


def _runs(model: CheckpointModel, epochs: Sequence[Epoch]) -> Iterator[Bar]:
    """Yield the runs, oldest first. One that nobody saw end is as long as the log heard of it."""
    for run, following in _successions(model):
        begin = seconds_of(run.began)
        if not begin:
            continue
        end = telling.seconds(run.ended)
        alive = end is None and following is None and model.run.alive
        yield Bar(
            work=Work.RUN,
            lane=DRIVER,
            told=f"run {run.run}, began {telling.moment(begin)} in {telling.by(run.began)}, {_ended(run, alive=alive)}",
            begin=begin,
            end=end or (None if alive else _last_heard(begin, _after(model, run, following), epochs)),
        )


def _after(model: CheckpointModel, run: Run, following: Run | None) -> float | None:
    """Return when somebody else was first heard of after a run: the next one, or an operator; None where nobody was."""
    begin = seconds_of(run.began)
    others = [following.began] if following is not None else []
    others += [action.stamp for action in model.actions]
    return min((at for at in map(seconds_of, others) if at > begin), default=None)


def _last_heard(begin: float, after: float | None, epochs: Sequence[Epoch]) -> float:
    """Return when a run that nobody saw end was heard of last: by a step of an epoch, before somebody else was.

    Where the epochs do not go as far as that, it may have lived until then.
    """
    places = [mark.place for each in epochs for mark in each.marks if mark.place is not None]
    if after is not None:
        if max(places, default=begin) < after:
            return after if places and max(places) > begin else begin
        places = [place for place in places if place < after]
    return max([begin, *places])


def _successions(model: CheckpointModel) -> Iterator[tuple[Run, Run | None]]:
    """Yield each run, oldest first, with the one that began after it."""
    runs = _in_order(model)
    return zip_longest(runs, runs[1:])


def _in_order(model: CheckpointModel) -> list[Run]:
    """Return the runs, oldest first: by the log, where its links name them, and else by their clocks."""
    links = (link for each in reversed(model.epochs) for link in each.chain)
    first = {run: number for number, run in enumerate(dict.fromkeys(link.run for link in links))}
    runs = list(model.runs[::-1])
    named = sorted((run for run in runs if run.run in first), key=lambda run: first[run.run])
    following = iter(named)
    return [next(following) if run.run in first else run for run in runs]


def _ended(run: Run, *, alive: bool | None) -> str:
    if run.ended:
        return f"ended {run.ended}"
    if alive:
        return "alive"
    return "end unknown" if alive is None else "cut off: nobody noted its end"


def _marks(model: CheckpointModel, epochs: Sequence[Epoch]) -> Iterator[Mark]:
    """Yield what belongs to no epoch: beginnings and ends of runs, and what operators did; in the order of clocks."""
    found: list[Mark] = []
    for run, following in _successions(model):
        began, ended = seconds_of(run.began) or None, telling.seconds(run.ended)
        by = telling.by(run.began)
        told = f"run {run.run} began in {by}"
        found.append(Mark(what=What.BEGAN, lane=DRIVER, told=told, place=began, at=began, by=by))
        if ended is not None:
            told = f"run {run.run} ended"
            found.append(Mark(what=What.ENDED, lane=DRIVER, told=told, place=ended, at=ended, by=by))
        elif following is not None or model.run.alive is False:
            place = _last_heard(began, _after(model, run, following), epochs) if began is not None else None
            heard = f"it was last heard of at {telling.moment(place)}"
            told = f"run {run.run} was cut off: nobody noted its end, and {heard}"
            found.append(Mark(what=What.CUT, lane=DRIVER, told=told, place=place, by=by))
    found += map(_by_hand, model.actions)
    yield from sorted(found, key=lambda mark: mark.place or 0.0)


def _by_hand(action: Action) -> Mark:
    at = seconds_of(action.stamp) or None
    return Mark(
        what=What.BY_HAND,
        lane=DRIVER,
        told=action.sentence,
        place=at,
        at=at,
        by=telling.by(action.stamp),
        file=f"{FOLDER}/{UPKEEP if action.command in TIDIES else ACTIONS}",
    )


def _left_out(model: CheckpointModel, epochs: Sequence[Epoch]) -> Iterator[str]:
    """Say what is there and is not drawn."""
    if model.known is not None and len(epochs) < model.known:
        more = model.known - len(epochs)
        yield f"{more} of {n(model.known, 'epoch')} are not shown"
    named = {link.run for each in model.epochs for link in each.chain} if model.runs else set()
    runs = len(named - {run.run for run in model.runs})
    if runs:
        yield f"{n(runs, 'older run')} of these epochs {'is' if runs == 1 else 'are'} not drawn"
    folded = sum(each.folded for each in epochs)
    if folded:
        yield (
            f"{n(folded, 'epoch is')} folded into one line of history each: their votes, files and checksums are no "
            "longer there"
        )
    bare = sum(not each.folded and each.at is None and each.state not in _UNFINISHED for each in epochs)
    if bare:
        yield f"{n(bare, 'epoch has')} no times in the log: an older onceonly did not note them"


def cut(whole: View, newest: int) -> View:
    """Return a view of the newest epochs alone, which says so."""
    if len(whole.epochs) <= newest:
        return whole
    more = f"{len(whole.epochs) - newest} older epochs are not in this picture"
    return replace(whole, epochs=whole.epochs[-newest:], left_out=(more, *whole.left_out))
