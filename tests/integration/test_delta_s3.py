"""The Delta sink on a real S3 server, SeaweedFS: the conformance suite, others beside it, and what is refused."""

# ruff: noqa: F811  fixtures are asked for by name

from __future__ import annotations

import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from s3_bench import BUCKET, server, told  # noqa: F401  fixtures
from tests.unit.loaded_bench import Bench
from tests.unit.test_delta_sink import PARTS

from onceonly.errors import ConfigurationError, TargetBehindError, UnavailableError, WriteFailedError
from onceonly.families.loaded import Load
from onceonly.model import AlreadyCommitted, Committed, Lost, Unknown
from onceonly.ports.standing import Held, Stands
from onceonly.sinks.delta import DeltaSink, target
from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly_proof.auditor.lake import LakeReader
from onceonly_proof.conformance import SinkConformance
from onceonly_proof.embedded.s3 import SECRET, EmbeddedS3

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.integration

COLUMNS = {"id": "bigint", "text": "string"}
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
_numbers = itertools.count()


def by_others(server: EmbeddedS3) -> dict[str, str]:
    """What any other program tells deltalake."""
    return {
        "endpoint": server.url, "region": "us-east-1", "allow_http": "true", "access_key_id": "all",
        "secret_access_key": SECRET, "conditional_put": "etag",
    }  # fmt: skip


class Table:
    """A table in a folder of its own, and who else writes to it and reads it."""

    def __init__(self, server: EmbeddedS3, columns: Mapping[str, str] = COLUMNS, **options: str) -> None:
        self.server = server
        self.folder = f"table-{next(_numbers)}"
        self.uri = f"s3://{BUCKET}/{self.folder}"
        self.bench = Bench(DeltaSink, "delta", {"path": f"s3a://{BUCKET}/{self.folder}", **options}, columns)
        self.audited = LakeReader(
            "delta",
            self.folder,
            names=lambda path: server.names(BUCKET, path),
            read=lambda name: server.read(BUCKET, name),
        )

    def made(self) -> Table:
        DeltaTable.create(self.uri, SCHEMA, storage_options=by_others(self.server))
        return self

    def open(self) -> DeltaTable:
        return DeltaTable(self.uri, storage_options=by_others(self.server))

    def ids(self) -> list[int]:
        found = sorted(self.open().to_pyarrow_table()["id"].to_pylist())
        assert sorted(row["id"] for row in self.audited.table()) == found
        return found


@pytest.fixture
def table(server: EmbeddedS3) -> Table:
    return Table(server).made()


