"""Reading a checkpoint into its model: the newest epochs, one epoch in full, what is not settled.

Reads only; a run may go on meanwhile. Raises ``LogError`` or ``UnavailableError`` for what cannot be read.
"""

from __future__ import annotations

import itertools
import shlex
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onceonly import background
from onceonly.errors import ConfigurationError, LogError, OnceonlyError
from onceonly.log import files
from onceonly.log.actions import ACTIONS, UPKEEP, ActionFiles
from onceonly.log.dated import KEEP
from onceonly.log.runs import RunFiles
from onceonly.log.stored_progress import progress_in
from onceonly.model import seconds_of
from onceonly.operations import disk, offsets, stamps, states
from onceonly.operations.checkpoint_model import CheckpointModel, EpochModel
from onceonly.operations.parts import parts
from onceonly.operations.search import AT_ONCE
from onceonly.operations.states import SETTLED, EpochState, HandleState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from onceonly.log.actions import Action
    from onceonly.log.progress import Progress
    from onceonly.log.runs import Run
    from onceonly.model import Link, Receipt
    from onceonly.operations.disk import Sizes, Step
    from onceonly.operations.find import Checkpoint

_RUNS_MAX = 10
"""In a store, where each file waits long; of a folder all are read that are kept."""
_ACTIONS_MAX = 20


@dataclass(frozen=True, slots=True)
class _Read:
    """What the log has of an epoch; no link where it is folded."""

    epoch: int
    chain: tuple[Link, ...]
    receipt: Receipt | None = None


def newest(
    checkpoint: Checkpoint, *, limit: int | None, history: bool, runs: int | None = None
) -> CheckpointModel:
    """Read the newest epochs, at most ``limit``; those that are folded with ``history``, or where more are wanted.

    ``runs`` is how many of the newest runs are read; fewer by default where each is a request to a store.
    """
    known, barrier = checkpoint.epochs, _barrier(checkpoint)
    count = len(known) + (barrier is not None and barrier not in known)
    history = history or (limit is not None and limit > count)
    found = itertools.islice(_newest(checkpoint, known, barrier, history=history, limit=limit), limit)
    return _model(checkpoint, found, known=count, runs_max=runs)


def abort_by_hand(checkpoint: Checkpoint, transaction: str) -> str:
    """Return the command that ends a transaction which no link names, empty where there is none here: any process.

    It is of the epoch in flight; where none is, to commit the newest once more sweeps what is open beside it.
    """
    for each in newest(checkpoint, limit=1, history=True).epochs if not checkpoint.was_restored else ():
        what = (
            f"commit {each.view.name}" if each.view.state in SETTLED else f"abort {shlex.quote(transaction)}"
        )
        return f"onceonly transactions {what} {shlex.quote(checkpoint.path)}"
    return ""


def epoch(checkpoint: Checkpoint, number: int, *, sizes: bool = True) -> CheckpointModel:
    """Read everything that is known of an epoch. Raises ``ConfigurationError`` where the log does not know it.

    ``sizes`` counts the checkpoint's files, too, of which there may be very many.
    """
    known, barrier = checkpoint.epochs, _barrier(checkpoint)
    if number not in known and number != barrier:
        _ = checkpoint.moved  # a log that is gone knows no epoch
        span = f"it knows chk-{known[0]} to chk-{known[-1]}" if known else "it knows none yet"
        raise ConfigurationError(f"{checkpoint.path} has no chk-{number}", next_step=f"name another: {span}")
    [read] = _read(checkpoint, [number])
    found = (
        in_full(checkpoint, _shown(checkpoint, read, _noted_to(checkpoint)))
        if read.chain or number not in known
        else _folded(checkpoint, number)
    )
    return _model(checkpoint, [found], sizes=_sizes(checkpoint) if sizes else None)


def in_full(checkpoint: Checkpoint, found: EpochModel) -> EpochModel:
    """Read of an epoch that is not folded what ``epoch`` has besides: its steps, ranges and parts, Spark's report."""
    number = found.view.epoch
    progress, note = _progress(checkpoint, number)
    before, after = _ends(checkpoint, number - 1), _ends(checkpoint, number, found.chain)
    return replace(
        found,
        steps=_steps(checkpoint, found),
        sources=tuple(map(tuple, offsets.sources(before, after, _latest(progress)))),
        parts=parts(found.chain[-1]) if found.chain else (),
        checksums=_checksums(checkpoint, found),
        progress=progress,
        note=note,
    )


