"""``onceonly.look``: a checkpoint to look at, in a notebook, as a file, or as a view to draw from. Reads only.

The shell around the renderer: it reads, and ``view`` draws.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onceonly.errors import ConfigurationError, OnceonlyError, UnavailableError
from onceonly.operations import look as reading
from onceonly.operations.find import the_one
from onceonly.view import page, story

if TYPE_CHECKING:
    from onceonly.operations.checkpoint_model import CheckpointModel, EpochModel
    from onceonly.operations.find import Checkpoint
    from onceonly.view.values import Epoch, View

EPOCHS: Final = 1000
"""How many epochs a report shows, unless more or fewer are wanted."""
_IN_FULL: Final = 20
"""Of how many of the newest epochs the offsets and the times of Spark's files are read, too."""


@dataclass(frozen=True, slots=True, repr=False)
class Look:
    """A query's progress as it stood when it was looked at. A notebook shows it as a page."""

    view: View
    _checkpoint: Checkpoint

    def epoch(self, number: int) -> EpochLook:
        """Look at one epoch, in full. Raises ``ConfigurationError`` for one that the log does not know."""
        model = reading.epoch(self._checkpoint, number, sizes=False)
        [found] = story.view(model).epochs
        return EpochLook(found)

    def report(self, path: str | Path) -> Path:
        """Write the report, one HTML file that needs nothing else. Raises ``UnavailableError``."""
        return write(Path(path), page.report(self.view))

    def __str__(self) -> str:
        return page.summary(self.view)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return page.fragment(page.progress(self.view))


@dataclass(frozen=True, slots=True, repr=False)
class EpochLook:
    """One epoch as it stood when it was looked at. A notebook shows it with its picture and its steps."""

    epoch: Epoch

    def __str__(self) -> str:
        return f"{self.epoch.name}: {self.epoch.words}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return page.fragment(page.detail(self.epoch))


def look(checkpoint: str | Path | object, *, epochs: int = EPOCHS) -> Look:
    """Look at a checkpoint, beside its run or without one: any process, any number of times; reads only.

    ``checkpoint`` is a checkpointLocation (a path, ``s3a://…``) or a folder above one, or a query that is running on
    classic Spark.
    ``epochs`` is how many of the newest are shown. In a notebook the value is a page: how it stands, a time line,
    figures; ``.epoch(7)`` is one epoch, ``.report(path)`` writes a file. Raises ``ConfigurationError`` where there is
    no checkpoint of onceonly's, ``LogError`` and ``UnavailableError`` for one that cannot be read.
    """
    found = the_one(_location(checkpoint))
    return Look(seen(found, epochs=epochs), found)


def seen(checkpoint: Checkpoint, *, epochs: int, runs: int | None = None) -> View:
    """Return the view of the newest epochs of a checkpoint, folded ones among them; the newest of all in full.

    ``runs`` is how many of the newest runs are read; fewer by default where each is a request to a store.
    """
    model = reading.newest(checkpoint, limit=epochs, history=True, runs=runs)
    model = reading.with_reports(checkpoint, model)
    return story.view(_in_full(checkpoint, model))


def write(path: Path, text: str) -> Path:
    """Write a file over what is there, whole or not at all; its folder is there. Raises ``UnavailableError``."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise UnavailableError(
            f"{path} cannot be written: {error.strerror}", next_step="name another place for it"
        ) from None
    return path


def _in_full(checkpoint: Checkpoint, model: CheckpointModel) -> CheckpointModel:
    return replace(
        model,
        epochs=tuple(
            _whole(checkpoint, each) if place < _IN_FULL and not each.view.folded else each
            for place, each in enumerate(model.epochs)
        ),
    )


def _whole(checkpoint: Checkpoint, found: EpochModel) -> EpochModel:
    """Read an epoch in full; one of which more cannot be read now stays as it was read."""
    try:
        return reading.in_full(checkpoint, found)
    except OnceonlyError:
        return found


def _location(checkpoint: Any) -> str:  # noqa: ANN401  a query of PySpark's, too
    if isinstance(checkpoint, str | Path):
        return str(checkpoint)
    try:
        return str(checkpoint._jsq.streamingQuery().resolvedCheckpointRoot())  # noqa: SLF001
    except Exception as error:  # noqa: BLE001  Py4J's, and whatever else is not a query
        raise ConfigurationError(
            f"where the checkpoint of {checkpoint!r} is cannot be told ({type(error).__name__})",
            next_step="name the checkpointLocation itself",
        ) from None
