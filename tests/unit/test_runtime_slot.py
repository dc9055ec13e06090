"""What one attempt at one slot does, and what it leaves when it fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from onceonly.errors import ConfigurationError, WriteFailedError
from onceonly.executor.slot import run_slot
from onceonly.model import Guarantee, Handle, Mode, Plan, Vote
from onceonly.ports import WriteContext
from onceonly_proof.memory_sink import MemorySink, MemoryTransaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROWS = [
    pa.record_batch({"n": [1, 2]}),
    pa.record_batch({"n": pa.array([], pa.int64())}),
    pa.record_batch({"n": [3]}),
]
EMPTY = ROWS[1]


@pytest.fixture
def sink() -> MemorySink:
    MemorySink.stores.clear()
    return MemorySink({})


def attempt(
    sink: MemorySink,
    batches: Iterable[pa.RecordBatch],
    *,
    mode: Mode = Mode.RUN,
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
    lost_by: str = "memory",
) -> Vote:
    lost = Vote(
        sink=lost_by, epoch=4, slot=0, plan="o", run="r", attempt="1", rows=3, checksum="0" * 16,
        handle=Handle(transaction="gone"),
    )  # fmt: skip
    plan = Plan(
        id="p",
        epoch=4,
        mode=mode,
        index=0,
        guarantee=guarantee,
        lost=(lost,) if mode is Mode.TENTATIVE else (),
    )
    context = WriteContext(
        query="q", sink="memory", run="r", epoch=4, plan="p", slot=2, attempt="77", guarantee=guarantee
    )
    return run_slot(sink, plan, context, batches).vote


@pytest.mark.parametrize("mode", [Mode.RUN, Mode.TENTATIVE])
def test_a_vote_names_a_prepared_transaction_that_nobody_sees(sink: MemorySink, mode: Mode) -> None:
    vote = attempt(sink, ROWS, mode=mode)

    assert vote.handle is not None
    assert sink.store.transactions[vote.handle.transaction].state == "prepared"
    assert not sink.store.visible()
    assert (vote.plan, vote.epoch, vote.slot, vote.run, vote.attempt, vote.rows) == ("p", 4, 2, "r", "77", 3)


@pytest.mark.parametrize("batches", [[], [EMPTY]])
def test_an_empty_slot_begins_nothing_and_votes_without_a_handle(
    sink: MemorySink, batches: list[pa.RecordBatch]
) -> None:
    vote = attempt(sink, batches)

    assert (vote.handle, vote.rows) == (None, 0)
    assert not sink.store.transactions


@pytest.mark.parametrize(("batches", "begins"), [([], 0), (ROWS, 1)])
def test_a_sink_hears_of_an_attempt_before_its_rows_come(
    sink: MemorySink, monkeypatch: pytest.MonkeyPatch, batches: list[pa.RecordBatch], begins: int
) -> None:
    steps, begin = list[object](), sink.begin_transaction

    def begun(context: WriteContext) -> MemoryTransaction:
        steps.append(context)
        return begin(context)

    def rows() -> Iterator[pa.RecordBatch]:
        steps.append("rows")
        yield from batches

    monkeypatch.setattr(sink, "expect", steps.append)
    monkeypatch.setattr(sink, "begin_transaction", begun)
    attempt(sink, rows())
    expected = steps[0]
    assert isinstance(expected, WriteContext)
    assert steps == [expected, "rows", *[expected] * begins]


def test_a_sink_that_has_lost_nothing_of_a_partly_lost_epoch_writes_nothing(sink: MemorySink) -> None:
    vote = attempt(sink, ROWS, mode=Mode.TENTATIVE, lost_by="another")

    assert (vote.handle, vote.rows) == (None, 3)
    assert not sink.store.transactions


def test_a_drain_consumes_and_counts_but_writes_nothing(sink: MemorySink) -> None:
    ran = attempt(sink, ROWS)
    drained = attempt(sink, ROWS, mode=Mode.DRAIN)

    assert drained.handle is None
    assert (drained.rows, drained.checksum) == (ran.rows, ran.checksum)
    assert len(sink.store.transactions) == 1


def test_a_failed_write_drops_its_transaction_and_is_no_vote(
    sink: MemorySink, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(transaction: MemoryTransaction, batch: pa.RecordBatch) -> None:
        raise WriteFailedError("the disk is full", next_step="make room")

    monkeypatch.setattr(sink, "write", fail)

    with pytest.raises(WriteFailedError, match="the disk is full"):
        attempt(sink, ROWS)

    assert sink.store.pending() == []


def test_rows_that_stop_coming_are_no_vote(sink: MemorySink) -> None:
    def torn() -> list[pa.RecordBatch]:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run_slot(
            sink,
            Plan(id="p", epoch=4, mode=Mode.RUN, index=0, guarantee=Guarantee.EXACTLY_ONCE),
            WriteContext(
                query="q", sink="memory", run="r", epoch=4, plan="p", slot=0, attempt="1",
                guarantee=Guarantee.EXACTLY_ONCE,
            ),
            (batch for batch in [ROWS[0], *torn()]),
        )  # fmt: skip

    assert sink.store.pending() == []


def test_a_sink_that_promises_and_gives_no_handle_is_found_out(
    sink: MemorySink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "pre_commit", lambda transaction: None)

    with pytest.raises(ConfigurationError, match="gave no handle for 3 rows"):
        attempt(sink, ROWS)


def test_at_least_once_a_vote_needs_no_handle_as_the_rows_are_visible(sink: MemorySink) -> None:
    vote = attempt(sink, ROWS, guarantee=Guarantee.AT_LEAST_ONCE)

    assert vote.handle is None
    assert vote.rows == sum(sink.store.visible().values()) == 3


def test_a_fenced_transaction_cannot_be_prepared(sink: MemorySink, monkeypatch: pytest.MonkeyPatch) -> None:
    write = sink.write

    def fenced(transaction: MemoryTransaction, batch: pa.RecordBatch) -> None:
        write(transaction, batch)
        sink.abort(Handle(transaction=transaction.name))

    monkeypatch.setattr(sink, "write", fenced)

    with pytest.raises(WriteFailedError, match="was fenced"):
        attempt(sink, ROWS)


def test_a_vote_tells_the_size_of_its_rows_and_an_empty_one_none(sink: MemorySink) -> None:
    assert attempt(sink, ROWS).bytes == sum(batch.nbytes for batch in ROWS) > 0
    assert attempt(sink, [EMPTY]).bytes == 0