def _checksums(checkpoint: Checkpoint, found: EpochModel) -> dict[str, str]:
    """Return the checksums of an epoch's files; for people only, so nobody misses what cannot be read now."""
    names = [files.link(link.epoch, link.index) for link in found.chain]
    names += [files.receipt(found.view.epoch)] if found.receipt is not None else []
    try:
        return files.sums(checkpoint.store, names)
    except OnceonlyError:
        return {}


def with_reports(checkpoint: Checkpoint, model: CheckpointModel) -> CheckpointModel:
    """Add what Spark has reported of the epochs, as far as that is kept; nobody misses what cannot be read."""
    try:
        kept = progress_in(checkpoint.folder or checkpoint.store).kept()
    except (OnceonlyError, OSError):
        return model
    epochs = (replace(each, progress=each.progress or kept.get(each.view.epoch)) for each in model.epochs)
    return replace(model, epochs=tuple(epochs))


def with_runs(checkpoint: Checkpoint, model: CheckpointModel, limit: int) -> CheckpointModel:
    """Read more runs, at most so many of those that are kept; from a store, where each is a request."""
    runs, left = _runs(checkpoint, limit)
    return replace(model, runs=runs, runs_left=left) if len(runs) > len(model.runs) else model


def unsettled(checkpoint: Checkpoint, *, everything: bool = False) -> CheckpointModel:
    """Read the epochs whose transactions are not all known to be committed; with ``everything``, all with details."""
    found: list[EpochModel] = []
    known = checkpoint.epochs
    noted = _noted_to(checkpoint)
    # A log goes on only when an epoch is settled: what is older than a settled one has nothing pending.
    for read in _read(checkpoint, known[::-1] if everything else known[::-1][:2]):
        if not read.chain or (read.receipt is not None and not everything):
            break
        each = EpochModel(view=_view(read, noted), chain=read.chain, receipt=read.receipt)
        found.append(replace(each, steps=_steps(checkpoint, each)))
    return _model(checkpoint, found)


def tail(
    checkpoint: Checkpoint, known: range, before: CheckpointModel | None, *, limit: int, votes_max: int
) -> CheckpointModel:
    """Read the newest epochs with their steps, for who looks again and again; ``known`` are those of the log.

    Of settled epochs, what ``before`` has is not read again; what is folded meanwhile stays as it was. At most
    ``limit`` epochs, and fewer where they have more than ``votes_max`` votes together.
    """
    noted, barrier = _noted_to(checkpoint), _barrier(checkpoint)
    had = {each.view.epoch: each for each in before.epochs if each.receipt is not None} if before else {}
    wanted = known[::-1][:limit]
    read = {each.epoch: each for each in _read(checkpoint, [epoch for epoch in wanted if epoch not in had])}
    found: list[EpochModel] = []
    if barrier is not None and barrier not in known:
        found.append(_with_steps(checkpoint, _Read(barrier, ()), noted))
    votes = 0
    for epoch in wanted:
        each = _noted(had[epoch], noted) if epoch in had else _with_steps(checkpoint, read[epoch], noted)
        votes += sum(len(link.votes) for link in each.chain)
        if not each.chain or (found and votes > votes_max):
            break  # from here on, all are folded; or it would be too much
        found.append(each)
    return _model(checkpoint, found, known=len(known) + (barrier is not None and barrier not in known))


def between(checkpoint: Checkpoint, first: int, last: int) -> tuple[EpochModel, ...]:
    """Read the epochs from ``first`` to ``last``, newest first: of those that are folded, their lines."""
    noted = _noted_to(checkpoint)
    found = {
        each.epoch: _with_steps(checkpoint, each, noted)
        for each in _read(checkpoint, range(first, last + 1))
        if each.chain
    }
    # What was folded since is in a line by now.
    for line in itertools.takewhile(lambda line: line.epoch <= last, checkpoint.log.history(first)):
        if line.epoch not in found:
            found[line.epoch] = EpochModel(view=states.folded(line), at=line.at or None)
    return tuple(found[epoch] for epoch in sorted(found, reverse=True))


