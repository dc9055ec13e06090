"""The error by which an epoch failed, and which a user's foreachBatch function has caught. Driver's Python.

When such a function returns, Spark notes the epoch as done, and nobody would write its rows any more. So an error that
was not followed by a try that went well is raised once more at the end of the call, and the epoch is run again.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from typing import TYPE_CHECKING, Any

from onceonly.spark import called
from onceonly.spark.task import EPOCH_PROPERTY, QUERY_PROPERTY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

log = logging.getLogger("onceonly")

# By the query and the epoch that Spark runs.
_failed: dict[tuple[str, str], BaseException] = {}


@contextlib.contextmanager
def noting(df: DataFrame) -> Iterator[None]:
    """Note the error by which the epoch of a frame fails, and let the caller have it."""
    try:
        yield
    except BaseException as error:  # an interrupt, too, may be caught
        note(df, error)
        raise


def note(df: DataFrame, error: BaseException) -> None:
    """Note an error of the epoch whose frame this is. Outside of a query, where Spark marks none, do nothing."""
    key = epoch_of(df)
    if key is not None:
        _failed[key] = error


def forget(df: DataFrame) -> None:
    """Note that the epoch was written."""
    _taken(df)


def guarded(function: Callable[[DataFrame, int], Any]) -> Callable[[DataFrame, int], Any]:
    """Return a foreachBatch function that raises at its end what it has kept back of an epoch of ours."""

    @functools.wraps(function, updated=())
    def call(df: DataFrame, batch_id: int) -> Any:  # noqa: ANN401  Spark looks at nothing that it gives
        try:
            given = function(df, batch_id)
        except BaseException:  # an interrupt, too: it goes on, and is not kept back
            forget(df)
            raise
        error = _taken(df)
        if error is not None:
            log.warning(
                "chk-%s: the foreachBatch function caught this error, and it is raised all the same: Spark would note "
                "the epoch as done, without its rows. Let it through, or write the epoch in another try: %s",
                batch_id,
                error,
            )
            raise error
        return given

    return call


def _taken(df: DataFrame) -> BaseException | None:
    key = epoch_of(df) if _failed else None
    return _failed.pop(key, None) if key is not None else None


def epoch_of(df: DataFrame) -> tuple[str, str] | None:
    """Return the query and the epoch that Spark runs in this thread, or in the one that made it; else None."""
    call = called.now()
    if call is not None:
        return (call.query, str(call.epoch)) if call.query else None
    with contextlib.suppress(Exception):  # another version of Spark may have it elsewhere
        context = df.sparkSession.sparkContext
        query, epoch = context.getLocalProperty(QUERY_PROPERTY), context.getLocalProperty(EPOCH_PROPERTY)
        return (query, epoch) if query and epoch else None
    return None
