"""A sink whose calls on the driver end in time: a mount or a broker that hangs must not hang the query for ever."""

from __future__ import annotations

from concurrent.futures import wait
from typing import TYPE_CHECKING, Any, cast

from onceonly.background import begin
from onceonly.errors import UnavailableError
from onceonly.ports import TwoPhaseCommitSink

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly.ports import Sink

CALLS = frozenset({"check", "identity", "recover", "rehearse", "commit", "commit_many", "abort", "complete"})
"""The calls of the driver that are bounded here. ``expiring`` and ``look_back`` are bounded by whoever asks
(``questions.ask``), calls on executors by the limit of the epoch."""

_AT_ONCE = (
    TwoPhaseCommitSink.check,
    TwoPhaseCommitSink.identity,
    TwoPhaseCommitSink.rehearse,
    TwoPhaseCommitSink.complete,
    TwoPhaseCommitSink.recover,
)
"""What the base class answers, for a sink that has nothing of its own to say: it needs no thread."""


def bounded(sink: Sink, *, name: str, query: str, limit_s: float) -> Sink:
    """Return a sink whose calls raise ``UnavailableError``, naming sink and call, where they take longer. Driver.

    A call that does not end is left behind in its thread, which keeps no process alive. All of them may be repeated,
    and whoever asks again asks beside it.
    """
    return cast("Sink", _Bounded(sink, name, query, limit_s))


class _Bounded:
    def __init__(self, sink: Sink, name: str, query: str, limit_s: float) -> None:
        self._sink = sink
        self._name = name
        self._query = query
        self._limit_s = limit_s

    def __getattr__(self, attribute: str) -> Any:  # noqa: ANN401  whatever the sink has
        found = getattr(self._sink, attribute)
        asks = attribute in CALLS and getattr(found, "__func__", None) not in _AT_ONCE
        return self._in_time(attribute, found) if asks else found

    def _in_time(self, call: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*arguments: Any) -> Any:  # noqa: ANN401
            # ``recover`` may be a generator: it is consumed in the thread.
            act = (lambda *given: list(work(*given))) if call == "recover" else work
            answer = begin(f"onceonly-{call}-{self._name}", act, *arguments)
            wait([answer], self._limit_s)
            if not answer.done():
                raise UnavailableError(
                    f"Query {self._query}: the sink {self._name} did not come back from {call} within "
                    f"{self._limit_s:g} s: its target hangs",
                    next_step="See to the target (mount, broker, network) and start the query again, as a supervised "
                    "one does: what is decided stays decided. If it is only slow, raise onceonly.call.timeout.",
                )
            return answer.result()

        return ask