def _model(
    checkpoint: Checkpoint,
    epochs: Iterable[EpochModel],
    *,
    known: int | None = None,
    sizes: Sizes | None = None,
    runs_max: int | None = None,
) -> CheckpointModel:
    run = checkpoint.run
    if run.alive:
        epochs = (replace(each, view=states.under_way(each.view)) for each in epochs)
    actions = _actions(checkpoint)
    found = tuple(_with_hand(each, actions) for each in epochs)
    # Asked when all is read: of a log that has vanished meanwhile, no epoch would be left, and nothing in doubt.
    moved = checkpoint.moved
    runs, left = _runs(checkpoint, runs_max)
    return CheckpointModel(
        path=checkpoint.path,
        address=checkpoint.address,
        query=checkpoint.query,
        home=checkpoint.home,
        is_moved=moved is not None,
        is_left=moved is not None and checkpoint.was_restored,
        run=run,
        sources=checkpoint.sources,
        runs=runs,
        runs_left=left,
        actions=actions,
        known=known,
        epochs=found,
        sizes=sizes,
    )


def _with_hand(epoch: EpochModel, actions: Sequence[Action]) -> EpochModel:
    """Return an epoch that has no receipt with what operators' commands have found committed of its newest link."""
    if not epoch.chain or epoch.receipt is not None:
        return epoch
    newest = (epoch.view.epoch, epoch.chain[-1].index)
    names = {name for each in actions if (each.epoch, each.link) == newest for name in each.committed}
    if not names:
        return epoch
    known = replace(epoch, by_hand=frozenset(names))
    pending = sum(each.state is HandleState.PENDING for each in known.handles)
    return replace(known, view=replace(known.view, pending=pending))


def _newest(
    checkpoint: Checkpoint, known: range, barrier: int | None, *, history: bool, limit: int | None
) -> Iterator[EpochModel]:
    noted = _noted_to(checkpoint)
    shown, oldest = 0, known.stop
    if barrier is not None and barrier not in known:
        yield _shown(checkpoint, _Read(barrier, ()), noted)
        shown += 1
    for found in _read(checkpoint, known[::-1][:limit]):
        # Where there is no chain, it is folded; where there is no receipt, it is just being folded by a run.
        if not found.chain or (found.receipt is None and found.epoch != known[-1]):
            break  # from here on, all are folded
        yield _shown(checkpoint, found, noted)
        shown, oldest = shown + 1, found.epoch
    if history:
        # A run may just have folded what has been read.
        older = itertools.takewhile(lambda line: line.epoch < oldest, checkpoint.log.history())
        lines = deque(older, maxlen=None if limit is None else max(limit - shown, 0))
        yield from (EpochModel(view=states.folded(line), at=line.at or None) for line in reversed(lines))


def _folded(checkpoint: Checkpoint, number: int) -> EpochModel:
    line = next(iter(checkpoint.log.history(number)), None)
    if line is None or line.epoch != number:
        raise LogError(
            f"chk-{number} is neither among the links nor in the history of {checkpoint.path}",
            next_step="run the command again, as a run may just have folded it; else start the query: it names "
            "the file that is missing",
        )
    return EpochModel(
        view=states.folded(line),
        at=line.at or None,
        note="its details are folded into one line of history; only the newest epochs keep theirs",
    )


def _view(found: _Read, noted: int) -> states.EpochView:
    return states.describe(found.epoch, found.chain, found.receipt, noted=found.epoch <= noted)


def _shown(checkpoint: Checkpoint, found: _Read, noted: int) -> EpochModel:
    """Return an epoch as a list shows it: what is in the log of it, and when it was last heard of."""
    return EpochModel(
        view=_view(found, noted), at=_when(checkpoint, found), chain=found.chain, receipt=found.receipt
    )


def _with_steps(checkpoint: Checkpoint, found: _Read, noted: int) -> EpochModel:
    each = _shown(checkpoint, found, noted)
    return replace(each, steps=_steps(checkpoint, each))


def _noted(epoch: EpochModel, noted: int) -> EpochModel:
    """Return an epoch that was seen before as it is now that Spark has noted more."""
    if epoch.view.state is not EpochState.COMMITTED or epoch.view.epoch > noted:
        return epoch
    view = states.describe(epoch.view.epoch, epoch.chain, epoch.receipt, noted=True)
    return replace(epoch, view=view)


