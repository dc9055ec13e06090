"""What it means when Spark itself is gone: a session that was stopped, a JVM that has died, a Connect server.

PySpark tells each of them by whatever it stumbled over first, such as ``[Errno 111] Connection refused``.
"""

from __future__ import annotations

import re
from functools import wraps
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from onceonly.errors import OnceonlyError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")

_STOPPED: Final = (
    "'NoneType' object has no attribute 'sc'",
    "[NO_ACTIVE_SESSION]",
    "Cannot call methods on a stopped SparkContext",
    "No active or default Spark session found",
    "SparkContext has been shutdown",
    "SparkContext was shut down",
    'SparkContext.dagScheduler()" is null',
)
_FORGOTTEN: Final = re.compile(r"INVALID_HANDLE\.SESSION_(CHANGED|CLOSED|NOT_FOUND)")
_NO_SERVER: Final = re.compile(
    r'<_.* of RPC that terminated with:\s+status = StatusCode\.UNAVAILABLE\s+details = "(.*)"'
)
_NO_ANSWER: Final = re.compile(
    r"An error occurred while (calling [\w.]+$|trying to connect to the Java server)|Answer from Java side is empty"
)
_FINISHED: Final = "what was decided is finished by the next start of its query"


def gone(error: BaseException | str) -> UnavailableError | None:
    """Return what an exception of Spark's means where Spark itself is gone, None for all others. Driver; pure."""
    found = _NO_SERVER.match(str(error))
    if found is None:
        return session_gone(error)
    return UnavailableError(
        f"the Spark Connect server does not answer ({found[1]})",
        next_step="see that it runs, and that SPARK_REMOTE or builder.remote names it; then start this program again; "
        + _FINISHED,
    )


def session_gone(error: BaseException | str) -> UnavailableError | None:
    """The same where the session itself is gone: no query can be started in it again. Driver; pure."""
    text = "" if isinstance(error, OnceonlyError) else str(error)
    if any(words in text for words in _STOPPED):
        return UnavailableError(
            "the Spark session that this program uses was stopped (spark.stop(), or the end of another part of it)",
            next_step="make a new one with SparkSession.builder.getOrCreate(), call onceonly.register on it, and build "
            f"the query with it; {_FINISHED}",
        )
    if found := _FORGOTTEN.search(text):
        return UnavailableError(
            f"the Spark Connect server does not know this program's session any more ({found[0]}): it was started "
            "anew, or has closed a session that was idle",
            next_step="make a new one with SparkSession.builder.create(), call onceonly.register on it, and build the "
            f"query with it; {_FINISHED}",
        )
    if _NO_ANSWER.match(text) or (isinstance(error, OSError) and _is_of_py4j(error)):
        return UnavailableError(
            f"the JVM of this Spark session does not answer ({text}): it has died, or was ended",
            next_step="start the program again, in a new Python process: only that starts a JVM anew. Why it died, its "
            f"log or the kernel's (out of memory) says; {_FINISHED}",
        )
    return None


def in_session(function: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """Raise, where Spark itself is gone, a typed error in place of whatever PySpark has stumbled over. Pure."""

    @wraps(function)
    def called(*args: _Given.args, **more: _Given.kwargs) -> _Made:
        try:
            return function(*args, **more)
        except Exception as error:
            known = gone(error)
            if known is None:
                raise
            raise known from None

    return called


def _is_of_py4j(error: BaseException) -> bool:
    return any(module.startswith("py4j.") for module in _modules(error.__traceback__))


def _modules(trace: TracebackType | None) -> Iterator[str]:
    while trace is not None:
        yield str(trace.tb_frame.f_globals.get("__name__", ""))
        trace = trace.tb_next
