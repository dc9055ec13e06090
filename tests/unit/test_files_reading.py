"""Reading whole epochs without Spark: names as patterns, what is not ours, and the page's blocks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.unit.files_bench import Files, quick, rows

import onceonly
from onceonly import files
from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.sinks.files.manifests import reading

sys.path.insert(0, str(Path(__file__).parents[1] / "acceptance"))

from doc_blocks import extract

__all__ = ["quick"]  # a fixture


class Recorder:
    """Stands where the session, its reader and a frame would. Files vanish while it lists them."""

    def __init__(self) -> None:
        self.read = self

    def format(self, name: str) -> Recorder:
        return self

    def schema(self, columns: str) -> Recorder:
        return self

    def option(self, name: str, value: str) -> Recorder:
        return self

    def load(self, names: list[str]) -> Recorder:
        self.names = names
        return self

    def inputFiles(self) -> list[str]:  # noqa: N802  Spark's
        return self.names[1:]

    def createDataFrame(self, data: list[object], schema: str) -> tuple[list[object], str]:  # noqa: N802  Spark's
        return data, schema


@pytest.fixture
def bench(quick: Path) -> Files:
    return Files(quick / "out")


def test_a_name_becomes_the_pattern_of_itself_only() -> None:
    assert reading.glob_of("/a b/é:%7B/part-1.json") == "/a b/é:%7B/part-1.json"
    assert reading.glob_of("/a[1] {b} *?\\/p=}") == "/a\\[1\\] \\{b\\} \\*\\?\\\\/p=\\}"
    with pytest.raises(ConfigurationError, match="a colon, and one of"):
        reading.glob_of("/a:b/p=}")


def test_files_say_how_their_days_are_counted(bench: Files) -> None:
    bench.finish(0, bench.prepared(rows(1)))
    (path,) = bench.visible()
    assert pq.read_metadata(path).metadata[b"org.apache.spark.version"] == b"3.0.0"


def test_what_is_no_folder_among_the_epochs_is_passed_over(bench: Files) -> None:
    bench.finish(0, bench.prepared(rows(1)))
    epochs = bench.target / "_onceonly" / "epochs"
    (epochs / "notes.txt").write_text("x")
    (epochs / bench.query / "notes.txt").write_text("x")
    assert [epoch.rows for epoch in files.committed(str(bench.target))] == [1]


def test_a_listed_file_that_is_gone_fails_by_name_or_is_skipped_as_asked(bench: Files) -> None:
    bench.finish(7, bench.prepared(rows(1), epoch=7))
    gone = bench.visible()[0]
    gone.unlink()
    with pytest.raises(UnavailableError, match="listed in chk-7 of query q-1") as caught:
        files.read(Recorder(), str(bench.target))
    assert str(gone) in str(caught.value)
    assert files.read(Recorder(), str(bench.target), missing="skip") == ([], "`id` bigint, `day` string")
    with pytest.raises(ConfigurationError, match="neither 'fail' nor 'skip'"):
        files.read(Recorder(), str(bench.target), missing="ignore")  # type: ignore[arg-type]


def test_without_rows_the_columns_are_those_of_all_layouts(bench: Files) -> None:
    bench.sink().check(bench.context)
    for n in range(4):  # keys of layouts are hashes: some order would be right by chance
        bench.columns = (("id", "bigint"), ("day", "string"), (f"c{n}", "int"))
        bench.sink().check(bench.context)
    _, schema = files.read(Recorder(), str(bench.target))
    assert sorted(schema.split(", ")) == sorted(
        ["`id` bigint", "`day` string", *(f"`c{n}` int" for n in range(4))]
    )
    bench.columns = (("id", "string"), ("day", "string"))
    bench.sink().check(bench.context)
    with pytest.raises(ConfigurationError, match="The column id was written as"):
        files.read(Recorder(), str(bench.target))


def test_the_pages_incremental_read_takes_each_epoch_of_each_query_once(bench: Files) -> None:
    code = extract("docs/how-to/read-files.md", "new").replace("/data/orders", str(bench.target))
    names: dict[str, Any] = {"onceonly": onceonly}
    other = Files(bench.target, query="q-2")
    for each, epochs in ((bench, range(3)), (other, range(1))):
        for epoch in epochs:
            each.finish(epoch, each.prepared(rows(epoch), epoch=epoch))
    exec(code, names)  # noqa: S102  a block of the page
    assert [(epoch.query, epoch.epoch) for epoch in names["new"]] == [
        ("q-1", 0), ("q-1", 1), ("q-1", 2), ("q-2", 0),
    ]  # fmt: skip
    first, _, again = code.partition("\n")
    assert first.startswith("taken")
    bench.finish(3, bench.prepared(rows(3), epoch=3))
    other.finish(1, other.prepared(rows(4), epoch=1))
    for wanted in ([("q-1", 3), ("q-2", 1)], []):
        exec(again, names)  # noqa: S102  the same, with what was taken kept
        assert [(epoch.query, epoch.epoch) for epoch in names["new"]] == wanted


def test_a_frame_of_other_files_than_are_listed_is_refused(bench: Files) -> None:
    bench.finish(0, bench.prepared(rows(1, 2)))
    for missing in ("fail", "skip"):
        with pytest.raises(UnavailableError, match=r"Spark sees 1 files of .* where 2 are listed"):
            files.read(Recorder(), str(bench.target), missing=missing)
