"""The Delta sink on tables in a folder: what a version holds, others beside it, and what was lost or restored."""

from __future__ import annotations

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from tests.unit.loaded_bench import Bench, opened

from onceonly.durable import disk
from onceonly.errors import ConfigurationError, TargetBehindError, UnavailableError
from onceonly.families.loaded import Load
from onceonly.model import AlreadyCommitted, Committed, Lost, Mode
from onceonly.ports.standing import Held
from onceonly.sinks.delta import DeltaSink, target
from onceonly.sinks.delta.place import read_place

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.model import Handle

COLUMNS = {"id": "bigint", "text": "string"}
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    DeltaTable.create(tmp_path / "table", SCHEMA)
    return tmp_path / "table"


@pytest.fixture
def bench(path: Path) -> Bench:
    return Bench(DeltaSink, "delta", {"path": str(path)}, COLUMNS)


def rows(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": number, "text": f"row {number}"} for number in numbers]


def ids(path: Path) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table()["id"].to_pylist())


def made_at(path: Path, version: int) -> datetime:
    """Return the time at which a version was there, as deltalake takes it: by its file in the log."""
    written = (path / "_delta_log" / f"{version:020d}.json").stat().st_mtime
    return datetime.fromtimestamp(written + 0.005, UTC)


def entry(path: Path, version: int) -> list[dict[str, Any]]:
    lines = (path / "_delta_log" / f"{version:020d}.json").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_an_epoch_is_one_version_that_names_its_attempts_and_its_app(bench: Bench, path: Path) -> None:
    handles = [bench.prepared(rows(slot), epoch=3, slot=slot) for slot in range(3)]
    assert DeltaTable(path).version() == 0
    assert bench.sink().commit_many(handles) == [Committed()] * 3
    assert DeltaTable(path).version() == 1
    actions = entry(path, 1)
    [txn] = [each["txn"] for each in actions if "txn" in each]
    assert (txn["appId"], txn["version"]) == ("onceonly/q/delta", 3)
    [info] = [each["commitInfo"] for each in actions if "commitInfo" in each]
    assert info["onceonly"]["attempts"] == [handle.transaction for handle in handles]
    assert len([each for each in actions if "add" in each]) == 3
    assert ids(path) == [0, 1, 2]
    assert bench.sink().commit_many(handles) == [AlreadyCommitted()] * 3
    assert DeltaTable(path).version() == 1


def test_a_check_reads_the_table_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.committed(rows(1))
    tables = opened(target, monkeypatch)
    assert bench.check()["newest"] == 0
    assert len(tables) == 1


def test_another_query_on_the_same_table_has_epochs_of_its_own(bench: Bench, path: Path) -> None:
    bench.committed(rows(0), epoch=5)
    other = Bench(DeltaSink, "delta2", {"path": str(path)}, COLUMNS)
    assert other.check()["newest"] == -1
    other.committed(rows(1), epoch=0)
    assert bench.check()["newest"] == 5
    assert ids(path) == [0, 1]


def test_each_of_twenty_commits_beside_other_writers_comes_through_once(bench: Bench, path: Path) -> None:
    def others() -> None:
        for number in range(20):
            write_deltalake(
                path, pa.table({"id": [1000 + number], "text": ["theirs"]}, SCHEMA), mode="append"
            )

    with ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(others)
        for epoch in range(20):
            handle = bench.prepared(rows(epoch), epoch=epoch)
            assert bench.sink().commit(handle) == Committed()
        theirs.result()
    assert ids(path) == [*range(20), *range(1000, 1020)]


