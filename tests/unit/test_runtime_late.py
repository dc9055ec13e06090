"""What the coordinator asks before a decision, and what it does with the answers."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from onceonly.coordinator import checking
from onceonly.coordinator.coordinator import Coordinator, Participant
from onceonly.errors import ConfigurationError, EpochTimeoutError, UnavailableError
from onceonly.executor.slot import run_slot
from onceonly.model import Guarantee, Handle, LinkKind, Plan, Vote
from onceonly.ports import WriteContext
from onceonly_proof.memory_log import MemoryDisk, MemoryLog
from onceonly_proof.memory_sink import MemorySink

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class AgeingSink(MemorySink):
    """Says what a test tells it to, and keeps what it was asked."""

    def __init__(self, store: str) -> None:
        super().__init__({"store": store})
        self.answer: str | Exception | Callable[[], str] = ""
        self.target = "first"
        self.asked: list[tuple[list[str], dict[str, str | int], float]] = []
        self.rehearsed: list[list[str]] = []
        self.refusal: Exception | None = None

    def check(self, context: object) -> Mapping[str, str | int]:
        return {"timeout": 7}

    def identity(self) -> Mapping[str, str | int]:
        return {"target": self.target}

    def rehearse(self, handles: Sequence[Handle], facts: Mapping[str, str | int]) -> None:
        self.rehearsed.append([each.transaction for each in handles])
        if self.refusal is not None:
            raise self.refusal

    def expiring(self, handles: Sequence[Handle], facts: Mapping[str, str | int], age_s: float) -> str:
        self.asked.append(([each.transaction for each in handles], dict(facts), age_s))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer if isinstance(self.answer, str) else self.answer()


class Clock:
    now = 5.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Job:
    def __init__(self, limit_s: float | None = None) -> None:
        MemorySink.stores.clear()
        self.disk, self.clock = MemoryDisk(), Clock()
        self.sinks = {name: AgeingSink(name) for name in ("a", "b")}
        self.coordinator = Coordinator(
            log=MemoryLog(self.disk), actor="driver", epoch_timeout_s=limit_s, clock=self.clock
        )
        for name, sink in self.sinks.items():
            self.coordinator.join(name, Participant(sink=sink, guarantee=Guarantee.EXACTLY_ONCE))

    def run(self, *, slots: int = 2, takes_s: float = 0.0, only: str = "") -> None:
        """One try at epoch 0; a sink that is not ``only`` gets no rows."""
        plan = self.coordinator.plan(0, run="r")
        votes = [self.task(plan, name, slot, only) for name in self.sinks for slot in range(slots)]
        self.clock.sleep(takes_s)
        try:
            self.coordinator.decide(plan, votes)
        except Exception:
            self.coordinator.abort(plan, votes, run="r")
            raise

    def task(self, plan: Plan, name: str, slot: int, only: str) -> Vote:
        context = WriteContext(
            query="query", sink=name, run="r", epoch=0, plan=plan.id, slot=slot, attempt="0",
            guarantee=plan.guarantee,
        )  # fmt: skip
        batches = [pa.record_batch({"n": [slot]})] if only in {"", name} else []
        return run_slot(self.sinks[name], plan, context, batches).vote

    def kinds(self) -> list[LinkKind]:
        return [link.kind for link in MemoryLog(self.disk).chain(0)]

    def pending(self) -> list[str]:
        return [name for sink in self.sinks.values() for name in sink.store.pending()]


def test_each_sink_is_asked_once_for_its_own_handles_with_the_age_of_the_plan() -> None:
    job = Job()
    job.run(takes_s=12.5)
    for name, sink in job.sinks.items():
        [(handles, facts, age_s)] = sink.asked
        assert len(handles) == 2
        assert all(each.startswith(f"{name}.") for each in handles)
        assert (facts, age_s) == ({"timeout": 7}, 12.5)
    assert job.kinds() == [LinkKind.ABORT, LinkKind.COMMIT]


def test_a_sink_without_rows_is_not_asked() -> None:
    job = Job()
    job.run(only="a")
    assert (len(job.sinks["a"].asked), len(job.sinks["b"].asked)) == (1, 0)


def test_a_reason_of_one_sink_gives_the_epoch_of_all_up() -> None:
    job = Job()
    job.sinks["b"].answer = "t7 is 9 s old"
    with pytest.raises(EpochTimeoutError, match=r"chk-0: .*sink b: t7 is 9 s old"):
        job.run()
    assert LinkKind.COMMIT not in job.kinds()
    assert job.pending() == []
    job.sinks["b"].answer = ""
    job.run()
    for sink in job.sinks.values():
        assert dict(sink.store.visible()) == {(0,): 1, (1,): 1}


def test_a_target_that_is_exchanged_while_an_epoch_is_written_gives_the_epoch_up_and_gets_it_whole() -> None:
    """What was prepared is gone with the former one, and a commit may say that it is there."""
    job = Job()

    def exchange() -> str:
        job.sinks["b"].target = "second"
        return ""

    job.sinks["b"].answer = exchange
    with pytest.raises(UnavailableError, match=r"chk-0: .*sink b: target was 'first' and is 'second'"):
        job.run()
    assert LinkKind.COMMIT not in job.kinds()
    assert job.pending() == []
    job.run()
    assert MemoryLog(job.disk).chain(0)[-1].settings["b"] == {"target": "second"}
    for sink in job.sinks.values():
        assert dict(sink.store.visible()) == {(0,): 1, (1,): 1}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (UnavailableError("no broker", next_step="wait"), UnavailableError),
        (ConfigurationError("no permission", next_step="grant it"), ConfigurationError),
        (ConnectionResetError("by peer"), UnavailableError),
        (AttributeError("'Connection' object has no attribute 'describe'"), AttributeError),
    ],
)
def test_a_sink_that_cannot_say_decides_nothing(answer: Exception, kind: type[Exception]) -> None:
    job = Job()
    job.sinks["b"].answer = answer
    with pytest.raises(kind):
        job.run()
    assert LinkKind.COMMIT not in job.kinds()
    assert job.pending() == []


def test_a_mistake_in_a_sinks_code_is_raised_as_what_it_is_with_the_sinks_name() -> None:
    job = Job()
    mistake = AttributeError("'Connection' object has no attribute 'describe'")
    job.sinks["b"].answer = mistake
    with pytest.raises(AttributeError) as caught:
        job.run()
    assert caught.value is mistake
    assert [note for note in mistake.__notes__ if "Query query, chk-0" in note and "the sink b" in note]


def test_sinks_are_asked_at_the_same_time() -> None:
    job = Job()
    both = threading.Barrier(2)

    def answer() -> str:
        both.wait(10)
        return ""

    for sink in job.sinks.values():
        sink.answer = answer
    job.run()
    assert job.kinds()[-1] is LinkKind.COMMIT


def test_all_sinks_have_one_bound_together_and_nothing_is_decided_past_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checking, "ANSWERS_S", 0.2)
    job = Job()
    over = threading.Event()

    def stand_still() -> str:
        over.wait(30)
        return ""

    for sink in job.sinks.values():
        sink.answer = stand_still
    started = time.monotonic()
    with pytest.raises(UnavailableError, match=r"chk-0: .*no answer of the sink a, b within 0\.2 s"):
        job.run()
    assert time.monotonic() - started < 10
    over.set()
    assert LinkKind.COMMIT not in job.kinds()
    assert job.pending() == []


def test_an_error_of_one_sink_is_told_while_another_one_stands_still() -> None:
    job = Job()
    over = threading.Event()
    job.sinks["a"].answer = lambda: str(over.wait(30) or "")
    job.sinks["b"].answer = ConfigurationError("no permission", next_step="grant it")
    started = time.monotonic()
    with pytest.raises(ConfigurationError, match="no permission"):
        job.run()
    assert time.monotonic() - started < 10
    over.set()


@pytest.mark.parametrize("takes_s", [0.0, 60.0])
def test_an_epoch_is_in_time_until_its_limit_is_over(takes_s: float) -> None:
    job = Job(60.0)
    job.run(takes_s=takes_s)
    assert job.kinds()[-1] is LinkKind.COMMIT


def test_an_epoch_over_its_limit_is_not_decided_and_what_it_made_is_removed() -> None:
    job = Job(60.0)
    with pytest.raises(EpochTimeoutError, match=r"it took 60\.1 s, and its limit is 60 s"):
        job.run(takes_s=60.1)
    assert job.kinds() == [LinkKind.ABORT, LinkKind.ABORT]
    assert job.pending() == []


def test_a_clock_that_went_back_makes_an_epoch_young_not_wrong() -> None:
    job = Job(60.0)
    job.run(takes_s=-100.0)
    assert job.sinks["a"].asked[0][2] == 0.0


def test_each_sink_rehearses_its_epoch_once_after_the_other_questions_and_before_the_decision() -> None:
    job = Job()
    job.run()
    for name, sink in job.sinks.items():
        [handles] = sink.rehearsed
        assert len(handles) == 2
        assert all(each.startswith(f"{name}.") for each in handles)


@pytest.mark.parametrize(
    "refusal",
    [ConfigurationError("no such column", next_step="add it"), UnavailableError("down", next_step="wait")],
)
def test_what_the_target_will_not_take_is_not_decided(refusal: Exception) -> None:
    job = Job()
    job.sinks["b"].refusal = refusal
    with pytest.raises(type(refusal), match=r"Query \S+, chk-\d+, sink b: "):
        job.run()
    assert LinkKind.COMMIT not in job.kinds()
    assert job.pending() == []
    job.sinks["b"].refusal = None
    job.run()
    assert job.kinds()[-1] is LinkKind.COMMIT


def test_what_is_about_to_expire_need_not_be_rehearsed() -> None:
    job = Job()
    job.sinks["a"].answer = "gone in a second"
    with pytest.raises(EpochTimeoutError):
        job.run()
    assert job.sinks["b"].rehearsed == []
