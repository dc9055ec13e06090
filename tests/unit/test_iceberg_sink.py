"""The Iceberg sink on a table in a folder: what a snapshot holds, others beside it, what was lost or rolled back."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from tests.unit import iceberg_bench
from tests.unit.loaded_bench import Bench, opened

from onceonly.durable import disk
from onceonly.errors import ConfigurationError, TargetBehindError, UnavailableError
from onceonly.families.loaded import Load
from onceonly.model import AlreadyCommitted, Committed, Handle, Lost, Mode, Unknown
from onceonly.sinks.iceberg import IcebergSink, target

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS = {"id": "bigint", "text": "string"}
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
APP = "onceonly/q/iceberg"


@pytest.fixture
def options(tmp_path: Path) -> Mapping[str, str]:
    options = iceberg_bench.options_of(tmp_path)
    iceberg_bench.make_table(options, SCHEMA)
    return options


@pytest.fixture
def bench(options: Mapping[str, str]) -> Bench:
    return Bench(IcebergSink, "iceberg", options, COLUMNS)


def rows(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": number, "text": f"row {number}"} for number in numbers]


def ids(options: Mapping[str, str]) -> list[int]:
    return sorted(row["id"] for row in iceberg_bench.rows_of(options))


def append(options: Mapping[str, str], number: int) -> None:
    """Write a row as another program does, until it is there."""
    while True:
        try:
            iceberg_bench.opened(options).append(pa.table({"id": [number], "text": ["theirs"]}, SCHEMA))
        except CommitFailedException:
            continue
        return


def expire(options: Mapping[str, str], snapshot: int) -> None:
    """Have a snapshot expire as Spark does: what stands on it goes on to name it, which pyiceberg takes away."""
    table = iceberg_bench.opened(options)
    above = {each.snapshot_id for each in table.snapshots() if each.parent_snapshot_id == snapshot}
    table.maintenance.expire_snapshots().by_id(snapshot).commit()
    place = Path(iceberg_bench.opened(options).metadata_location.removeprefix("file://"))
    told = json.loads(place.read_text(encoding="utf-8"))
    for each in told["snapshots"]:
        if each["snapshot-id"] in above:
            each["parent-snapshot-id"] = snapshot
    place.write_text(json.dumps(told), encoding="utf-8")


def place_of(bench: Bench, handle: Handle) -> Path:
    return Path(str(bench.check()["home"])) / Load.of(handle).folder


def test_a_check_reads_the_table_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.committed(rows(1))
    tables = opened(target, monkeypatch)
    assert bench.check()["newest"] == 0
    assert len(tables) == 1


def test_an_epoch_is_one_snapshot_and_a_property_names_its_attempts(
    bench: Bench, options: Mapping[str, str]
) -> None:
    handles = [bench.prepared(rows(slot), epoch=3, slot=slot) for slot in range(3)]
    assert bench.sink().commit_many(handles) == [Committed()] * 3
    table = iceberg_bench.opened(options)
    [snapshot] = table.snapshots()
    assert snapshot.summary is not None
    assert (snapshot.summary["onceonly.app"], snapshot.summary["onceonly.epoch"]) == (APP, "3")
    note = json.loads(table.properties[APP])
    assert (note["epoch"], note["attempts"]) == (3, [handle.transaction for handle in handles])
    assert ids(options) == [0, 1, 2]
    assert bench.sink().commit_many(handles) == [AlreadyCommitted()] * 3
    assert len(iceberg_bench.opened(options).snapshots()) == 1


def test_what_is_noted_does_not_grow_with_the_epochs(bench: Bench, options: Mapping[str, str]) -> None:
    for epoch in range(3):
        handle = bench.committed(rows(epoch), epoch=epoch)
    note = json.loads(iceberg_bench.opened(options).properties[APP])
    assert note == {"epoch": 2, "attempts": [handle.transaction], "void": []}


def test_a_second_entry_of_an_epoch_keeps_what_the_first_has_noted(
    bench: Bench, options: Mapping[str, str]
) -> None:
    handles = [bench.prepared(rows(slot), slot=slot) for slot in range(2)]
    shutil.rmtree(place_of(bench, handles[1]))
    assert [type(each) for each in bench.sink().commit_many(handles)] == [Committed, Lost]
    again = bench.prepared(rows(1), slot=1, mode=Mode.TENTATIVE)
    assert bench.sink().commit(again) == Committed()
    assert [type(each) for each in bench.sink().commit_many([*handles, again])] == [
        AlreadyCommitted,
        Lost,
        AlreadyCommitted,
    ]
    assert ids(options) == [0, 1]


def test_files_that_are_removed_in_the_moment_of_the_entry_are_taken_out_again(
    bench: Bench, options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    handles = [bench.prepared(rows(slot), slot=slot) for slot in range(2)]
    real = target.enter

    def orphans_removed(*more: Any, **named: Any) -> None:  # noqa: ANN401
        real(*more, **named)
        shutil.rmtree(place_of(bench, handles[0]), ignore_errors=True)

    monkeypatch.setattr(target, "enter", orphans_removed)
    sink = bench.sink()
    assert [type(each) for each in sink.commit_many(handles)] == [Lost, Committed]
    assert [type(each) for each in bench.sink().commit_many(handles)] == [Lost, AlreadyCommitted]
    assert ids(options) == [1]
    again = bench.prepared(rows(0), mode=Mode.TENTATIVE)
    assert sink.commit(again) == Committed()
    assert ids(options) == [0, 1]
    later = bench.prepared(rows(2), epoch=1)
    sink.rehearse([later], {})
    shutil.rmtree(place_of(bench, again))
    with pytest.raises(TargetBehindError, match="names 1 file of chk-0"):
        sink.rehearse([later], {})


def test_each_of_twenty_commits_beside_other_writers_comes_through_once(
    bench: Bench, options: Mapping[str, str]
) -> None:
    def others() -> None:
        for number in range(5):
            append(options, 1000 + number)

    with ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(others)
        for epoch in range(20):
            assert bench.sink().commit(bench.prepared(rows(epoch), epoch=epoch)) == Committed()
        theirs.result()
    assert ids(options) == [*range(20), *range(1000, 1005)]


def test_two_drivers_with_the_same_handle_in_hand_make_one_snapshot(
    bench: Bench, options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = bench.prepared(rows(1))
    real = target.enter

    def overtaken(*more: Any, **named: Any) -> None:  # noqa: ANN401
        monkeypatch.setattr(target, "enter", real)
        assert bench.sink().commit(handle) == Committed()
        real(*more, **named)

    monkeypatch.setattr(target, "enter", overtaken)
    assert bench.sink().commit(handle) == AlreadyCommitted()
    assert ids(options) == [1]


def test_a_driver_that_had_a_lost_file_in_hand_cannot_commit_it_any_more(
    bench: Bench, options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = bench.prepared(rows(1))
    place = place_of(bench, handle)
    real = target.enter

    def late(*more: Any, **named: Any) -> None:  # noqa: ANN401
        monkeypatch.setattr(target, "enter", real)
        kept = place.rename(place.with_name("kept"))
        assert isinstance(bench.sink().commit(handle), Lost)
        kept.rename(place)
        real(*more, **named)

    monkeypatch.setattr(target, "enter", late)
    assert isinstance(bench.sink().commit(handle), Lost)
    assert ids(options) == []


def test_a_commit_whose_answer_was_lost_is_found_in_the_table(
    bench: Bench, options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = bench.prepared(rows(1))
    real = Table._do_commit

    def unsure(self: Table, *args: Any, **more: Any) -> None:  # noqa: ANN401
        real(self, *args, **more)
        raise OSError("connection reset")

    with monkeypatch.context() as patch:
        patch.setattr(Table, "_do_commit", unsure)
        with pytest.raises(UnavailableError, match="does not answer"):
            bench.sink().commit(handle)
    assert bench.sink().commit(handle) == AlreadyCommitted()
    assert ids(options) == [1]


def test_snapshots_that_expired_take_no_outcome_with_them(bench: Bench, options: Mapping[str, str]) -> None:
    handle = bench.committed(rows(1))
    append(options, 2)
    table = iceberg_bench.opened(options)
    table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit()
    assert len(iceberg_bench.opened(options).snapshots()) == 1
    assert bench.sink().commit(handle) == AlreadyCommitted()
    bench.sink().look_back(bench.query, 0, [handle])
    assert ids(options) == [1, 2]


def test_a_handle_of_an_older_epoch_than_the_newest_is_not_guessed(
    bench: Bench, options: Mapping[str, str]
) -> None:
    handles = [bench.committed(rows(epoch), epoch=epoch) for epoch in range(2)]
    assert isinstance(bench.sink().commit(handles[0]), Unknown)
    bench.sink().abort(handles[0])
    assert ids(options) == [0, 1]


def test_a_table_that_was_rolled_back_is_told_with_the_epochs_that_are_missing(
    bench: Bench, options: Mapping[str, str]
) -> None:
    handles = [bench.committed(rows(epoch), epoch=epoch) for epoch in range(3)]
    bench.sink().look_back(bench.query, 2, handles[-1:])
    table = iceberg_bench.opened(options)
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()
    with pytest.raises(TargetBehindError, match="chk-1 to chk-2 are missing"):
        bench.sink().look_back(bench.query, 2, handles[-1:])
    bench.sink(**{"onceonly.target.behind": "go-on"}).look_back(bench.query, 2, handles[-1:])


def test_a_rollback_between_an_entry_and_its_receipt_is_told(
    bench: Bench, options: Mapping[str, str]
) -> None:
    handles = [bench.committed(rows(epoch), epoch=epoch) for epoch in range(2)]
    table = iceberg_bench.opened(options)
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()
    bench.sink().look_back(bench.query, 0, handles[:1])  # the newest that is complete
    with pytest.raises(TargetBehindError, match="chk-1 is decided, and was in the table"):
        bench.sink().commit(handles[1])
    goes_on = bench.sink(**{"onceonly.target.behind": "go-on"})
    assert goes_on.commit(handles[1]) == AlreadyCommitted()


def test_a_tagged_snapshot_below_one_that_expired_is_not_told_as_rolled_back(
    bench: Bench, options: Mapping[str, str]
) -> None:
    handle = bench.committed(rows(0))
    table = iceberg_bench.opened(options)
    table.manage_snapshots().create_tag(table.snapshots()[0].snapshot_id, "evening").commit()
    for number in (1, 2):
        append(options, number)
    expire(options, iceberg_bench.opened(options).snapshots()[1].snapshot_id)
    assert len(iceberg_bench.opened(options).snapshots()) == 2
    bench.sink().look_back(bench.query, 0, [handle])
    assert bench.sink().newest_epoch(bench.query) == 0
    assert ids(options) == [0, 1, 2]


def test_a_rollback_is_told_also_where_what_it_went_back_to_has_expired(
    bench: Bench, options: Mapping[str, str]
) -> None:
    append(options, 1)
    handles = [bench.committed(rows(10 + epoch), epoch=epoch) for epoch in range(2)]
    table = iceberg_bench.opened(options)
    first, *_, last = (each.snapshot_id for each in table.snapshots())
    table.manage_snapshots().create_tag(last, "evening").commit()
    iceberg_bench.opened(options).manage_snapshots().rollback_to_snapshot(first).commit()
    append(options, 2)
    expire(options, first)
    with pytest.raises(TargetBehindError, match="chk-0 to chk-1 are missing"):
        bench.sink().look_back(bench.query, 1, handles[-1:])
    assert ids(options) == [1, 2]


def test_a_note_that_a_copy_has_brought_back_takes_no_committed_files(
    bench: Bench, options: Mapping[str, str]
) -> None:
    handles = [bench.committed(rows(epoch), epoch=epoch) for epoch in range(2)]
    (Path(str(bench.check()["home"])) / APP / "_open" / handles[0].transaction).touch()
    [leftover] = bench.sink().recover(bench.query)
    bench.sink().abort(leftover.handle)
    assert ids(options) == [0, 1]
    assert list(bench.sink().recover(bench.query)) == []


def test_a_rollback_under_a_query_stops_it_before_a_decision(
    bench: Bench, options: Mapping[str, str]
) -> None:
    sink = bench.sink()
    for epoch in range(2):
        assert sink.commit(bench.prepared(rows(epoch), epoch=epoch)) == Committed()
    handle = bench.prepared(rows(2), epoch=2)
    sink.rehearse([handle], {})
    first, second = (each.snapshot_id for each in iceberg_bench.opened(options).snapshots())
    iceberg_bench.opened(options).manage_snapshots().rollback_to_snapshot(first).commit()
    for step in (lambda: sink.rehearse([handle], {}), lambda: sink.commit_many([handle])):
        with pytest.raises(TargetBehindError, match="has forgotten chk-1"):
            step()
    iceberg_bench.opened(options).manage_snapshots().set_current_snapshot(second).commit()
    assert sink.commit(handle) == Committed()


def test_a_restored_catalogue_is_told_with_the_epochs_that_are_missing(
    bench: Bench, options: Mapping[str, str], tmp_path: Path
) -> None:
    handles = [bench.committed(rows(0))]
    shutil.copy(tmp_path / "catalog.db", tmp_path / "backup.db")
    handles.append(bench.committed(rows(1), epoch=1))
    shutil.copy(tmp_path / "backup.db", tmp_path / "catalog.db")
    with pytest.raises(TargetBehindError, match="chk-1 to chk-1 are missing"):
        bench.sink().look_back(bench.query, 1, handles[-1:])


def test_a_catalogue_that_is_restored_before_the_first_decision_of_a_run_takes_no_epoch(
    bench: Bench, tmp_path: Path
) -> None:
    bench.committed(rows(0))
    shutil.copy(tmp_path / "catalog.db", tmp_path / "backup.db")
    bench.committed(rows(1), epoch=1)
    facts = bench.check()
    handle = bench.prepared(rows(2), epoch=2)
    bench.sink().rehearse([handle], facts)
    shutil.copy(tmp_path / "backup.db", tmp_path / "catalog.db")
    with pytest.raises(TargetBehindError, match="has forgotten chk-1"):
        bench.sink().rehearse([handle], facts)


def test_a_table_that_was_made_anew_under_the_same_name_is_another(
    bench: Bench, options: Mapping[str, str]
) -> None:
    sink, handle = bench.sink(), bench.prepared(rows(1))
    before = sink.identity()
    place = place_of(bench, handle)
    with iceberg_bench.catalog_of(options) as catalog:
        catalog.drop_table(iceberg_bench.NAME)
        catalog.create_table(iceberg_bench.NAME, SCHEMA)
    assert place.exists()
    assert bench.sink().identity() != before
    assert bench.sink().overlaps(before)
    with pytest.raises(ConfigurationError, match="made anew"):
        bench.sink().commit(handle)
    assert ids(options) == []


def test_what_the_catalogue_names_is_durable_before_the_receipt(
    bench: Bench, options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = bench.committed(rows(1))
    synced: list[str] = []
    monkeypatch.setattr(disk, "sync", lambda path: synced.append(path.name))
    bench.sink().complete(bench.query, 0, [handle])
    table = iceberg_bench.opened(options)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifests = [each.manifest_path for each in snapshot.manifests(table.io)]
    named = [table.metadata_location, snapshot.manifest_list, *manifests]
    assert synced == ["_open", *(Path(each).name for each in named), "metadata"]
    synced.clear()
    bench.sink().make_durable([handle])
    assert synced == [*(Path(each).name for each in named), "metadata"]


def test_a_secret_of_the_catalogue_is_shown_nowhere(options: Mapping[str, str]) -> None:
    from onceonly.options import public_options

    given = {**options, "catalog.credential": "geheim", "catalog.uri": "postgresql://me:geheim@host/db"}
    assert "geheim" not in str(public_options(IcebergSink.declared, given))
    sink = IcebergSink({**given, "catalog.type": "nonsense"})
    with pytest.raises(ConfigurationError, match="makes nothing of") as raised:
        sink.identity()
    assert "geheim" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_first_epoch_beside_those_of_another_query_is_told(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    for epoch in range(2):
        bench.committed(rows(epoch), epoch)
    bench.check()
    bench.sink().check(replace(bench.query, query="batch-daily-0123456789ab"))
    assert "has written nothing to" not in caplog.text
    bench.sink().check(replace(bench.query, query="q-2"))
    assert "Query q-2, sink iceberg: this checkpoint has written nothing to " in caplog.text
    assert "others have: query q, sink iceberg, has come to chk-1. If that was this query" in caplog.text
