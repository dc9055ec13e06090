"""A slot that is late votes abort, also where it stands still, and never votes when it wakes up."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from onceonly.errors import EpochTimeoutError
from onceonly.executor.deadline import in_time
from onceonly.executor.slot import Deadline, run_slot
from onceonly.model import Guarantee, Handle, Mode, Plan
from onceonly.ports import WriteContext
from onceonly_proof.memory_sink import MemorySink, MemoryTransaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onceonly.model import Vote

ROWS = [pa.record_batch({"n": [1, 2]}), pa.record_batch({"n": [3]})]
BOUND_S = 20.0
# Long for what takes no time, short to wait for.
LIMIT_S = 0.3


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class SlowSink(MemorySink):
    """Each step that is named takes its time."""

    clock: Clock
    steps: dict[str, float]

    def begin_transaction(self, context: WriteContext) -> MemoryTransaction:
        self.clock.sleep(self.steps.get("begin", 0))
        return super().begin_transaction(context)

    def write(self, transaction: MemoryTransaction, batch: pa.RecordBatch) -> None:
        self.clock.sleep(self.steps.get("write", 0))
        super().write(transaction, batch)

    def pre_commit(self, transaction: MemoryTransaction) -> Handle | None:
        self.clock.sleep(self.steps.get("prepare", 0))
        return super().pre_commit(transaction)


class HangingSink(MemorySink):
    """Stands still in one of its steps until it is let go on, as a library may that waits for its server."""

    where: str

    def __init__(self) -> None:
        super().__init__({})
        self.hangs, self.goes_on, self.gave_up = threading.Event(), threading.Event(), threading.Event()

    def _stand(self, where: str) -> None:
        if where == self.where:
            self.hangs.set()
            assert self.goes_on.wait(BOUND_S)

    def write(self, transaction: MemoryTransaction, batch: pa.RecordBatch) -> None:
        self._stand("write")
        super().write(transaction, batch)

    def pre_commit(self, transaction: MemoryTransaction) -> Handle | None:
        self._stand("pre_commit")
        return super().pre_commit(transaction)

    def discard(self, transaction: MemoryTransaction) -> None:
        super().discard(transaction)
        self.gave_up.set()


@pytest.fixture(autouse=True)
def _clean() -> None:
    MemorySink.stores.clear()


CONTEXT = WriteContext(
    query="q",
    sink="memory",
    run="r",
    epoch=4,
    plan="p",
    slot=2,
    attempt="77",
    guarantee=Guarantee.EXACTLY_ONCE,
)


def plan(limit_s: float | None, mode: Mode = Mode.RUN) -> Plan:
    return Plan(id="p", epoch=4, mode=mode, index=0, guarantee=Guarantee.EXACTLY_ONCE, limit_s=limit_s)


def attempt(
    sink: MemorySink, limit_s: float, clock: Clock | None = None, rows: Iterable[pa.RecordBatch] = tuple(ROWS)
) -> Vote:
    """As a task does it."""
    deadline = Deadline(limit_s, CONTEXT, clock)
    return in_time(deadline, lambda: run_slot(sink, plan(limit_s), CONTEXT, rows, deadline).vote)


def slow(**steps: float) -> SlowSink:
    sink = SlowSink({})
    sink.clock, sink.steps = Clock(), steps
    return sink


@pytest.mark.parametrize(
    ("steps", "doing"),
    [
        ({"begin": 61.0}, "writing"),
        ({"write": 31.0}, "waiting for rows"),
        ({"prepare": 61.0}, "about to vote"),
        ({"write": 20.0, "prepare": 21.0}, "about to vote"),
    ],
)
def test_a_slot_that_is_late_at_any_step_does_not_vote_and_drops_what_it_made(
    steps: dict[str, float], doing: str
) -> None:
    sink = slow(**steps)
    with pytest.raises(EpochTimeoutError) as caught:
        attempt(sink, 60.0, sink.clock)
    for part in ("Query q", "chk-4", "sink memory", "slot 2", "60 s", doing):
        assert part in caught.value.what
    assert "onceonly.epoch.timeout" in caught.value.next_step
    assert caught.value.restartable
    assert sink.store.pending() == []


def test_a_slot_in_time_votes() -> None:
    sink = slow(begin=20.0, write=10.0, prepare=20.0)
    assert attempt(sink, 60.0, sink.clock).handle is not None


def test_rows_that_come_too_late_are_not_written() -> None:
    sink = slow()

    def late() -> Iterator[pa.RecordBatch]:
        sink.clock.sleep(61.0)
        yield ROWS[0]

    with pytest.raises(EpochTimeoutError):
        attempt(sink, 60.0, sink.clock, late())
    assert not sink.store.transactions


def test_an_empty_slot_that_is_late_does_not_vote() -> None:
    sink = slow()

    def late() -> Iterator[pa.RecordBatch]:
        sink.clock.sleep(61.0)
        yield from ()

    with pytest.raises(EpochTimeoutError):
        attempt(sink, 60.0, sink.clock, late())


@pytest.mark.parametrize(("where", "doing"), [("write", "writing"), ("pre_commit", "preparing")])
def test_a_slot_that_stands_still_in_its_sink_is_given_up_and_voids_itself_when_it_wakes(
    where: str, doing: str
) -> None:
    sink = HangingSink()
    sink.where = where
    with pytest.raises(EpochTimeoutError, match=f"within 0.3 s; it was {doing}"):
        attempt(sink, LIMIT_S)
    assert sink.hangs.is_set()
    assert len(sink.store.pending()) == 1, "left to the sweep"
    sink.goes_on.set()
    assert sink.gave_up.wait(BOUND_S)
    assert sink.store.pending() == []


def test_rows_that_never_come_are_waited_for_no_longer() -> None:
    goes_on = threading.Event()

    def never() -> Iterator[pa.RecordBatch]:
        yield ROWS[0]
        assert goes_on.wait(BOUND_S)

    try:
        with pytest.raises(EpochTimeoutError, match="it was waiting for rows"):
            attempt(MemorySink({}), LIMIT_S, rows=never())
    finally:
        goes_on.set()


def test_all_attempts_of_a_process_are_one_threads_and_a_lost_thread_is_replaced() -> None:
    deadline = Deadline(BOUND_S, CONTEXT)
    first = in_time(deadline, threading.current_thread)
    assert in_time(deadline, threading.current_thread) is first
    assert first is not threading.current_thread()
    assert first.daemon, "it must not keep a worker alive"

    goes_on = threading.Event()
    with pytest.raises(EpochTimeoutError):
        in_time(Deadline(0.01, CONTEXT), goes_on.wait)
    try:
        assert in_time(deadline, threading.current_thread) is not first
    finally:
        goes_on.set()


def test_without_a_limit_sparks_own_thread_does_it() -> None:
    assert in_time(Deadline(None, CONTEXT), threading.current_thread) is threading.current_thread()


@pytest.mark.parametrize("error", [ValueError("theirs"), TimeoutError("theirs"), SystemExit(3)])
def test_an_error_of_the_attempt_is_the_attempts(error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        in_time(Deadline(BOUND_S, CONTEXT), fail)
    assert caught.value is error