def test_a_table_that_was_changed_under_a_commit_is_looked_at_again(
    bench: Bench, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = bench.prepared(rows(1))
    real = target.enter

    def beside(*more: Any) -> None:  # noqa: ANN401
        monkeypatch.setattr(target, "enter", real)
        DeltaTable(path).alter.add_columns([Field("new", PrimitiveType("string"))])
        real(*more)

    monkeypatch.setattr(target, "enter", beside)
    assert bench.sink().commit(handle) == Committed()
    assert DeltaTable(path).to_pyarrow_table().to_pylist() == [{"id": 1, "text": "row 1", "new": None}]


def test_two_drivers_with_the_same_handle_in_hand_make_one_version(
    bench: Bench, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = bench.prepared(rows(1))
    real = target.enter

    def overtaken(*more: Any) -> None:  # noqa: ANN401
        monkeypatch.setattr(target, "enter", real)
        assert bench.sink().commit(handle) == Committed()
        real(*more)

    monkeypatch.setattr(target, "enter", overtaken)
    assert bench.sink().commit(handle) == AlreadyCommitted()
    assert ids(path) == [1]
    assert DeltaTable(path).version() == 1


def test_a_commit_whose_answer_was_lost_is_found_in_the_log(
    bench: Bench, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = bench.prepared(rows(1))
    real = DeltaTable.create_write_transaction

    def unsure(self: DeltaTable, *args: Any, **more: Any) -> None:  # noqa: ANN401
        real(self, *args, **more)
        raise OSError("connection reset")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", unsure)
        with pytest.raises(UnavailableError, match="did not take"):
            bench.sink().commit(handle)
    assert bench.sink().commit(handle) == AlreadyCommitted()
    assert ids(path) == [1]


def test_files_that_were_compacted_away_are_committed_all_the_same(bench: Bench, path: Path) -> None:
    handles = [bench.prepared(rows(slot), slot=slot) for slot in range(2)]
    bench.sink().commit_many(handles)
    table = DeltaTable(path)
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert not list((path / "onceonly").rglob("*.parquet"))
    assert bench.sink().commit_many(handles) == [AlreadyCommitted()] * 2
    for handle in handles:
        bench.sink().abort(handle)
    assert ids(path) == [0, 1]


def test_a_vacuum_between_vote_and_commit_is_noticed(bench: Bench, path: Path) -> None:
    handle = bench.prepared(rows(1))
    DeltaTable(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    outcome = bench.sink().commit(handle)
    assert isinstance(outcome, Lost)
    assert ids(path) == []
    assert isinstance(bench.sink().commit(handle), Lost)


def vacuumed_at_entry(monkeypatch: pytest.MonkeyPatch, *files: Path) -> None:
    """Have files removed once their entry is made, by a vacuum that has listed them before it."""
    real = target.enter

    def enter(*more: Any) -> None:  # noqa: ANN401
        real(*more)
        for file in files:
            file.unlink(missing_ok=True)

    monkeypatch.setattr(target, "enter", enter)


def place_of(path: Path, handle: Handle) -> Path:
    [file] = Load.of(handle).files
    return path / Load.of(handle).folder / file.path


def test_a_vacuum_in_the_moment_of_the_entry_is_noticed_and_the_rows_are_written_again(
    bench: Bench, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles = [bench.prepared(rows(slot), slot=slot) for slot in range(2)]
    vacuumed_at_entry(monkeypatch, place_of(path, handles[0]))
    sink = bench.sink()
    assert [type(each) for each in sink.commit_many(handles)] == [Lost, Committed]
    assert [type(each) for each in bench.sink().commit_many(handles)] == [Lost, AlreadyCommitted]
    assert ids(path) == [1]
    again = bench.prepared(rows(0), mode=Mode.TENTATIVE)
    assert sink.commit(again) == Committed()
    assert ids(path) == [0, 1]
    assert sink.commit(bench.prepared(rows(2), epoch=1)) == Committed()


def test_a_driver_that_died_after_such_an_entry_is_recovered_by_the_next(
    bench: Bench, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles = [bench.prepared(rows(slot), slot=slot) for slot in range(2)]
    bench.sink().commit_many(handles)
    place_of(path, handles[1]).unlink()
    assert [type(each) for each in bench.sink().commit_many(handles)] == [AlreadyCommitted, Lost]
    assert ids(path) == [0]


def test_what_cannot_be_taken_out_any_more_is_told_by_its_rows(bench: Bench, path: Path) -> None:
    sink = bench.sink()
    handles = [bench.prepared(rows(slot), slot=slot) for slot in range(2)]
    assert sink.commit_many(handles) == [Committed()] * 2
    sink.rehearse([bench.prepared(rows(2), epoch=1)], {})
    place_of(path, handles[1]).unlink()
    handle = bench.prepared(rows(2), epoch=1)
    gone = r"names 1 file of chk-0 that is not there.*1 row"
    with pytest.raises(TargetBehindError, match=gone):
        sink.rehearse([handle], {})
    with pytest.raises(TargetBehindError, match=gone):
        bench.sink().look_back(bench.query, 0, handles)
    bench.sink(**{"onceonly.target.behind": "go-on"}).look_back(bench.query, 0, handles)
    DeltaTable(path).repair()  # takes it out of the table: what is gone is told no more
    sink.rehearse([handle], {})


def test_a_commit_that_is_looked_up_after_the_log_was_cut_is_not_guessed(bench: Bench, path: Path) -> None:
    handle = bench.committed(rows(1))
    table = DeltaTable(path)
    table.create_checkpoint()
    (path / "_delta_log" / f"{0:020d}.json").unlink()
    books = target.read_books(target.open_table(read_place(str(path))), "onceonly/q/delta", 0, since=None)
    assert handle.transaction in books.committed
    assert not books.is_whole
    assert target.read_books(
        target.open_table(read_place(str(path))), "onceonly/q/delta", 0, since=0
    ).is_whole


def test_a_restored_backup_is_told_with_the_epochs_that_are_missing(bench: Bench, path: Path) -> None:
    assert bench.sink().newest_epoch(bench.query) is None
    bench.committed(rows(0), epoch=0)
    shutil.copytree(path, path.with_name("backup"))
    handles = [bench.committed(rows(epoch), epoch=epoch) for epoch in (1, 2)]
    bench.sink().look_back(bench.query, 2, handles[-1:])
    shutil.rmtree(path)
    path.with_name("backup").rename(path)
    with pytest.raises(TargetBehindError, match="chk-1 to chk-2 are missing"):
        bench.sink().look_back(bench.query, 2, handles[-1:])


def test_an_older_version_that_was_restored_is_told_until_the_user_goes_on(bench: Bench, path: Path) -> None:
    handles = [bench.committed(rows(epoch), epoch=epoch) for epoch in range(3)]
    DeltaTable(path).restore(2)
    assert ids(path) == [0, 1]
    assert bench.sink().newest_epoch(bench.query) == 1
    with pytest.raises(TargetBehindError, match="chk-2 to chk-2 are missing"):
        bench.sink().look_back(bench.query, 2, handles[-1:])
    bench.sink(**{"onceonly.target.behind": "go-on"}).look_back(bench.query, 2, handles[-1:])
    handle = bench.committed(rows(3), epoch=3)
    bench.sink().look_back(bench.query, 3, [handle])


def test_an_older_version_that_is_restored_under_a_query_stops_it_before_a_decision(
    bench: Bench, path: Path
) -> None:
    sink = bench.sink()
    for epoch in range(2):
        assert sink.commit(bench.prepared(rows(epoch), epoch=epoch)) == Committed()
    handle = bench.prepared(rows(2), epoch=2)
    sink.rehearse([handle], {})
    DeltaTable(path).restore(1)
    for step in (lambda: sink.rehearse([handle], {}), lambda: sink.commit_many([handle])):
        with pytest.raises(TargetBehindError, match="has forgotten chk-1"):
            step()
    DeltaTable(path).restore(2)  # which brings it back
    sink.rehearse([handle], {})
    assert target.standing(read_place(str(path)), "onceonly/q/delta") == 1
    assert sink.commit(handle) == Committed()
    assert ids(path) == [0, 1, 2]


def test_an_older_version_that_is_restored_before_the_first_decision_of_a_run_takes_no_epoch(
    bench: Bench, path: Path
) -> None:
    for epoch in range(2):
        bench.committed(rows(epoch), epoch=epoch)
    facts = bench.check()
    handle = bench.prepared(rows(2), epoch=2)
    bench.sink().rehearse([handle], facts)
    DeltaTable(path).restore(1)
    with pytest.raises(TargetBehindError, match="has forgotten chk-1"):
        bench.sink().rehearse([handle], facts)
    bench.sink().rehearse([handle], bench.check())  # who has said to go on starts with what is there


def test_a_version_that_is_restored_by_its_time_is_one_that_was_restored(bench: Bench, path: Path) -> None:
    sink = bench.sink()
    handles = [bench.prepared(rows(epoch), epoch=epoch) for epoch in range(3)]
    for epoch in range(2):
        time.sleep(0.01)
        assert sink.commit(handles[epoch]) == Committed()
    first, second = (made_at(path, version) for version in (1, 2))
    write_deltalake(path, pa.table({"id": [1000], "text": ["theirs"]}, SCHEMA), mode="append")
    DeltaTable(path).restore(second)  # of ours nothing is taken back
    sink.rehearse(handles[2:], {})
    bench.sink().look_back(bench.query, 1, handles[1:2])
    DeltaTable(path).restore(first)
    assert "version" not in DeltaTable(path).history(1)[0]["operationParameters"]
    for step in (lambda: sink.rehearse(handles[2:], {}), lambda: sink.commit_many(handles[2:])):
        with pytest.raises(TargetBehindError, match="has forgotten chk-1"):
            step()
    with pytest.raises(TargetBehindError, match="chk-1 to chk-1 are missing"):
        bench.sink().look_back(bench.query, 1, handles[1:2])
    DeltaTable(path).restore(second)  # which brings it back
    assert sink.commit(handles[2]) == Committed()
    assert ids(path) == [0, 1, 2]


def test_a_version_that_is_restored_by_a_time_and_that_the_log_no_longer_has_is_older(
    bench: Bench, path: Path
) -> None:
    handles = [bench.committed(rows(epoch), epoch=epoch) for epoch in range(2)]
    DeltaTable(path).restore(made_at(path, 1))
    table = DeltaTable(path)
    table.create_checkpoint()
    for version in (0, 1):
        (path / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(TargetBehindError, match="chk-0 to chk-1 are missing"):
        bench.sink().look_back(bench.query, 1, handles[1:])


def test_a_version_that_is_restored_between_an_entry_and_its_receipt_is_told(
    bench: Bench, path: Path
) -> None:
    handles = [bench.committed(rows(epoch), epoch=epoch) for epoch in range(2)]
    DeltaTable(path).restore(1)
    bench.sink().look_back(bench.query, 0, handles[:1])  # the newest that is complete
    with pytest.raises(TargetBehindError, match="chk-1 is decided, and was in the table"):
        bench.sink().commit(handles[1])
    goes_on = bench.sink(**{"onceonly.target.behind": "go-on"})
    assert goes_on.commit(handles[1]) == AlreadyCommitted()


def test_a_version_that_is_restored_after_the_log_has_forgotten_ours_takes_nothing_back(
    bench: Bench, path: Path
) -> None:
    handle = bench.committed(rows(0))
    write_deltalake(path, pa.table({"id": [1], "text": ["theirs"]}, SCHEMA), mode="append")
    DeltaTable(path).create_checkpoint()
    write_deltalake(path, pa.table({"id": [2], "text": ["wrong"]}, SCHEMA), mode="append")
    DeltaTable(path).restore(2)
    for version in (0, 1):
        (path / "_delta_log" / f"{version:020d}.json").unlink()
    bench.sink().look_back(bench.query, 0, [handle])
    assert bench.sink().newest_epoch(bench.query) == 0
    assert ids(path) == [0, 1]


def test_a_note_that_a_copy_has_brought_back_takes_no_committed_files(bench: Bench, path: Path) -> None:
    handles = [bench.committed(rows(epoch), epoch=epoch) for epoch in range(2)]
    DeltaTable(path).create_checkpoint()
    for version in (0, 1):
        (path / "_delta_log" / f"{version:020d}.json").unlink()
    (path / "onceonly" / "q" / "delta" / "_open" / handles[0].transaction).touch()
    [leftover] = bench.sink().recover(bench.query)
    bench.sink().abort(leftover.handle)
    assert ids(path) == [0, 1]
    assert list(bench.sink().recover(bench.query)) == []


def test_a_table_that_was_made_anew_in_the_same_folder_is_another(bench: Bench, path: Path) -> None:
    before, handle = bench.sink().identity(), bench.prepared(rows(1))
    kept = (path / "onceonly").rename(path.with_name("kept"))
    shutil.rmtree(path)
    DeltaTable.create(path, SCHEMA)
    kept.rename(path / "onceonly")
    assert bench.sink().identity() != before
    assert bench.sink().overlaps(before)
    with pytest.raises(ConfigurationError, match="made anew"):
        bench.sink().commit(handle)
    assert ids(path) == []


def test_versions_are_made_durable_before_the_receipt(
    bench: Bench, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(disk, "sync", lambda path: synced.append(path.name))
    handle = bench.committed(rows(1))
    synced.clear()
    bench.sink().make_durable([handle])
    assert synced == [f"{0:020d}.json", f"{1:020d}.json", "_delta_log"]
    synced.clear()
    sink = bench.sink()
    sink.complete(bench.query, 0, [handle])
    assert synced == ["_open", f"{0:020d}.json", f"{1:020d}.json", "_delta_log"]
    synced.clear()
    sink.complete(bench.query, 0, [handle])
    assert synced == ["_open", "_delta_log"]


def test_on_a_store_nothing_is_asked_to_make_versions_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("the table was opened")

    monkeypatch.setattr(target, "find_table", asked)
    sink = Bench(DeltaSink, "delta", {"path": "s3a://lake/table"}, COLUMNS).sink()
    assert isinstance(sink, DeltaSink)
    sink.sync(0)


def test_a_file_grows_to_its_size_and_the_next_begins(bench: Bench, path: Path) -> None:
    batch = pa.RecordBatch.from_pylist([{"id": n, "text": f"{n:0500d}"} for n in range(20_000)])
    sink, attempt = bench.begin(maxFileSize="100k", compression="none")
    for _ in range(8):
        sink.write(attempt, batch)
    handle = sink.pre_commit(attempt)
    assert handle is not None
    assert len(json.loads(str(handle.data["files"]))) == 2
    bench.sink().commit(handle)
    assert len(ids(path)) == 160_000


PARTS = [
    "plain",
    "with space",
    "a/b",
    "a=b",
    "50%",
    "ünï",
    "x" * 300,
    "__HIVE_DEFAULT_PARTITION__",
    "#?&:'\"{}",
]


def test_partitions_come_back_by_their_values_whatever_these_are(tmp_path: Path) -> None:
    path = tmp_path / "table"
    bench = Bench(
        DeltaSink,
        "delta",
        {"path": str(path), "create": "true", "partitionBy": "part"},
        {"part": "string", "id": "int"},
    )
    values = [*PARTS, None]
    batch = pa.RecordBatch.from_pylist(
        [{"part": value, "id": place} for place, value in enumerate(values)],
        pa.schema([("part", pa.string()), ("id", pa.int32())]),
    )
    handle = bench.committed(batch)
    assert bench.sink().held([handle]) == Held(rows=len(values))
    table = DeltaTable(path)
    found = table.to_pyarrow_table().sort_by("id")
    assert found["part"].to_pylist() == values
    assert len(table.file_uris()) == len(values)
    assert list((path / "onceonly").rglob("part=a%2Fb"))
    assert table.to_pyarrow_table(filters=[("part", "=", "50%")])["id"].to_pylist() == [4]
    # In the log paths are addresses: who decodes them finds the file.
    paths = [unquote(each["add"]["path"]) for each in entry(path, 1) if "add" in each]
    assert len(paths) == len(values)
    assert all((path / each).exists() for each in paths)


def test_numbers_that_are_equal_or_none_have_the_partition_that_each_has_itself(tmp_path: Path) -> None:
    path = tmp_path / "table"
    options = {"path": str(path), "create": "true", "partitionBy": "part"}
    bench = Bench(DeltaSink, "delta", options, {"part": "double", "id": "int"})
    values = [0.0, -0.0, float("nan"), float("inf"), None]
    sink, attempt = bench.begin()
    for first in (0, len(values)):
        batch = {"part": values, "id": range(first, first + len(values))}
        sink.write(
            attempt,
            pa.RecordBatch.from_pydict(batch, pa.schema([("part", pa.float64()), ("id", pa.int32())])),
        )
    handle = sink.pre_commit(attempt)
    assert handle is not None
    bench.sink().commit(handle)
    table = DeltaTable(path)
    found = table.to_pyarrow_table().sort_by("id")
    assert list(map(str, found["part"].to_pylist())) == list(map(str, values)) * 2
    assert len(table.file_uris()) == len(values)


def test_statistics_let_readers_skip_files_and_nothing_else(bench: Bench, path: Path) -> None:
    for epoch, numbers in enumerate(([1, 2], [10, 20])):
        bench.committed(rows(*numbers), epoch=epoch)
    table = DeltaTable(path)
    told = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert sorted(
        (each["num_records"], each["min.id"], each["max.id"], each["null_count.id"]) for each in told
    ) == [
        (2, 1, 2, 0),
        (2, 10, 20, 0),
    ]
    assert table.to_pyarrow_table(filters=pc.field("id") > 15)["id"].to_pylist() == [20]


def test_a_commit_to_a_table_that_is_not_there_waits(bench: Bench, path: Path) -> None:
    handle = bench.prepared(rows(1))
    aside = path.rename(path.with_name("aside"))
    with pytest.raises(UnavailableError, match="no Delta table"):
        bench.sink().commit(handle)
    aside.rename(path)
    assert bench.sink().commit(handle) == Committed()


def test_a_first_epoch_beside_those_of_another_query_is_told(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    for epoch in range(2):
        bench.committed(rows(epoch), epoch)
    bench.check()
    bench.sink().check(replace(bench.query, query="batch-daily-0123456789ab"))
    assert "has written nothing to" not in caplog.text
    bench.sink().check(replace(bench.query, query="q-2"))
    assert "Query q-2, sink delta: this checkpoint has written nothing to " in caplog.text
    assert "others have: query q, sink delta, has come to chk-1, in version 2 at 20" in caplog.text