def _read(checkpoint: Checkpoint, epochs: Sequence[int]) -> Iterator[_Read]:
    """Read epochs one after the other; from a store, where each file waits long, several at the same time."""
    at_once = 1 if checkpoint.folder is not None else AT_ONCE

    def read(epoch: int) -> _Read:
        chain = checkpoint.log.chain(epoch)
        return _Read(epoch, chain, checkpoint.log.receipt(epoch) if chain else None)

    for first in range(0, len(epochs), at_once):
        block = epochs[first : first + at_once]
        yield from background.spread("onceonly-look", read, block, threads_max=at_once)


def _runs(checkpoint: Checkpoint, limit: int | None = None) -> tuple[tuple[Run, ...], int]:
    """Return the newest runs, and how many more there are; for people only, so nobody misses what cannot be read."""
    limit = limit or (_RUNS_MAX if checkpoint.folder is None else KEEP)
    try:
        runs, left = RunFiles(checkpoint.folder or checkpoint.store).newest_and_left(limit)
        return tuple(runs), left
    except OnceonlyError:
        return (), 0


def _actions(checkpoint: Checkpoint) -> tuple[Action, ...]:
    """Return what operators did by hand; it decides nothing, so nobody misses what cannot be read."""
    try:
        found = [
            action
            for folder in (ACTIONS, UPKEEP)
            for action in ActionFiles(checkpoint.store, folder).newest(_ACTIONS_MAX)
        ]
        return tuple(sorted(found, key=lambda action: action.stamp.at, reverse=True))
    except OnceonlyError:
        return ()


def _when(checkpoint: Checkpoint, found: _Read) -> float | None:
    """Say when an epoch was last heard of: by the stamp of its last record, as a copied file has another time."""
    last = found.receipt or next(reversed(found.chain), None)
    if last is not None and (stamped := seconds_of(last.stamp)):
        return stamped
    if checkpoint.folder is not None:
        return disk.when(checkpoint.folder, found.epoch, len(found.chain))
    return next((step.at for step in reversed(stamps.steps(found.chain, found.receipt))), None)


def _steps(checkpoint: Checkpoint, found: EpochModel) -> tuple[Step, ...]:
    """Return the steps of an epoch: as its files tell, or where nobody asks for their times, the stamps in them."""
    if checkpoint.folder is not None:
        return tuple(disk.steps(checkpoint.folder, found.view.epoch, found.chain))
    return tuple(stamps.steps(found.chain, found.receipt))


def _sizes(checkpoint: Checkpoint) -> Sizes | None:
    return None if checkpoint.folder is None else disk.sizes(checkpoint.folder)


def _progress(checkpoint: Checkpoint, epoch: int) -> tuple[Progress | None, str]:
    """Read what Spark reported; it is for people only, so a damaged file is a note."""
    try:
        return progress_in(checkpoint.folder or checkpoint.store).get(epoch), ""
    except (OnceonlyError, OSError) as error:
        return None, error.what if isinstance(error, OnceonlyError) else str(error)


def _latest(progress: Progress | None) -> tuple[str, ...]:
    """Return how far the sources were when an epoch ended, as Spark reported it."""
    return () if progress is None else tuple(each.latest for each in progress.sources)


def _ends(checkpoint: Checkpoint, epoch: int, chain: tuple[Link, ...] = ()) -> tuple[str, ...]:
    """Return the barrier of an epoch: as decided, or else as Spark wrote it. None of it where both are gone."""
    for link in reversed(chain or (checkpoint.log.chain(epoch) if epoch >= 0 else ())):
        if link.barrier:
            return link.barrier
    try:
        return checkpoint.told.barrier(epoch)
    except (OnceonlyError, OSError, UnicodeDecodeError):
        return ()


def _barrier(checkpoint: Checkpoint) -> int | None:
    """Return the newest epoch that Spark has set a barrier for."""
    try:
        return checkpoint.told.epoch()
    except (OnceonlyError, OSError):
        return None


def _noted_to(checkpoint: Checkpoint) -> int:
    """Return the newest epoch that Spark has noted; it keeps the last hundred or so of them."""
    try:
        return max(checkpoint.told.committed(), default=-1)
    except (OnceonlyError, OSError):
        return -1
