"""Rows that a ``foreachBatch`` function lets go by: when it returns, Spark notes the epoch as done. Driver's Python.

A function may make a sink and leave it alone, as a plain ``df.write`` is put into place by it: ``onceonly.sink(…)``
writes nothing by itself. It may return early, in an epoch after others that it has written. And it may return before it
has written: one that is ``async`` has not even begun, and who leaves the work to a thread learns of no error. The rows
would be lost without a word, or the query would stop an epoch too late. All in Spark's callback thread.
"""

from __future__ import annotations

import inspect
import threading
from concurrent.futures import Future
from functools import wraps
from typing import TYPE_CHECKING, Any

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
# The epochs that each query has entered, and has decided, last: a function may write in a thread of its own.
_entered: dict[str, str] = {}
_decided: dict[str, str] = {}


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


def decided(query: str, epoch: int) -> None:
    """Note that an epoch of a query was decided, and all of it is visible."""
    _decided[query] = str(epoch)


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


def watched(function: Callable[[DataFrame, int], Any]) -> Callable[[DataFrame, int], None]:
    """Return a function of a user's that fails where the rows of its frame go by. Driver.

    Where it made a sink, also one that could not be made, or has entered epochs before, and enters none now, the frame
    is evaluated once more, up to its first row.
    """
    was_entered = False

    @wraps(function, updated=())
    def call(df: DataFrame, batch_id: int) -> None:
        nonlocal was_entered
        _call.made, _call.failed, _call.is_within = "", None, True
        query, epoch = epoch_of(df) or ("", "")
        _decided.pop(query, None)  # when it runs again, that counts anew
        try:
            given = function(df, batch_id)
        finally:
            _call.is_within = False
            newest = _entered.pop(query, None)
        before, was_entered = was_entered, was_entered or newest is not None
        if inspect.iscoroutine(given):
            given.close()  # else Python warns of it
        if inspect.isawaitable(given) or inspect.isgenerator(given) or isinstance(given, Future):
            raise _too_early(batch_id, f"returned a {type(given).__name__}, which is still to be waited for")
        if query and newest == epoch:
            if _decided.get(query) != epoch:
                raise _too_early(batch_id, "returned, and the epoch that it has entered is not decided")
        elif (_call.made or before or newest is not None) and not df.isEmpty():
            raise failed_in_thread() or _left(batch_id)

    return call


def _left(batch_id: int) -> ConfigurationError:
    what = (
        f"made the sink {_call.made!r} and gave it nothing to write"
        if _call.made
        else "has entered earlier epochs, and not this one; a thread that it does not wait for may have"
    )
    return ConfigurationError(
        f"chk-{batch_id}: the foreachBatch function {what}", next_step=f"write the epoch with {_HOW}"
    )


def _too_early(batch_id: int, what: str) -> ConfigurationError:
    return ConfigurationError(
        f"chk-{batch_id}: the foreachBatch function {what}: Spark would note the epoch as done, whatever becomes of "
        "its rows",
        next_step="let the function be no async one, and wait in it for threads that it starts",
    )
