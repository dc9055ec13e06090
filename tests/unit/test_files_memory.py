"""What the writer of files keeps: memory and files bounded by the page's figures, whatever the partitions are."""

from __future__ import annotations

import gc
import json
import os
import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.files_bench import Files, quick

from onceonly.errors import WriteFailedError
from onceonly.sinks.files import writer

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["quick"]  # a fixture


@pytest.fixture(params=["parquet", "json"])
def bench(quick: Path, request: pytest.FixtureRequest) -> Files:
    columns = (("id", "bigint"), ("text", "string"), ("day", "string"))
    return Files(quick / "out", {"format": request.param}, columns=columns)


def a_batch(start: int, days: list[str]) -> pa.RecordBatch:
    ids = range(start, start + len(days))
    return pa.record_batch({"id": list(ids), "text": ["x" * 100] * len(days), "day": days})


def ids_of(path: Path) -> list[int]:
    if path.suffix == ".json":
        return [json.loads(line)["id"] for line in path.read_text(encoding="utf-8").splitlines()]
    return [int(value) for value in pq.ParquetFile(path).read()["id"].to_pylist()]


def test_rows_of_rare_partitions_do_not_keep_the_batches_they_came_in(
    bench: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BUFFER_BYTES_MAX", 1 << 20)
    sink, attempt = bench.begin()
    days = ["hot"] * 1000 + ["cold-1", "cold-2", "cold-3", "cold-4"]
    gc.collect()
    before, most = pa.total_allocated_bytes(), 0
    for number in range(300):
        sink.write(attempt, a_batch(number * len(days), days))
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 3 << 20, "300 batches are 35 MB"
    bench.finish(0, sink.pre_commit(attempt))
    assert len(bench.visible()) == 5


def test_many_small_partitions_make_a_file_each(bench: Files) -> None:
    sink, attempt = bench.begin()
    for number in range(50):
        sink.write(attempt, a_batch(number * 200, [f"d{each % 100}" for each in range(200)]))
    bench.finish(0, sink.pre_commit(attempt))
    assert len(bench.visible()) == 100
    assert sorted(number for path in bench.visible() for number in ids_of(path)) == list(range(10_000))


def test_beyond_the_bound_a_file_still_gets_its_share_of_the_memory(
    bench: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "OPEN_MAX", 4)
    monkeypatch.setattr(writer, "BUFFER_BYTES_MAX", 200_000)
    sink, attempt = bench.begin()
    for number in range(100):
        sink.write(attempt, a_batch(number * 80, [f"d{each % 40}" for each in range(80)]))
        assert attempt._held <= 200_000
        assert len(attempt._open) <= 4
    bench.finish(0, sink.pre_commit(attempt))
    # 8000 rows of about 112 bytes, and what small batches cost: a file for at least 200 000 / 40 bytes of it.
    assert len(bench.visible()) < 8000 * 112 * 3 / (200_000 / 40)


def test_discard_writes_nothing_more_and_raises_nothing(
    bench: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BUFFER_BYTES_MAX", 10_000)
    sink, attempt = bench.begin()
    sink.write(attempt, a_batch(0, ["a"] * 200))
    sink.write(attempt, a_batch(0, ["b"] * 20))
    assert len(attempt._open) == 1
    (file,) = attempt._open.values()
    rendered: list[object] = []
    monkeypatch.setattr(file._encoder, "add", rendered.append)

    def fails() -> None:
        raise pa.ArrowInvalid("put in by hand")

    monkeypatch.setattr(file._encoder, "close", fails)
    sink.discard(attempt)
    assert rendered == []
    assert bench.staged() == []


@pytest.mark.parametrize("gone", ["out", "out/_onceonly/staging"])
def test_a_target_that_went_away_is_not_called_a_decision_of_the_driver(bench: Files, gone: str) -> None:
    sink, attempt = bench.begin()
    sink.write(attempt, a_batch(0, ["a"]))
    shutil.rmtree(bench.target.parent / gone)
    for step in (lambda: sink.write(attempt, a_batch(0, ["a"])), lambda: sink.pre_commit(attempt)):
        with pytest.raises(WriteFailedError, match="is not there any more on") as caught:
            step()
        assert "given up by the driver" not in str(caught.value)


def test_a_file_that_is_shorter_than_it_was_written_is_no_vote(bench: Files) -> None:
    bench.options["maxfilesize"] = "1"
    sink, attempt = bench.begin()
    sink.write(attempt, a_batch(0, ["a"]))
    os.truncate(bench.staged()[0], 10)
    with pytest.raises(WriteFailedError, match="has 10 bytes, and") as caught:
        sink.pre_commit(attempt)
    assert "given up by the driver" not in str(caught.value)


def test_rows_keep_their_order_in_a_file_and_their_batches_are_joined(
    bench: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "ROW_GROUP_BYTES", 1 << 20)
    sink, attempt = bench.begin()
    for number in range(0, 600, 3):
        sink.write(attempt, a_batch(number, ["a"] * 3))
    (waiting,) = attempt._waiting.values()
    assert waiting.table()["id"].num_chunks < 100, "200 were given"
    assert waiting.cost < 2 * waiting.bytes
    # One that is larger than a row group may be: it is cut, and what waits does not keep the rest.
    large = a_batch(600, ["a"] * 32_000)
    before = pa.total_allocated_bytes()
    sink.write(attempt, large)
    del large
    gc.collect()
    assert pa.total_allocated_bytes() - before < -(1 << 20), "of 3.6 MB"
    bench.finish(0, sink.pre_commit(attempt))
    (path,) = bench.visible()
    assert ids_of(path) == list(range(32_600))
