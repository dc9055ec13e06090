"""A ``foreachBatch`` function on Spark Connect: the server calls it in a Python of its own, one for each start.

Spark gives it a frame and a number there, and its jobs do not tell for which query and epoch they run. So the client
sends along with the function where it lets Spark keep the checkpoint: whatever calls the function is of that query.
What stands in the checkpoint is compared with it, as on any driver.
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onceonly.checkpoint.reading import SparkCheckpoint
from onceonly.errors import OnceonlyError, SetupError
from onceonly.stores.access import Hadoop
from onceonly.stores.opened import tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Call:
    """What the function is called for. ``checkpoint`` and ``query`` are empty where the client could not tell."""

    checkpoint: str
    query: str
    epoch: int
    mode: str
    """The query's output mode, in lower case."""
    run: str
    first: int
    """The first epoch that the function was called for since the query was started."""


# Of this process; a thread that the function has started may ask, too.
_now: Call | None = None


def now() -> Call | None:
    """Return what a function was called for last in this process; None where none was. Anywhere."""
    return _now


def require() -> None:
    """See that a function on Spark Connect knows for which query it runs. Raises ``SetupError``."""
    if _now is None or not _now.checkpoint:
        raise SetupError(
            "onceonly.sink and onceonly.epoch do not know for which query they were called on Spark Connect: "
            + (
                "nothing was told when it was started, or they were not called by foreachBatch"
                if _now is None
                else "its writer names no checkpoint"
            ),
            next_step="call onceonly.register(spark) in the client before the query is built, and give its writer the "
            "option checkpointLocation",
        )


def first() -> int | None:
    """Return the first epoch of this start, of which Spark has called the function; None where nobody was told."""
    return _now.first if _now is not None else None


def run_of(df: DataFrame) -> str:
    """Return the run of the query, as Spark names it where it says so."""
    if _now is None:
        return ""
    with contextlib.suppress(Exception):  # a server of another make
        return next(str(each.runId) for each in df.sparkSession.streams.active if each.id == _now.query)
    return _now.run


@dataclass
class Carried:
    """A function on its way from the client to the server. May hold secrets, and shows none.

    ``guarded`` makes of a user's function one that lets no row go by; it is called where the function is.
    """

    function: Callable[[DataFrame, int], Any] = field(repr=False)
    checkpoint: str
    mode: str
    hadoop: Hadoop = field(default_factory=Hadoop, repr=False)
    guarded: Callable[[Callable[..., Any]], Callable[..., Any]] | None = field(default=None, repr=False)
    run: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        self._query = ""
        self._first = -1
        self._called: Callable[[DataFrame, int], Any] | None = None

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Call the function. Server's Python beside the driver, once a try at an epoch."""
        global _now  # noqa: PLW0603  of this process
        if self._called is None:
            tell(self.hadoop)
            self._called = self.guarded(self.function) if self.guarded else self.function
            self._first = batch_id
        with contextlib.suppress(
            OnceonlyError
        ):  # one that has nothing to do with us; else it is said by name
            self._query = self._query or (
                SparkCheckpoint.at(self.checkpoint).query() if self.checkpoint else ""
            )
        _now = Call(self.checkpoint, self._query, batch_id, self.mode, self.run, self._first)
        self._called(df, batch_id)
