"""Epochs that were committed to a table are taken back from it: ours alone, in one entry, and for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.unit import iceberg_bench
from tests.unit.loaded_bench import Bench

from onceonly.errors import ConfigurationError, TargetBehindError
from onceonly.families.loaded import Load
from onceonly.model import AlreadyCommitted, Committed, Unknown
from onceonly.ports.standing import Stands
from onceonly.sinks import delta, iceberg
from onceonly.sinks.delta import DeltaSink
from onceonly.sinks.iceberg import IcebergSink

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.model import Handle

COLUMNS = {"id": "bigint", "shop": "string"}
SCHEMA = pa.schema([("id", pa.int64()), ("shop", pa.string())])


class DiedError(BaseException):
    """The process has ended."""


class Table(Protocol):
    bench: Bench

    def ids(self) -> list[int]: ...
    def entries(self) -> int: ...
    def append(self, number: int) -> None: ...
    def compact(self) -> None: ...
    def delete(self, number: int) -> None: ...
    def go_back(self, entries: int) -> None: ...


class Delta:
    target = delta.target

    def __init__(self, folder: Path) -> None:
        self.path = folder / "table"
        DeltaTable.create(self.path, SCHEMA, partition_by=["shop"])
        self.bench = Bench(DeltaSink, "delta", {"path": str(self.path)}, COLUMNS)

    def ids(self) -> list[int]:
        return sorted(DeltaTable(self.path).to_pyarrow_table()["id"].to_pylist())

    def entries(self) -> int:
        return DeltaTable(self.path).version()

    def append(self, number: int) -> None:
        write_deltalake(self.path, pa.table({"id": [number], "shop": ["theirs"]}, SCHEMA), mode="append")

    def compact(self) -> None:
        DeltaTable(self.path).optimize.compact()

    def delete(self, number: int) -> None:
        DeltaTable(self.path).delete(f"id = {number}")

    def go_back(self, entries: int) -> None:
        DeltaTable(self.path).restore(entries)


class Iceberg:
    target = iceberg.target

    def __init__(self, folder: Path) -> None:
        self.options = iceberg_bench.options_of(folder)
        iceberg_bench.make_table(self.options, SCHEMA)
        with iceberg_bench.opened(self.options).update_spec() as spec:
            spec.add_identity("shop")
        self.bench = Bench(IcebergSink, "iceberg", self.options, COLUMNS)

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in iceberg_bench.rows_of(self.options))

    def entries(self) -> int:
        return len(iceberg_bench.opened(self.options).snapshots())

    def append(self, number: int) -> None:
        iceberg_bench.opened(self.options).append(pa.table({"id": [number], "shop": ["theirs"]}, SCHEMA))

    def compact(self) -> None:
        """Write all rows anew, as pyiceberg has no compaction."""
        iceberg_bench.opened(self.options).overwrite(
            pa.Table.from_pylist(iceberg_bench.rows_of(self.options), SCHEMA)
        )

    def delete(self, number: int) -> None:
        iceberg_bench.opened(self.options).delete(f"id = {number}")

    def go_back(self, entries: int) -> None:
        table = iceberg_bench.opened(self.options)
        table.manage_snapshots().rollback_to_snapshot(table.snapshots()[entries - 1].snapshot_id).commit()


@pytest.fixture(params=[Delta, Iceberg])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    made: Table = request.param(tmp_path)
    return made


def rows(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": number, "shop": f"a/b=c%d {number % 2}"} for number in numbers]


def epochs(table: Table, *numbers: int) -> list[Handle]:
    """Commit epochs of two rows each, in two partitions."""
    found = []
    for epoch in numbers:
        found.append(table.bench.committed(rows(2 * epoch, 2 * epoch + 1), epoch=epoch))
        table.bench.sink().complete(table.bench.query, epoch, found[-1:])
    return found


def withdraw(table: Table, epoch: int, handles: list[Handle], **more: bool) -> int:
    sink: Any = table.bench.sink()
    return len(sink.withdraw(table.bench.query, epoch, handles, **more).files)


def test_later_epochs_leave_in_one_entry_and_the_same_query_goes_on(table: Table) -> None:
    handles = epochs(table, 0, 1, 2)
    before = table.entries()
    assert withdraw(table, 0, handles[1:], only_look=True) == 4
    assert table.entries() == before
    assert table.bench.sink().newest_epoch(table.bench.query) == 2
    assert withdraw(table, 0, handles[1:]) == 4
    assert table.bench.sink().newest_epoch(table.bench.query) == 0
    assert (table.ids(), table.entries()) == ([0, 1], before + 1)
    assert withdraw(table, 0, handles[1:]) == 4
    assert table.entries() == before + 1
    table.bench.sink().look_back(table.bench.query, 0, handles[:1])
    assert table.bench.sink().commit(epoch_one := table.bench.prepared(rows(70), epoch=1)) == Committed()
    assert table.bench.sink().commit(epoch_one) == AlreadyCommitted()
    assert table.ids() == [0, 1, 70]
    assert withdraw(table, 0, [epoch_one]) == 1
    assert table.ids() == [0, 1]


def test_what_others_have_written_since_stays(table: Table) -> None:
    handles = epochs(table, 0, 1)
    table.append(98)
    handles += epochs(table, 2)
    table.append(99)
    assert withdraw(table, 0, handles[1:]) == 4
    assert table.ids() == [0, 1, 98, 99]


def test_all_epochs_of_a_query_are_taken_back(table: Table) -> None:
    handles = epochs(table, 0, 1)
    assert withdraw(table, -1, handles) == 4
    assert table.ids() == []
    epochs(table, 0)
    assert table.ids() == [0, 1]


@pytest.mark.parametrize("change", ["compact", "delete"])
def test_files_that_others_have_changed_since_are_refused_and_nothing_is_taken_back(
    table: Table, change: str
) -> None:
    handles = epochs(table, 0, 1, 2)
    if change == "compact":
        table.append(98)
        table.compact()
    else:
        table.delete(3)
    before = table.ids()
    with pytest.raises(ConfigurationError, match="nobody could tell which rows are ours"):
        withdraw(table, 0, handles[1:])
    assert table.ids() == before


def test_who_changes_them_in_the_same_moment_is_noticed(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles = epochs(table, 0, 1, 2)
    target: Any = table.target  # type: ignore[attr-defined]
    real = target.leave_out

    def late(*arguments: Any) -> None:  # noqa: ANN401
        table.delete(3)
        real(*arguments)

    monkeypatch.setattr(target, "leave_out", late)
    with pytest.raises(ConfigurationError, match="nobody could tell"):
        withdraw(table, 0, handles[1:])
    assert table.ids() == [0, 1, 2, 4, 5]


@pytest.mark.parametrize("done", [False, True])
def test_killed_before_or_after_the_entry_it_is_run_again(
    table: Table,
    monkeypatch: pytest.MonkeyPatch,
    done: bool,  # noqa: FBT001
) -> None:
    handles = epochs(table, 0, 1)
    before = table.entries()
    target: Any = table.target  # type: ignore[attr-defined]
    real = target.leave_out

    def dying(*arguments: Any) -> None:  # noqa: ANN401
        if done:
            real(*arguments)
        raise DiedError

    with monkeypatch.context() as patch:
        patch.setattr(target, "leave_out", dying)
        with pytest.raises(DiedError):
            withdraw(table, 0, handles[1:])
    assert table.entries() == before + done
    assert withdraw(table, 0, handles[1:]) == 2
    assert (table.ids(), table.entries()) == ([0, 1], before + 1)


def test_a_driver_that_wakes_up_late_enters_nothing_of_what_was_taken_back(table: Table) -> None:
    handles = epochs(table, 0, 1, 2)
    open_ = table.bench.prepared(rows(60), epoch=3)
    withdraw(table, 0, handles[1:])
    for handle in (*handles[1:], open_):
        assert isinstance(table.bench.sink().commit(handle), Unknown)
        assert table.bench.sink().look_up(handle).stands is Stands.GONE
    assert table.bench.sink().commit(handles[0]) != Committed()
    epochs(table, 1)
    assert isinstance(table.bench.sink().commit(handles[2]), Unknown)
    assert isinstance(table.bench.sink().commit(handles[1]), Unknown)
    assert table.ids() == [0, 1, 2, 3]


def test_what_is_kept_is_not_dropped_when_it_is_aborted_late(table: Table) -> None:
    handles = epochs(table, 0, 1)
    withdraw(table, 0, handles[1:])
    table.bench.sink().abort(handles[0])
    assert table.ids() == [0, 1]


def test_after_the_user_has_restored_an_older_version_the_query_goes_on_from_there(table: Table) -> None:
    handles = epochs(table, 0)
    at = table.entries()
    handles += epochs(table, 1, 2)
    table.go_back(at)
    assert table.ids() == [0, 1]
    withdraw(table, 0, handles[1:])
    table.bench.sink().look_back(table.bench.query, 0, handles[:1])
    epochs(table, 1)
    assert table.ids() == [0, 1, 2, 3]


def test_a_version_from_before_it_was_taken_back_is_told_when_it_is_restored(table: Table) -> None:
    handles = epochs(table, 0, 1, 2)
    at = table.entries()
    withdraw(table, 0, handles[1:])
    [again] = epochs(table, 1)
    table.bench.sink().look_back(table.bench.query, 1, [again])
    table.go_back(at)
    with pytest.raises(TargetBehindError, match="chk-1 to chk-1 are missing"):
        table.bench.sink().look_back(table.bench.query, 1, [again])


def test_files_stay_for_readers_of_older_versions(table: Table) -> None:
    handles = epochs(table, 0, 1)
    withdraw(table, 0, handles[1:])
    load = Load.of(handles[1])
    folder = table.bench.sink().home.folder / load.folder  # type: ignore[attr-defined]
    assert sum(pq.read_metadata(folder / file.path).num_rows for file in load.files) == 2


def test_an_append_only_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table"
    DeltaTable.create(path, SCHEMA, configuration={"delta.appendOnly": "true"})
    bench = Bench(DeltaSink, "delta", {"path": str(path)}, COLUMNS)
    handle = bench.committed(rows(0))
    with pytest.raises(ConfigurationError, match="append-only"):
        bench.sink().withdraw(bench.query, -1, [handle], only_look=True)  # type: ignore[attr-defined]
