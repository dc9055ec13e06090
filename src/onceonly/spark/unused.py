"""A sink that a ``foreachBatch`` function makes and then leaves alone, as a plain ``df.write`` is put into place by it.

``onceonly.sink(…)`` writes nothing by itself. A function that only makes one lets its rows go by, and Spark notes the
epoch: they would be lost without a word. Driver's Python, in Spark's callback thread.
"""

from __future__ import annotations

import threading
from functools import wraps
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError
from onceonly.spark.kept_back import epoch_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame


_HOW = (
    ".foreachBatch(onceonly.sink(...)) in place of the function; or in it: with onceonly.epoch(df, batch_id, log=...) "
    "as epoch: epoch.write(df, onceonly.sink(...))"
)


class _Call(threading.local):
    made: str = ""
    failed: BaseException | None = None
    is_within: bool = False


_call = _Call()
# The epoch that each query has entered: a function may write in a thread of its own.
_entered: dict[str, str] = {}


def made(name: str) -> None:
    """Note that a sink was made in this thread."""
    _call.made = name


def failed(name: str, error: BaseException) -> None:
    """Note by which error a sink could not be made in this thread: a function may catch it."""
    _call.made, _call.failed = name, error


def failed_in_thread() -> BaseException | None:
    """Return the error of the sink that could not be made in this thread, since that was forgotten; else None."""
    return _call.failed


def forget_failed() -> None:
    """Forget in this thread that a sink could not be made."""
    _call.failed = None


def entered(query: str, epoch: int) -> None:
    """Note that an epoch of a query was entered."""
    _entered[query] = str(epoch)


def is_within() -> bool:
    """Say whether this thread is in a ``foreachBatch`` function."""
    return _call.is_within


def no_batch(form: str) -> ConfigurationError:
    """Make the error for a ``df.write`` by a format of ours, without an id, in a ``foreachBatch`` function."""
    return ConfigurationError(
        f"{form}: df.write is a batch with an id of its own, and knows nothing of the epoch that this foreachBatch "
        "function is called for",
        next_step=f"write the epoch with {_HOW}",
    )


def _was_entered(df: DataFrame) -> bool:
    """Say whether the epoch of a frame was entered, and forget it: when it runs again, that counts anew."""
    query, epoch = epoch_of(df) or ("", "")
    return bool(query) and _entered.pop(query, None) == epoch


def watched(function: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
    """Return a function of a user's that fails where it made a sink, entered no epoch, and its frame has rows. Driver.

    Only then is the frame evaluated once more, up to its first row. A sink that could not be made counts, too.
    """

    @wraps(function, updated=())
    def call(df: DataFrame, batch_id: int) -> None:
        _call.made, _call.failed, _call.is_within = "", None, True
        try:
            function(df, batch_id)
        finally:
            _call.is_within = False
            is_left = bool(_call.made) and not _was_entered(df)
        if is_left and not df.isEmpty():
            raise failed_in_thread() or ConfigurationError(
                f"chk-{batch_id}: the foreachBatch function made the sink {_call.made!r} and gave it nothing to write",
                next_step=f"write the epoch with {_HOW}",
            )

    return call
