"""Looking at one checkpoint for all who look at its page: what is new in the log is read once, whoever asks.

What is kept in memory is bounded: the newest epochs, and a few windows of folded ones.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from onceonly.checkpoint.batches import is_batch
from onceonly.errors import OnceonlyError
from onceonly.operations import look
from onceonly.operations.find import open_checkpoint
from onceonly.ui import records

if TYPE_CHECKING:
    from onceonly.operations.checkpoint_model import CheckpointModel, EpochModel
    from onceonly.operations.find import Checkpoint
    from onceonly.ui.records import Position, Record

EPOCHS_MAX: Final = 200
"""How many of the newest epochs are kept with their details."""
VOTES_MAX: Final = 20_000
"""How many votes these may have together: with a thousand slots, epochs would fill the memory; a kilobyte each."""
RECORDS_MAX: Final = 1_000
"""How many folded epochs are told one by one to who comes back late."""
EVERY_S: Final = 1.0
EVERY_DISTANT_S: Final = 5.0
"""How often a checkpoint is looked at while somebody looks at its page; on a store each look has its price."""
_WINDOWS_MAX: Final = 8
_OPENED_ANEW: Final = 10_000


class Watcher:
    """One checkpoint; ``key`` names it in addresses. Page server, any thread; asks nobody until somebody asks it.

    A log that is open is for one thread: whoever reads it has the lock.
    """

    def __init__(self, checkpoint: Checkpoint, key: str = "") -> None:
        self.checkpoint = checkpoint
        self.key = key
        self._lock = threading.Lock()
        self._known = range(0)
        self._opened_anew_at = _OPENED_ANEW
        self._model: CheckpointModel | None = None
        self._looked_at = -EVERY_DISTANT_S
        self._trouble: OnceonlyError | None = None
        self._windows: OrderedDict[tuple[int, int], tuple[EpochModel, ...]] = OrderedDict()

    @property
    def every_s(self) -> float:
        """How long a look is good."""
        return EVERY_S if self.checkpoint.folder is not None else EVERY_DISTANT_S

    @property
    def trouble(self) -> OnceonlyError | None:
        """Why the last look failed; None where it did not."""
        return self._trouble

    def model(self) -> CheckpointModel:
        """Return the newest epochs, looking again where the last look is old.

        What was seen stays where the checkpoint cannot be read now, and ``trouble`` says why. Raises ``LogError`` or
        ``UnavailableError`` where nothing was ever seen.
        """
        with self._lock:
            if time.monotonic() - self._looked_at >= self.every_s:
                try:
                    self._look()
                    self._trouble = None
                except OnceonlyError as error:
                    self._trouble = error
                self._looked_at = time.monotonic()
            if self._model is None:
                assert self._trouble is not None  # noqa: S101  one look has been tried
                raise self._trouble
            return self._model

    def epoch(self, number: int) -> CheckpointModel:
        """Return one epoch in full. Raises ``ConfigurationError`` where the log does not know it; as ``model``."""
        with self._lock:
            return look.epoch(self.checkpoint, number, sizes=False)

    def epochs(self) -> range:
        """Return the epochs that are known as of the last look, with the one that has a barrier only."""
        known, model = self._known, self._model
        newest = model.epochs[0].view.epoch if model is not None and model.epochs else -1
        return range(known.start if known else max(newest, 0), max(known.stop, newest + 1))

    def window(self, first: int, last: int) -> CheckpointModel:
        """Return the epochs from ``first`` to ``last``: from memory, or read for whoever asks; newest first."""
        model = self.model()
        # Only what is older than all of those does not change, but that its details may be folded.
        until = min([last, *(each.view.epoch - 1 for each in model.epochs[-1:])])
        if first > until:
            return _cut(model, first, last)
        with self._lock:
            found = self._windows.pop((first, until), None)
            if found is None:
                found = look.between(self.checkpoint, first, until)
            self._windows[first, until] = found
            if len(self._windows) > _WINDOWS_MAX:
                self._windows.popitem(last=False)
        return _cut(model, first, last, found)

    def reported(self, first: int, last: int) -> CheckpointModel:
        """Return a window with what Spark has reported of its epochs, which is read for whoever asks."""
        return look.with_reports(self.checkpoint, self.window(first, last))

    def with_runs(self, limit: int) -> CheckpointModel:
        """Return the newest epochs with more of the runs before, which are read for whoever asks."""
        model = self.model()
        return look.with_runs(self.checkpoint, model, limit) if model.runs_left else model

    def since(self, position: Position | None) -> list[Record] | None:
        """Return what has come into the log since a position, oldest first; nothing where none is given.

        None where it cannot be told record by record: of another log, or too long ago.
        """
        model = self.model()
        newest = records.newest(model.epochs)
        if position is None or position == newest:
            return []
        if position > newest:
            return None
        first, oldest = max(position.epoch, self._known.start), model.epochs[-1].view.epoch
        if first >= oldest:
            return records.after(model.epochs, position)
        if oldest - first > RECORDS_MAX:
            return None
        with self._lock:
            older = look.between(self.checkpoint, first, oldest - 1)
        return records.after((*older, *model.epochs), position)

    def _look(self) -> None:
        if len(self._known) > self._opened_anew_at:
            # A log that is open remembers a little of each epoch that it has read.
            self.checkpoint = open_checkpoint(self.checkpoint.location)
            self._opened_anew_at = len(self._known) + _OPENED_ANEW
        checkpoint, known = self.checkpoint, self._known
        if not known or is_batch(checkpoint.query):
            known = checkpoint.epochs
        elif (newest := checkpoint.log.newest()) is not None:
            known = range(known.start, max(newest + 1, known.stop))
        if not self._known:
            self._opened_anew_at = len(known) + _OPENED_ANEW
        found = look.tail(checkpoint, known, self._model, limit=EPOCHS_MAX, votes_max=VOTES_MAX)
        self._known, self._model = known, found


def _cut(
    model: CheckpointModel, first: int, last: int, older: tuple[EpochModel, ...] = ()
) -> CheckpointModel:
    """Return the model with a window of its epochs, and of older ones."""
    known = {each.view.epoch: each for each in (*older, *model.epochs) if first <= each.view.epoch <= last}
    return replace(model, epochs=tuple(known[epoch] for epoch in sorted(known, reverse=True)))
