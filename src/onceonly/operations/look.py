"""Looking at a checkpoint: the list of its epochs, one epoch in full, the transactions that a link names.

Reads only; a run may go on meanwhile. Raises ``LogError`` or ``UnavailableError`` for what cannot be read.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly import background
from onceonly.errors import ConfigurationError, LogError, OnceonlyError
from onceonly.log.stored_progress import progress_in
from onceonly.operations import disk, offsets, stamps, states
from onceonly.operations.search import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onceonly.log.progress import Progress
    from onceonly.model import Link, Receipt
    from onceonly.operations.disk import Sizes, Step
    from onceonly.operations.find import Checkpoint
    from onceonly.operations.offsets import Partition
    from onceonly.operations.states import EpochView, HandleView


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the list of epochs; ``at`` is when it was last heard of."""

    view: EpochView
    at: float | None


@dataclass(frozen=True, slots=True)
class _Read:
    """What the log has of an epoch; no link where it is folded."""

    epoch: int
    chain: tuple[Link, ...]
    receipt: Receipt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """One epoch in full. ``note`` says what could not be shown, and why."""

    view: EpochView
    chain: tuple[Link, ...] = ()
    receipt: Receipt | None = None
    handles: tuple[HandleView, ...] = ()
    sources: tuple[tuple[Partition, ...], ...] = ()
    steps: tuple[Step, ...] = ()
    progress: Progress | None = None
    sizes: Sizes | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A transaction of a checkpoint that a link names; ``since`` is when that link was written."""

    handle: HandleView
    epoch: int
    since: float | None


def count(checkpoint: Checkpoint) -> int:
    """Count the epochs that the log knows, and the one in flight."""
    epochs, newest = checkpoint.epochs, _barrier(checkpoint)
    return len(epochs) + (newest is not None and newest not in epochs)


def rows(checkpoint: Checkpoint, *, limit: int | None, history: bool) -> list[Row]:
    """Return the newest epochs, newest first, at most ``limit``; those that are folded only with ``history``."""
    return list(itertools.islice(_rows(checkpoint, history=history, limit=limit), limit))


def _rows(checkpoint: Checkpoint, *, history: bool, limit: int | None) -> Iterator[Row]:
    noted = _noted_to(checkpoint)
    known = checkpoint.epochs
    newest = _barrier(checkpoint)
    shown = 0
    if newest is not None and newest not in known:
        yield Row(states.describe(newest, (), None, noted=False), _when(checkpoint, _Read(newest, ())))
        shown += 1
    for found in _read(checkpoint, known[::-1][:limit]):
        # Where there is no chain, it is folded; where there is no receipt, it is just being folded by a run.
        if not found.chain or (found.receipt is None and found.epoch != known[-1]):
            break  # from here on, all are folded
        view = states.describe(found.epoch, found.chain, found.receipt, noted=found.epoch <= noted)
        yield Row(view, _when(checkpoint, found))
        shown += 1
    if history:
        lines = deque(checkpoint.log.history(), maxlen=None if limit is None else max(limit - shown, 0))
        yield from (Row(states.folded(line), line.at or None) for line in reversed(lines))


def _read(checkpoint: Checkpoint, epochs: Sequence[int]) -> Iterator[_Read]:
    """Read epochs one after the other; from a store, where each file waits long, several at the same time."""
    at_once = 1 if checkpoint.folder is not None else AT_ONCE

    def read(epoch: int) -> _Read:
        chain = checkpoint.log.chain(epoch)
        return _Read(epoch, chain, checkpoint.log.receipt(epoch) if chain else None)

    for first in range(0, len(epochs), at_once):
        block = epochs[first : first + at_once]
        yield from background.spread("onceonly-look", read, block, threads_max=at_once)


def _when(checkpoint: Checkpoint, found: _Read) -> float | None:
    """Say when an epoch was last heard of."""
    if checkpoint.folder is not None:
        return disk.when(checkpoint.folder, found.epoch, len(found.chain))
    return next((step.at for step in reversed(stamps.steps(found.chain, found.receipt))), None)


def _steps(checkpoint: Checkpoint, found: _Read) -> list[Step]:
    """Return the steps of an epoch: as its files tell, or where nobody asks for their times, the stamps in them."""
    if checkpoint.folder is not None:
        return disk.steps(checkpoint.folder, found.epoch, found.chain)
    return stamps.steps(found.chain, found.receipt)


def _sizes(checkpoint: Checkpoint) -> Sizes | None:
    return None if checkpoint.folder is None else disk.sizes(checkpoint.folder)


def detail(checkpoint: Checkpoint, epoch: int) -> Detail:
    """Return everything that is known of an epoch. Raises ``ConfigurationError`` where the log does not know it."""
    known, newest = checkpoint.epochs, _barrier(checkpoint)
    if epoch not in known and epoch != newest:
        span = f"it knows chk-{known[0]} to chk-{known[-1]}" if known else "it knows none yet"
        raise ConfigurationError(f"{checkpoint.path} has no chk-{epoch}", next_step=f"name another: {span}")
    chain = checkpoint.log.chain(epoch)
    if not chain and epoch in known:
        line = next((line for line in checkpoint.log.history() if line.epoch == epoch), None)
        if line is None:
            raise LogError(
                f"chk-{epoch} is neither among the links nor in the history of {checkpoint.path}",
                next_step="run the command again, as a run may just have folded it; else start the query: it names "
                "the file that is missing",
            )
        return Detail(
            view=states.folded(line),
            sizes=_sizes(checkpoint),
            note="its details are folded into one line of history; only the newest epochs keep theirs",
        )
    receipt = checkpoint.log.receipt(epoch)
    progress, note = _progress(checkpoint, epoch)
    return Detail(
        view=states.describe(epoch, chain, receipt, noted=epoch <= _noted_to(checkpoint)),
        chain=chain,
        receipt=receipt,
        handles=tuple(states.handles(chain, receipt)),
        sources=tuple(
            map(tuple, offsets.sources(_ends(checkpoint, epoch - 1), _ends(checkpoint, epoch, chain)))
        ),
        steps=tuple(_steps(checkpoint, _Read(epoch, chain, receipt))),
        progress=progress,
        sizes=_sizes(checkpoint),
        note=note,
    )


def transactions(checkpoint: Checkpoint, *, everything: bool) -> list[Transaction]:
    """Return the transactions that are not known to be committed; with ``everything``, all that have details."""
    found: list[Transaction] = []
    known = checkpoint.epochs
    # A log goes on only when an epoch is settled: what is older than a settled one has nothing pending.
    for read in _read(checkpoint, known[::-1] if everything else known[::-1][:2]):
        if not read.chain or (read.receipt is not None and not everything):
            break
        steps = {step.what: step.at for step in _steps(checkpoint, read)}
        found += [
            Transaction(
                handle=handle,
                epoch=read.epoch,
                since=steps.get(disk.put(handle.link)),
            )
            for handle in states.handles(read.chain, read.receipt)
            if everything or _is_owed(handle, read.chain)
        ]
    return found


def _is_owed(handle: HandleView, chain: tuple[Link, ...]) -> bool:
    """Say whether rows of a decided epoch are still to come: by this handle, or in the place of a lost one."""
    return handle.state is states.HandleState.PENDING or (
        handle.state is states.HandleState.LOST and handle.vote in chain[-1].votes
    )


def _progress(checkpoint: Checkpoint, epoch: int) -> tuple[Progress | None, str]:
    """Read what Spark reported; it is for people only, so a damaged file is a note."""
    try:
        return progress_in(checkpoint.folder or checkpoint.store).get(epoch), ""
    except (OnceonlyError, OSError) as error:
        return None, error.what if isinstance(error, OnceonlyError) else str(error)


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
