"""Which rows no file can hold is known before they are written, one by one."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from tests.unit.files_bench import Files

from onceonly.errors import RecordRefusedError
from onceonly.sinks.files.formats.refusals import part
from onceonly.sinks.files.objects import ObjectFiles
from onceonly.sinks.files.paths import FILE_BYTES_MAX, RemotePath, Room, folder_of
from onceonly.sinks.files.sink import FilesSink
from onceonly.sinks.files.store import LocalStore

if TYPE_CHECKING:
    from pathlib import Path


def refused(folder: Path, columns: dict[str, Any], **options: str) -> list[tuple[int, str]]:
    sink = FilesSink({"path": str(folder), **options})
    batch = pa.record_batch(columns)
    taken, found = part(batch, sink._files)
    assert taken.num_rows + len(found) == batch.num_rows
    assert all(not each.why.startswith("a row:") for each in found)
    return [(each.row, each.code) for each in found]


def test_nothing_is_refused_and_nothing_copied_where_all_can_be_written(tmp_path: Path) -> None:
    batch = pa.record_batch({"value": ["a", "b"]})
    taken, found = part(batch, FilesSink({"path": str(tmp_path), "format": "json"})._files)
    assert taken is batch
    assert found == []


def test_a_value_that_no_folder_can_be_named_by_is_refused_alone(tmp_path: Path) -> None:
    days = ["a", "x" * 300, "b", "__HIVE_DEFAULT_PARTITION__", None]
    found = refused(tmp_path, {"n": [1, 2, 3, 4, 5], "day": days}, format="parquet", partitionBy="day")
    assert found == [(1, "NO_FOLDER"), (3, "NO_FOLDER")]


class ShortNames(LocalStore):
    """A file system that encrypts names, such as eCryptfs, which takes 143 bytes."""

    def room(self, target: Path) -> Room:
        return Room(name=143)


def test_a_folder_name_that_this_file_system_does_not_take_is_refused_before_it_is_decided(
    tmp_path: Path,
) -> None:
    short, long = "x" * (143 - len("day=")), "x" * (144 - len("day="))
    bench = Files(tmp_path / "out", store=ShortNames())
    bench.prepared({"id": [1], "day": [short]})
    with pytest.raises(RecordRefusedError, match="144 bytes, and 143 is the most"):
        bench.prepared({"id": [2], "day": [long]}, slot=1)
    sink, attempt = bench.begin(slot=2, gives_back=True)
    refused = sink.write(attempt, pa.record_batch({"id": [1, 2], "day": [short, long]}))
    assert [(each.row, each.code) for each in refused] == [(1, "NO_FOLDER")]


def test_how_long_a_name_may_be_is_what_the_file_system_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LocalStore().room(tmp_path) == Room(name=255)
    monkeypatch.setattr("os.pathconf", lambda path, what: {("PC_NAME_MAX", tmp_path): 143}[what, path])
    assert LocalStore().room(tmp_path) == Room(name=143)


def test_in_a_bucket_partition_folders_are_no_longer_than_a_key_may_be() -> None:
    columns, values = [f"c{number}" for number in range(6)], ["x" * 200] * 6
    assert folder_of(columns, values, who="a row")  # of a folder
    target = "lake/events"
    room = ObjectFiles(cast("Any", None), cast("Any", None)).room(RemotePath(f"s3://bucket/{target}"))
    with pytest.raises(RecordRefusedError, match="partition by fewer or shorter columns"):
        folder_of(columns, values, who="a row", room=room)
    longest = folder_of(["c"], ["x" * 200], who="a row", room=room)
    key = f"{target}/{'y' * room.folders}/{'z' * FILE_BYTES_MAX}"
    assert len(longest) < room.folders
    assert len(key) == 1024


@pytest.mark.parametrize(
    ("form", "columns", "rows"),
    [
        ("text", {"value": ["a", "b\nc", "d", "\r"]}, [1, 3]),
        ("csv", {"value": ["a", None, "b"]}, [1]),
        ("json", {"day": pa.array([1, 4_000_000, 2], pa.date32())}, [1]),
        ("parquet", {"day": pa.array([1, 4_000_000, 2], pa.date32())}, []),
    ],
)
def test_a_value_that_the_format_cannot_hold_is_refused_alone(
    tmp_path: Path, form: str, columns: dict[str, Any], rows: list[int]
) -> None:
    assert refused(tmp_path, columns, format=form) == [(row, "NO_TEXT") for row in rows]


def test_what_spark_would_not_read_back_from_orc_is_refused_alone(tmp_path: Path) -> None:
    days = pa.array([date(1582, 10, 14), date(1582, 10, 15), None, date(2026, 1, 1)])
    times = pa.array([0, 1, None, -1], pa.timestamp("us", "Europe/Berlin"))
    assert refused(tmp_path, {"day": days, "at": times}, format="orc") == [(0, "NO_TEXT"), (3, "NO_TEXT")]
    nested = pa.array(
        [[{"at": 0}], None, [{"at": 1}, {"at": -1}], []], pa.list_(pa.struct([("at", times.type)]))
    )
    assert refused(tmp_path, {"deep": nested}, format="orc") == [(2, "NO_TEXT")]
    keyed = pa.array([[("a", -1)], [("b", None)], None, [("c", 5)]], pa.map_(pa.utf8(), times.type))
    assert refused(tmp_path, {"keyed": keyed}, format="orc") == [(0, "NO_TEXT")]


def test_folders_and_values_are_looked_at_both(tmp_path: Path) -> None:
    columns = {
        "value": ["a\n", "b", "c"],
        "day": [date(2026, 1, 1), None, date(2026, 1, 2)],
        "who": ["x", "y" * 300, "z"],
    }
    found = refused(tmp_path, columns, format="text", partitionBy="day,who")
    assert found == [(0, "NO_TEXT"), (1, "NO_FOLDER")]


@pytest.mark.parametrize(
    ("other", "shares"), [("out", True), ("out/letters", True), (".", True), ("out2", False)]
)
def test_letters_may_not_lie_where_readers_of_the_rows_look(tmp_path: Path, other: str, shares: bool) -> None:  # noqa: FBT001  a parameter
    (tmp_path / "out").mkdir()
    sink = FilesSink({"path": str(tmp_path / "out")})
    assert sink.overlaps({"path": str((tmp_path / other).resolve())}) is shares
