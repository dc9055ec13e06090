"""The Iceberg sink with its warehouse on a real S3 server, SeaweedFS, and a catalogue in a file."""

# ruff: noqa: F811  fixtures are asked for by name

from __future__ import annotations

import itertools
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from s3_bench import BUCKET, listed, server, told  # noqa: F401  fixtures
from tests.unit.loaded_bench import Bench

from onceonly.errors import ConfigurationError, WriteFailedError
from onceonly.model import AlreadyCommitted, Committed, Lost, Unknown
from onceonly.ports.standing import Held
from onceonly.sinks.iceberg import IcebergSink, target
from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly_proof.conformance import SinkConformance
from onceonly_proof.embedded.s3 import SECRET, EmbeddedS3

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.integration

COLUMNS = {"id": "bigint", "shop": "string"}
_numbers = itertools.count()


def options_of(folder: Path, **more: str) -> dict[str, str]:
    """The sink's options: no key is among them, which the job gave to Hadoop."""
    return {
        "table": "sales.orders", "catalog.type": "sql", "catalog.uri": f"sqlite:///{folder}/catalog.db",
        "catalog.warehouse": f"s3://{BUCKET}/warehouse-{next(_numbers)}", **more,
    }  # fmt: skip


def by_others(server: EmbeddedS3, options: Mapping[str, str]) -> SqlCatalog:
    """The catalogue as any other program opens it."""
    return SqlCatalog(
        "default", uri=options["catalog.uri"], warehouse=options["catalog.warehouse"],
        **{"s3.endpoint": server.url, "s3.access-key-id": "all", "s3.secret-access-key": SECRET,
           "s3.region": "us-east-1"},
    )  # fmt: skip


def make_namespace(server: EmbeddedS3, options: Mapping[str, str]) -> None:
    with by_others(server, options) as catalog:
        catalog.create_namespace("sales")


class Table:
    """A table, and who else reads it."""

    def __init__(self, server: EmbeddedS3, folder: Path, **more: str) -> None:
        self.server = server
        self.options = options_of(folder, create="true", partitionBy="shop", **more)
        make_namespace(server, self.options)
        self.bench = Bench(IcebergSink, "iceberg", self.options, COLUMNS)

    def ids(self) -> list[int]:
        with by_others(self.server, self.options) as catalog:
            return sorted(catalog.load_table("sales.orders").scan().to_arrow()["id"].to_pylist())

    def orphans(self) -> list[str]:
        return orphans(self.server, self.options)


def orphans(server: EmbeddedS3, options: Mapping[str, str]) -> list[str]:
    with by_others(server, options) as catalog:
        if not catalog.table_exists("sales.orders"):
            return []
        named = {each.file.file_path for each in catalog.load_table("sales.orders").scan().plan_files()}
    folder = options["catalog.warehouse"].removeprefix(f"s3://{BUCKET}/")
    ours = {f"s3://{BUCKET}/{name}" for name in listed(server, folder) if "/onceonly/" in name}
    return sorted(ours - named)


@pytest.fixture
def table(server: EmbeddedS3, tmp_path: Path) -> Table:
    return Table(server, tmp_path)


