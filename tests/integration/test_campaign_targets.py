"""What a campaign starts for its sinks: a place, a way to it that can be cut, and a reader that shares nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from keyed_bench import KeyedBench
from tests.unit.loaded_bench import Bench

from onceonly.errors import UnavailableError
from onceonly.settings.registry import find, load
from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly_proof.campaign.stores import STORES
from onceonly_proof.campaign.targets import KEYED, TARGETS
from onceonly_proof.campaign.targets.keyed import SEQUENCE
from onceonly_proof.campaign.way import sink_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onceonly_proof.campaign.stores import CheckpointStore
    from onceonly_proof.campaign.targets import Target

pytestmark = pytest.mark.integration


@pytest.fixture(
    params=[each if each == "redis" else pytest.param(each, marks=pytest.mark.long) for each in sorted(KEYED)]
)
def name(request: pytest.FixtureRequest) -> str:
    given: str = request.param
    return given


@pytest.fixture
def target(name: str, tmp_path: Path) -> Iterator[Target]:
    target = TARGETS[name](tmp_path / name)
    yield target
    target.close()


def rows(**values: str) -> pa.RecordBatch:
    numbers = pa.array(range(len(values)), pa.int64())
    return pa.RecordBatch.from_pydict(
        {
            "key": list(values),
            "value": list(values.values()),
            SEQUENCE: numbers,
        }
    )


def test_what_a_sink_commits_is_read_by_key_also_after_a_cut_and_a_kill(
    name: str, target: Target, tmp_path: Path
) -> None:
    kind: Any = load(find(sink_of(name))[1])
    options = {**target.options("out-1"), "staging": str(tmp_path / "staging")}
    bench = KeyedBench(kind, options)
    reader, watching = target.reader(name, "out-1"), target.reader(name, "out-1")
    assert list(reader.rows()) == []

    def seen() -> dict[bytes | None, bytes | None]:
        return {row.key: row.value for row in reader.rows()}

    bench.committed(rows(a="1", b="2"))
    assert seen() == {b"a": b"1", b"b": b"2"}
    assert {row.sink for row in watching.rows()} == {name}

    handle = bench.staged(rows(b="3"), epoch=1)
    target.cut_next()
    bench.sink().commit(
        handle
    )  # again where it has to be: the server has done it, or the client asks once more
    assert target.cut_at() is not None
    assert seen() == {b"a": b"1", b"b": b"3"}

    target.kill()
    target.start()
    assert seen() == {b"a": b"1", b"b": b"3"}
    bench.committed(rows(c="4"), epoch=2)
    assert seen() == {b"a": b"1", b"b": b"3", b"c": b"4"}
    assert list(reader.orphans()) == []
    bench.close()


@pytest.fixture(params=["s3", pytest.param("moto", marks=pytest.mark.long)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CheckpointStore]:
    made = STORES[request.param](tmp_path / "store")
    opened.tell(Hadoop({name.removeprefix("spark.hadoop."): value for name, value in made.conf.items()}))
    yield made
    opened.tell(Hadoop())
    made.close()


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_on_the_store_of_the_checkpoints_is_read_and_what_was_left_there_is_named(
    store: CheckpointStore, tmp_path: Path, kind: str
) -> None:
    target = store.targets()[kind](tmp_path / kind)
    options = target.options("t1")
    assert "secret" not in str(options)
    bench = Bench(find(kind)[1], kind, options, {"key": "string", "value": "string"})
    reader = target.reader(kind, "t1")
    assert list(reader.rows()) == []
    given = pa.RecordBatch.from_pylist([{"key": "k", "value": "v"}, {"key": None, "value": "w"}])
    bench.committed(given)
    left = bench.prepared(given, epoch=1)
    assert [(row.key, row.value, row.sink) for row in reader.rows()] == [
        (b"k", b"v", kind),
        (None, b"w", kind),
    ]
    [orphan] = reader.orphans()
    assert left.transaction in orphan.what
    if store.dies:
        store.kill(0)
        for ask in (lambda: list(reader.rows()), reader.orphans):
            with pytest.raises(UnavailableError, match="could not be read"):
                ask()
        store.start()
    bench.sink().abort(left)
    assert reader.orphans() == []
