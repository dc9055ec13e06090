"""A target that hangs hangs no query: each call of the driver ends in time, naming sink and call."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from onceonly.background import begin
from onceonly.coordinator import bounded as module
from onceonly.coordinator.bounded import CALLS, bounded
from onceonly.coordinator.coordinator import Coordinator, Participant
from onceonly.errors import UnavailableError, WriteFailedError
from onceonly.model import Guarantee
from onceonly_proof import MemoryDisk, MemoryLog
from onceonly_proof.memory_sink import MemorySink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from onceonly.ports import QueryContext


class Hanging:
    """A sink each of whose calls waits for its end."""

    name = "hanging"

    def __init__(self) -> None:
        self.over = threading.Event()

    def __getattr__(self, call: str) -> Any:  # noqa: ANN401
        def wait(*_: object) -> list[str]:
            self.over.wait(5)
            return ["answer"]

        return wait


@pytest.fixture
def hanging() -> Iterator[Any]:
    sink = Hanging()
    yield sink
    sink.over.set()


@pytest.mark.parametrize("call", sorted(CALLS))
def test_a_call_that_hangs_ends_in_time_and_names_sink_and_call(hanging: Any, call: str) -> None:  # noqa: ANN401  stands for any sink
    sink = bounded(hanging, name="orders", query="q", limit_s=0.05)
    with pytest.raises(
        UnavailableError, match=f"Query q: the sink orders did not come back from {call}"
    ) as caught:
        getattr(sink, call)()
    assert caught.value.restartable
    assert "onceonly.call.timeout" in caught.value.next_step


def test_an_answer_and_an_error_come_through_and_all_else_is_the_sinks_own(hanging: Any) -> None:  # noqa: ANN401  as above
    hanging.over.set()
    sink: Any = bounded(hanging, name="orders", query="q", limit_s=20)
    assert sink.recover() == ["answer"]
    assert sink.name == "hanging"

    class Failing:
        def recover(self, _context: object) -> Iterator[str]:
            raise WriteFailedError("theirs", next_step="see")
            yield

    with pytest.raises(WriteFailedError, match="theirs"):
        bounded(Failing(), name="s", query="q", limit_s=20).recover(None)  # type: ignore[arg-type]


def test_a_plan_waits_for_no_check_that_hangs() -> None:
    over = threading.Event()

    class Hung(MemorySink):
        def check(self, context: QueryContext) -> dict[str, str | int]:
            over.wait(5)
            return dict(super().check(context))

    coordinator = Coordinator(log=MemoryLog(MemoryDisk()), actor="driver", call_timeout_s=0.05)
    coordinator.join("a", Participant(sink=Hung({"store": "hung"}), guarantee=Guarantee.EXACTLY_ONCE))
    with pytest.raises(UnavailableError, match="the sink a did not come back from check within"):
        coordinator.plan(0, run="r")
    over.set()


def test_what_a_sink_leaves_to_its_base_class_costs_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def noted(name: str, work: Callable[..., Any], *arguments: object) -> Future[Any]:
        threads.append(name)
        return begin(name, work, *arguments)

    monkeypatch.setattr(module, "begin", noted)

    class Rehearsing(MemorySink):
        def rehearse(self, handles: object, facts: object) -> None: ...

    bounded(MemorySink({}), name="plain", query="q", limit_s=20).rehearse([], {})
    assert threads == []
    bounded(Rehearsing({}), name="own", query="q", limit_s=20).rehearse([], {})
    assert threads == ["onceonly-rehearse-own"]
