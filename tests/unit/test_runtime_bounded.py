"""A target that hangs hangs no query: each call of the driver ends in time, naming sink and call."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from onceonly.background import begin
from onceonly.coordinator import bounded as module
from onceonly.coordinator.bounded import CALLS, bounded
from onceonly.coordinator.commits import THREADS_MAX, CommitLoop
from onceonly.coordinator.coordinator import Coordinator, Participant
from onceonly.errors import UnavailableError, WriteFailedError
from onceonly.model import Committed, Guarantee, Handle, Link, LinkKind, RetryLater, Vote
from onceonly.protocol import CommitHandle
from onceonly_proof.memory_log import MemoryDisk, MemoryLog
from onceonly_proof.memory_sink import MemorySink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onceonly.model import Outcome
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


STOPPED = """
import time
from onceonly.coordinator.bounded import bounded
from onceonly.coordinator.questions import ask

class Sink:
    def commit(self, handle):
        for part in range(15):
            time.sleep(0.02)
            if part == 1:
                print("asks", flush=True)
        return handle

sink = bounded(Sink(), name="orders", query="q", limit_s=2)
print(%s)
"""


@pytest.mark.parametrize(
    "asked",
    ['sink.commit("answer")', 'ask({"a": lambda: Sink().commit("answer")}, within_s=2, about="q")["a"]'],
)
def test_a_driver_that_was_stopped_for_long_blames_no_target_for_it(asked: str) -> None:
    driver = subprocess.Popen([sys.executable, "-c", STOPPED % asked], stdout=subprocess.PIPE, text=True)
    try:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "asks\n"
        driver.send_signal(signal.SIGSTOP)
        time.sleep(3)  # longer than the call may take
        driver.send_signal(signal.SIGCONT)
        assert driver.stdout.read() == "answer\n"
    finally:
        driver.kill()
        driver.wait()


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


class Hung(MemorySink):
    """None of its commits and aborts comes back before ``over``; ``begun`` are those that were asked for."""

    over: threading.Event
    begun: list[str]

    def commit(self, handle: Handle) -> Outcome:
        self.begun.append(handle.transaction)
        self.over.wait(20)
        return Committed()

    def abort(self, handle: Handle) -> None:
        self.commit(handle)


@pytest.fixture
def hung() -> Iterator[Hung]:
    sink = Hung({})
    sink.over, sink.begun = threading.Event(), []
    yield sink
    sink.over.set()


def votes(count: int) -> list[Vote]:
    return [
        Vote(sink="a", epoch=0, slot=slot, plan="p", run="r", attempt="0", rows=1, checksum="0" * 16,
             handle=Handle(transaction=f"t{slot}"))
        for slot in range(count)
    ]  # fmt: skip


def test_a_target_that_hangs_is_waited_for_once_however_many_handles_it_has(hung: Hung) -> None:
    sink = bounded(hung, name="a", query="q", limit_s=0.5)
    link = Link(epoch=0, index=0, kind=LinkKind.COMMIT, plan="p", run="r")
    commands = [CommitHandle(link=link, vote=vote) for vote in votes(200)]
    found = list(CommitLoop({"a": sink}, timeout_s=0.0, clock=time).run(commands, recovery=False))
    assert len(found) == 200
    reasons = {outcome.reason for _, outcome in found if isinstance(outcome, RetryLater)}
    assert reasons == {"Query q: the sink a did not come back from commit within 0.5 s: its target hangs"}
    assert len(hung.begun) <= THREADS_MAX, "nothing more is asked of a target that hangs"


def test_a_call_that_came_back_late_is_no_reason_to_refuse_the_next(hung: Hung) -> None:
    sink: Any = bounded(hung, name="a", query="q", limit_s=0.5)
    first, second, third = (vote.handle for vote in votes(3))
    for handle in (first, second):
        with pytest.raises(UnavailableError, match="did not come back from abort"):
            sink.abort(handle)
    assert hung.begun == ["t0"]
    hung.over.set()
    sink._hung.answer.result(20)
    sink.abort(third)
    assert hung.begun == ["t0", "t2"]


def test_a_call_that_never_comes_back_is_no_reason_to_refuse_all_others(
    hung: Hung, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    sink: Any = bounded(hung, name="a", query="q", limit_s=0.05)
    for clock.now, begun in ((0.0, 1), (0.04, 1), (0.06, 2)):
        with pytest.raises(UnavailableError):
            sink.abort(Handle(transaction="t"))
        assert len(hung.begun) == begun


def test_a_start_asks_anew_what_hung_in_the_one_before(hung: Hung) -> None:
    coordinator = Coordinator(log=MemoryLog(MemoryDisk()), actor="driver", call_timeout_s=20)
    coordinator.join("a", Participant(sink=hung, guarantee=Guarantee.EXACTLY_ONCE))
    coordinator._sinks["a"]._hung = module._Hung("commit", Future(), float("inf"))  # type: ignore[attr-defined]
    with pytest.raises(UnavailableError, match="did not come back"):
        coordinator._sinks["a"].abort(Handle(transaction="t"))
    assert coordinator.plan(0, run="r").epoch == 0
    hung.over.set()
    coordinator._sinks["a"].abort(Handle(transaction="t"))
    assert hung.begun == ["t"]


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
