"""A sink whose calls on the driver end in time: a mount or a broker that hangs must not hang the query for ever.

Nor must it hang it once for each handle: where a call has not come back, no other is made for as long again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from onceonly.background import begin, wait_awake
from onceonly.errors import UnavailableError
from onceonly.ports import TwoPhaseCommitSink

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from onceonly.ports import Sink

CALLS = frozenset(
    {
        "check", "refresh", "identity", "recover", "rehearse", "sift", "commit", "commit_many", "abort", "make_durable",
        "complete",
    }
)  # fmt: skip
"""The calls of the driver that are bounded here. ``expiring`` and ``look_back`` are bounded by whoever asks
(``questions.ask``), calls on executors by the limit of the epoch."""

_AT_ONCE = (
    TwoPhaseCommitSink.check,
    TwoPhaseCommitSink.refresh,
    TwoPhaseCommitSink.identity,
    TwoPhaseCommitSink.rehearse,
    TwoPhaseCommitSink.make_durable,
    TwoPhaseCommitSink.complete,
    TwoPhaseCommitSink.recover,
)
"""What the base class answers, for a sink that has nothing of its own to say: it needs no thread."""


def bounded(sink: Sink, *, name: str, query: str, limit_s: float) -> Sink:
    """Return a sink whose calls raise ``UnavailableError``, naming sink and call, where they take longer. Driver.

    A call that does not end is left behind in its thread, which keeps no process alive. All of them may be repeated.
    Until it comes back, calls are refused at once; but after ``limit_s`` more, whoever asks asks beside it: what hangs
    may be the connection of that call alone.
    """
    return cast("Sink", _Bounded(sink, name, query, limit_s))


class _Hung(NamedTuple):
    """A call that was left behind, and up to when no other is made."""

    call: str
    answer: Future[Any]
    until: float


class _Bounded:
    def __init__(self, sink: Sink, name: str, query: str, limit_s: float) -> None:
        self._sink = sink
        self._name = name
        self._query = query
        self._limit_s = limit_s
        self._hung: _Hung | None = None

    def __getattr__(self, attribute: str) -> Any:  # noqa: ANN401  whatever the sink has
        found = getattr(self._sink, attribute)
        asks = attribute in CALLS and getattr(found, "__func__", None) not in _AT_ONCE
        return self._in_time(attribute, found) if asks else found

    def _in_time(self, call: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*arguments: Any) -> Any:  # noqa: ANN401
            hung = self._hung
            if hung is not None and not hung.answer.done() and time.monotonic() < hung.until:
                raise self._hangs(hung.call)
            # ``recover`` may be a generator: it is consumed in the thread.
            act = (lambda *given: list(work(*given))) if call == "recover" else work
            answer = begin(f"onceonly-{call}-{self._name}", act, *arguments)
            wait_awake([answer], self._limit_s)
            if not answer.done():
                self._hung = _Hung(call, answer, time.monotonic() + self._limit_s)
                raise self._hangs(call)
            return answer.result()

        return ask

    def _hangs(self, call: str) -> UnavailableError:
        return UnavailableError(
            f"Query {self._query}: the sink {self._name} did not come back from {call} within {self._limit_s:g} s: its "
            "target hangs",
            next_step="See to the target (mount, broker, network) and start the query again, as a supervised one does: "
            "what is decided stays decided. If it is only slow, raise onceonly.call.timeout.",
        )