def rows(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": number, "shop": f"a/b=c%d {number % 2}"} for number in numbers]


@pytest.mark.long
class TestSeaweed(SinkConformance):
    sink = IcebergSink
    every_pass = False
    outlives_processes = False  # its crashes are those of a table in a folder

    @pytest.fixture(autouse=True)
    def s3(self, server: EmbeddedS3) -> None:
        self.server = server

    def options(self, folder: Path) -> dict[str, str]:
        folder.mkdir(exist_ok=True)
        options = options_of(folder, create="true")
        make_namespace(self.server, options)
        return options

    def visible(self, options: Mapping[str, str]) -> list[dict[str, Any]]:
        with by_others(self.server, options) as catalog:
            if not catalog.table_exists("sales.orders"):
                return []
            found: list[dict[str, Any]] = catalog.load_table("sales.orders").scan().to_arrow().to_pylist()
        return found

    def orphans(self, options: Mapping[str, str]) -> list[str]:
        return [name for name in orphans(self.server, options) if name.endswith(".parquet")]

    @contextmanager
    def unreachable(self, options: Mapping[str, str]) -> Iterator[None]:
        self.server.kill()
        yield
        self.server.start()


def test_an_epoch_is_one_snapshot_and_nothing_else_is_left(table: Table) -> None:
    handles = [table.bench.prepared(rows(slot, 10 + slot), epoch=3, slot=slot) for slot in range(2)]
    assert table.ids() == []
    assert table.bench.sink().commit_many(handles) == [Committed()] * 2
    assert table.bench.sink().commit_many(handles) == [AlreadyCommitted()] * 2
    table.bench.sink().complete(table.bench.query, 3, handles)
    assert table.ids() == [0, 1, 10, 11]
    assert table.bench.sink().held(handles) == Held(rows=4)
    assert table.orphans() == []
    assert SECRET not in json.dumps([*(dict(handle.data) for handle in handles), dict(table.bench.check())])
    with by_others(table.server, table.options) as catalog:
        metadata = catalog.load_table("sales.orders").metadata
    assert SECRET not in metadata.model_dump_json()


def test_two_drivers_with_the_same_handle_in_hand_make_one_snapshot(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = table.bench.prepared(rows(1))
    real = target.enter

    def overtaken(*more: Any, **named: Any) -> None:  # noqa: ANN401
        monkeypatch.setattr(target, "enter", real)
        assert table.bench.sink().commit(handle) == Committed()
        real(*more, **named)

    monkeypatch.setattr(target, "enter", overtaken)
    assert table.bench.sink().commit(handle) == AlreadyCommitted()
    assert table.ids() == [1]


def test_what_was_swept_gives_no_vote_and_what_lost_its_file_is_lost(table: Table) -> None:
    sink, attempt = table.bench.begin()
    sink.write(attempt, pa.RecordBatch.from_pylist(rows(1)))
    [leftover] = table.bench.sink().recover(table.bench.query)
    table.bench.sink().abort(leftover.handle)
    with pytest.raises(WriteFailedError, match="swept"):
        sink.pre_commit(attempt)
    sink.discard(attempt)
    assert table.orphans() == []
    handle = table.bench.prepared(rows(1))
    table.bench.sink().abort(handle)
    assert isinstance(table.bench.sink().commit(handle), Lost)
    assert table.ids() == []


def test_epochs_are_taken_back_and_the_same_query_goes_on(table: Table) -> None:
    handles = [table.bench.committed(rows(2 * epoch, 2 * epoch + 1), epoch=epoch) for epoch in range(3)]
    late = table.bench.prepared(rows(60), epoch=3)
    sink: Any = table.bench.sink()
    assert len(sink.withdraw(table.bench.query, 0, handles[1:]).files) == 4
    assert table.ids() == [0, 1]
    assert isinstance(table.bench.sink().commit(late), Unknown)
    table.bench.committed(rows(70), epoch=1)
    assert table.ids() == [0, 1, 70]


def test_who_may_only_read_is_told_what_is_missing(table: Table) -> None:
    table.bench.check()
    opened.tell(Hadoop(table.server.hadoop("reader")))
    with pytest.raises(ConfigurationError, match="could not be put: S3 does not permit it") as raised:
        table.bench.check()
    assert "s3:PutObject" in raised.value.next_step
    assert SECRET not in str(raised.value)


def test_what_pyiceberg_cannot_be_told_is_refused_by_name(table: Table) -> None:
    opened.tell(Hadoop({**table.server.hadoop(), "fs.s3a.encryption.algorithm": "SSE-S3"}))
    with pytest.raises(ConfigurationError, match="the job asks for encryption by S3"):
        table.bench.check()