def rows(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": number, "text": f"row {number}"} for number in numbers]


@pytest.mark.long
class TestSeaweed(SinkConformance):
    sink = DeltaSink
    every_pass = False

    @pytest.fixture(autouse=True)
    def s3(self, server: EmbeddedS3) -> None:
        self.server = server

    def options(self, folder: Path) -> dict[str, str]:
        schema = pa.schema([pa.field("key", pa.string(), nullable=False), ("value", pa.string())])
        name = f"suite-{next(_numbers)}"
        DeltaTable.create(f"s3://{BUCKET}/{name}", schema, storage_options=by_others(self.server))
        return {"path": f"s3a://{BUCKET}/{name}"}

    def refusable(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([{"key": None, "value": text} for text in "ab"])

    def visible(self, options: Mapping[str, str]) -> list[dict[str, Any]]:
        return list(self._read(options).table())

    def orphans(self, options: Mapping[str, str]) -> list[str]:
        return [each.what for each in self._read(options).orphans()]

    @contextmanager
    def unreachable(self, options: Mapping[str, str]) -> Iterator[None]:
        self.server.kill()
        yield
        self.server.start()

    def _read(self, options: Mapping[str, str]) -> LakeReader:
        return LakeReader(
            "delta",
            options["path"].removeprefix(f"s3a://{BUCKET}/"),
            names=lambda path: self.server.names(BUCKET, path),
            read=lambda name: self.server.read(BUCKET, name),
        )


def test_an_epoch_is_one_version_that_names_its_attempts_and_its_app(table: Table) -> None:
    handles = [table.bench.prepared(rows(slot), epoch=3, slot=slot) for slot in range(3)]
    assert table.open().version() == 0
    assert table.bench.sink().commit_many(handles) == [Committed()] * 3
    assert table.bench.sink().commit_many(handles) == [AlreadyCommitted()] * 3
    table.bench.sink().complete(table.bench.query, 3, handles)
    [_, actions] = table.audited.entries()
    [txn] = [each["txn"] for each in actions if "txn" in each]
    assert (txn["appId"], txn["version"]) == ("onceonly/q/delta", 3)
    [info] = [each["commitInfo"] for each in actions if "commitInfo" in each]
    assert info["onceonly"]["attempts"] == [handle.transaction for handle in handles]
    assert table.ids() == [0, 1, 2]
    assert (table.audited.orphans(), table.audited.notes()) == ([], [])
    assert table.bench.sink().held(handles) == Held(rows=3)


def test_a_table_is_made_with_its_partitions_and_columns_are_added(server: EmbeddedS3) -> None:
    table = Table(server, create="true", partitionBy="text")
    table.bench.committed(rows(1, 2))
    assert table.open().metadata().partition_columns == ["text"]
    more = Bench(
        DeltaSink, "delta", {"path": table.uri, "merge.schema": "true"}, {**COLUMNS, "new": "double"}
    )
    more.committed([{"id": 3, "text": "row 3", "new": 0.5}], epoch=1)
    assert table.ids() == [1, 2, 3]


def test_each_commit_beside_other_writers_comes_through_once(table: Table) -> None:
    def others() -> None:
        for number in range(10):
            data = pa.table({"id": [1000 + number], "text": ["theirs"]}, SCHEMA)
            write_deltalake(table.uri, data, mode="append", storage_options=by_others(table.server))

    with ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(others)
        for epoch in range(10):
            assert table.bench.sink().commit(table.bench.prepared(rows(epoch), epoch=epoch)) == Committed()
        theirs.result()
    assert table.ids() == [*range(10), *range(1000, 1010)]
    assert table.audited.epochs() == list(range(10))


def test_two_drivers_with_the_same_handle_in_hand_make_one_version(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = table.bench.prepared(rows(1))
    real = target.enter

    def overtaken(*more: Any) -> None:  # noqa: ANN401
        monkeypatch.setattr(target, "enter", real)
        assert table.bench.sink().commit(handle) == Committed()
        real(*more)

    monkeypatch.setattr(target, "enter", overtaken)
    assert table.bench.sink().commit(handle) == AlreadyCommitted()
    assert (table.ids(), table.audited.epochs()) == ([1], [0])


def test_a_commit_whose_answer_was_lost_is_found_in_the_log(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = table.bench.prepared(rows(1))
    real = DeltaTable.create_write_transaction

    def unsure(self: DeltaTable, *args: Any, **more: Any) -> None:  # noqa: ANN401
        real(self, *args, **more)
        raise OSError("Generic S3 error: Error performing PUT http://secret/: operation timed out")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", unsure)
        with pytest.raises(UnavailableError, match="could not be put: S3 gave no usable answer") as raised:
            table.bench.sink().commit(handle)
        assert "secret" not in str(raised.value)
    assert table.bench.sink().commit(handle) == AlreadyCommitted()
    assert table.ids() == [1]


def test_a_vacuum_between_vote_and_commit_is_noticed_and_compacted_files_stay_committed(table: Table) -> None:
    handle = table.bench.prepared(rows(1))
    table.open().vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    assert isinstance(table.bench.sink().commit(handle), Lost)
    assert isinstance(table.bench.sink().commit(handle), Lost)
    handles = [table.bench.prepared(rows(slot), slot=slot, epoch=1) for slot in range(2)]
    table.bench.sink().commit_many(handles)
    table.open().optimize.compact()
    table.open().vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert table.bench.sink().commit_many(handles) == [AlreadyCommitted()] * 2
    for each in handles:
        table.bench.sink().abort(each)
    assert table.ids() == [0, 1]


def test_an_attempt_that_wakes_up_after_a_sweep_gives_no_vote_and_leaves_nothing(table: Table) -> None:
    sink, attempt = table.bench.begin()
    sink.write(attempt, pa.RecordBatch.from_pylist(rows(1)))
    [leftover] = table.bench.sink().recover(table.bench.query)
    table.bench.sink().abort(leftover.handle)
    with pytest.raises(WriteFailedError, match="swept"):
        sink.pre_commit(attempt)
    sink.discard(attempt)
    assert (table.audited.orphans(), table.audited.notes()) == ([], [])
    assert list(table.bench.sink().recover(table.bench.query)) == []


def test_partitions_come_back_by_their_values_whatever_these_are(server: EmbeddedS3) -> None:
    table = Table(server, {"part": "string", "id": "int"}, create="true", partitionBy="part")
    values = [*PARTS, None]
    batch = pa.RecordBatch.from_pylist(
        [{"part": value, "id": place} for place, value in enumerate(values)],
        pa.schema([("part", pa.string()), ("id", pa.int32())]),
    )
    handle = table.bench.committed(batch)
    assert table.bench.sink().held([handle]) == Held(rows=len(values))
    found = table.open().to_pyarrow_table().sort_by("id")
    assert found["part"].to_pylist() == values
    assert sorted((row["id"], row["part"]) for row in table.audited.table()) == list(enumerate(values))


def test_a_large_file_is_sent_in_parts_and_read_as_a_whole(table: Table) -> None:
    batch = pa.RecordBatch.from_pylist([{"id": n, "text": f"{n:0500d}"} for n in range(20_000)])
    sink, attempt = table.bench.begin(compression="none")
    for _ in range(4):
        sink.write(attempt, batch)
    handle = sink.pre_commit(attempt)
    assert handle is not None
    [file] = Load.of(handle).files
    assert file.bytes > 4 << 23
    assert table.bench.sink().commit(handle) == Committed()
    assert table.open().to_pyarrow_table(columns=["id"]).num_rows == 80_000


def test_epochs_are_taken_back_and_the_same_query_goes_on(table: Table) -> None:
    handles = [table.bench.committed(rows(epoch), epoch=epoch) for epoch in range(3)]
    write_deltalake(
        table.uri, pa.table({"id": [99], "text": ["theirs"]}, SCHEMA), mode="append",
        storage_options=by_others(table.server),
    )  # fmt: skip
    sink: Any = table.bench.sink()
    late = table.bench.prepared(rows(7), epoch=3)
    assert len(sink.withdraw(table.bench.query, 0, handles[1:]).files) == 2
    assert table.ids() == [0, 99]
    assert isinstance(table.bench.sink().commit(late), Unknown)
    assert table.bench.sink().look_up(late).stands is Stands.GONE
    table.bench.committed(rows(70), epoch=1)
    assert table.ids() == [0, 70, 99]


def test_an_older_version_that_was_restored_is_told(table: Table) -> None:
    handles = [table.bench.committed(rows(epoch), epoch=epoch) for epoch in range(3)]
    table.bench.sink().look_back(table.bench.query, 2, handles[-1:])
    table.open().restore(2)
    with pytest.raises(TargetBehindError, match="chk-2 to chk-2 are missing"):
        table.bench.sink().look_back(table.bench.query, 2, handles[-1:])


def test_both_schemes_mean_one_table_and_no_secret_is_in_what_is_written_down(table: Table) -> None:
    other = Bench(DeltaSink, "delta", {"path": table.uri}, COLUMNS)
    assert other.sink().identity() == table.bench.sink().identity()
    handle = table.bench.prepared(rows(1))
    assert SECRET not in json.dumps([dict(handle.data), dict(table.bench.check())])


@pytest.mark.parametrize(
    ("user", "said", "next_step"),
    [
        ("reader", "could not be put: S3 does not permit it", "s3:PutObject"),
        ("blind", "could not be listed: S3 does not permit it", "s3:ListBucket"),
        ("nobody", "are not known there", "correct them"),
    ],
)
def test_who_may_not_is_told_what_is_missing(table: Table, user: str, said: str, next_step: str) -> None:
    opened.tell(Hadoop(table.server.hadoop(user)))
    with pytest.raises(ConfigurationError, match=said) as raised:
        table.bench.check()
    assert next_step in raised.value.next_step
    assert SECRET not in str(raised.value)


def test_a_table_that_is_not_there(server: EmbeddedS3) -> None:
    with pytest.raises(ConfigurationError, match="There is no Delta table in s3a://lake/"):
        Table(server).bench.check()


def test_a_store_that_is_away_is_waited_for(table: Table) -> None:
    handle = table.bench.prepared(rows(1))
    table.server.kill()
    try:
        with pytest.raises(UnavailableError, match="S3 gave no usable answer"):
            table.bench.sink().commit(handle)
    finally:
        table.server.start()
    assert table.bench.sink().commit(handle) == Committed()
    assert table.ids() == [1]
