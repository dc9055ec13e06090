"""Rows as lines, batches by partition, and manifests that are damaged: without Spark."""

from __future__ import annotations

import bz2
import gzip
import json
import zlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.unit.files_bench import Files, quick, rows

from onceonly import files
from onceonly.errors import ConfigurationError, LogError, RecordRefusedError, UnavailableError
from onceonly.sinks.files import options, partitions, writer
from onceonly.sinks.files.formats.lines import csv_lines, json_lines, shortest, text_lines
from onceonly.sinks.files.formats.texts import Texts
from onceonly.sinks.files.manifests import ledger, manifest
from onceonly.sinks.files.store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["quick"]  # a fixture


def batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.record_batch(columns)


def test_json_leaves_nulls_out_and_writes_times_in_utc() -> None:
    moment = datetime(2024, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)
    given = batch(
        a=pa.array([None, 1]),
        t=pa.array([moment] * 2, pa.timestamp("us", "Europe/Berlin")),
        s=pa.array([{"x": None, "y": [None, float("nan")]}] * 2),
        f=pa.array([0.1, float("inf")], pa.float32()),
    )
    lines = [json.loads(line) for line in json_lines(given, who="").splitlines()]
    assert lines[0] == {"t": "2024-01-01T00:00:00.001000Z", "s": {"y": [None, "NaN"]}, "f": 0.1}
    assert lines[1] == {"a": 1, **lines[0], "f": "Infinity"}


def test_shortest_is_the_same_single_precision_number() -> None:
    for value in (0.1, 16777216.0, 1e-45, 3.4028235e38, 1 / 3):
        single = pa.array([value], pa.float32())
        assert pa.array([float(shortest(single[0].as_py()))], pa.float32()) == single


def test_a_text_line_is_a_row() -> None:
    assert text_lines(batch(v=pa.array(["a", None, ""])), who="") == b"a\n\n\n"
    for value in ("a\nb", "a\rb"):
        with pytest.raises(RecordRefusedError, match="the column v has a line break"):
            text_lines(batch(v=pa.array([value])), who="")


def test_a_csv_line_is_a_row() -> None:
    given = batch(a=pa.array([None, ""]), b=pa.array([1, None]))
    assert csv_lines(given, who="") == b',1\n"",\n'
    with pytest.raises(RecordRefusedError, match="the only column a is null or empty"):
        csv_lines(given.select(["a"]), who="")
    assert csv_lines(given.select(["a"]), Texts(null="NA"), who="") == b'NA\n""\n'
    with pytest.raises(RecordRefusedError, match="the only column a is null or empty"):
        csv_lines(given.select(["a"]), Texts(null="NA", empty=""), who="")


@pytest.mark.parametrize("sep", ["\t", " ", "\x01"])
def test_a_csv_line_of_nothing_but_blanks_is_no_row(sep: str) -> None:
    """Spark's reader trims a line to see whether there is one, unless it is asked for line breaks in values."""
    given = batch(a=pa.array([None, "x", " "], pa.string()), b=pa.array([None, None, None], pa.int32()))
    with pytest.raises(RecordRefusedError, match="all values of a row are null or empty") as caught:
        csv_lines(given, Texts(sep=sep), who="")
    assert "another sep" in caught.value.next_step
    assert csv_lines(given.slice(1), Texts(sep=sep), who="") == f'x{sep}\n" "{sep}\n'.encode()
    assert csv_lines(given.slice(0, 1), Texts(sep=sep, null="-"), who="") == f"-{sep}-\n".encode()
    assert csv_lines(given.slice(0, 1), who="") == b",\n"
    control = batch(a=pa.array(["\x02", "x\x02"]))
    assert csv_lines(control, Texts(sep=sep), who="") == b'"\x02"\n"x\x02"\n', "as a blank is"
    # A blank as the text of null makes no line either.
    with pytest.raises(RecordRefusedError, match="the only column a"):
        csv_lines(given.slice(0, 1).select(["a"]), Texts(null=" "), who="")


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        (Texts(), '"a\\"b",a\\b,"","x,y",,-1.5,true\n'),
        (Texts(quote_all=True), '"a\\"b","a\\\\b","","x,y","","-1.5","true"\n'),
        (Texts(quote="'", escape="'"), "a\"b,a\\b,'','x,y',,-1.5,true\n"),
        (Texts(escape='"'), '"a""b",a\\b,"","x,y",,-1.5,true\n'),
        (Texts(null="N,A", empty=""), '"a\\"b",a\\b,,"x,y","N,A",-1.5,true\n'),
        (Texts(sep="-", null='"N"'), '"a\\"b"-a\\b-""-x,y-"N"-"-1.5"-true\n'),
        (Texts(sep="r"), '"a\\"b"ra\\br""rx,yrr-1.5r"true"\n'),
    ],
)
def test_values_are_quoted_where_they_need_it(texts: Texts, line: str) -> None:
    given: list[Any] = ['a"b', "a\\b", "", "x,y", None, -1.5, True]
    columns = {
        f"c{place}": pa.array([value], None if value is not None else pa.int32())
        for place, value in enumerate(given)
    }
    assert csv_lines(batch(**columns), texts, who="").decode() == line


def test_a_csv_value_that_begins_like_a_file_is_quoted() -> None:
    assert csv_lines(batch(a=pa.array(["\ufeffx", "x\ufeff"])), who="").decode() == '"\ufeffx"\nx\ufeff\n'


def test_times_by_a_pattern_are_in_the_columns_zone() -> None:
    moment = datetime(2024, 7, 31, 22, 30, 0, 123456, tzinfo=UTC)
    given = batch(
        t=pa.array([moment], pa.timestamp("us", "Europe/Berlin")),
        s=pa.array([{"d": moment.date(), "gone": None}]),
        in_list=pa.array([[moment]], pa.list_(pa.timestamp("us", "Europe/Berlin"))),
    )
    texts = Texts.of(
        {
            option.name: None if option.default is None else option.read(option.default)
            for option in options.DECLARED
        }
        | {"timestampFormat": "d.M.yy hh:mm a S[xx]", "dateFormat": "MMM", "ignoreNullFields": False}
    )
    assert json_lines(given, texts, who="") == (
        b'{"t":"1.8.24 12:30 AM 1+0200","s":{"d":"Jul","gone":null},"in_list":["1.8.24 12:30 AM 1+0200"]}\n'
    )


@pytest.mark.parametrize("render", [json_lines, csv_lines])
def test_what_has_no_text_is_refused_by_column(render: object) -> None:
    late = pa.array([2**60], pa.int64()).cast(pa.timestamp("us"))
    with pytest.raises(RecordRefusedError, match="slot 7: a value of the column late"):
        render(batch(late=late), who="slot 7")  # type: ignore[operator]
    broken = pa.Array.from_buffers(
        pa.utf8(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]
    )
    with pytest.raises(RecordRefusedError, match="slot 7: a value of the column broken"):
        render(batch(broken=broken), who="slot 7")  # type: ignore[operator]
    with pytest.raises(RecordRefusedError, match="slot 7: a value of the partition column broken"):
        list(partitions.split(batch(a=late, broken=broken), ["broken"], who="slot 7"))


def test_split_gives_every_row_to_its_folder_once() -> None:
    given = batch(
        n=pa.array(range(100)), a=pa.array([n % 3 for n in range(100)]), b=pa.array(["x", None] * 50)
    )
    found = dict(partitions.split(given, ["B", "a"], who=""))
    assert len(found) == 6
    for folder, part in found.items():
        assert part.schema.names == ["n"]
        b, a = (piece.partition("=")[2] for piece in folder.split("/"))
        for n in part["n"].to_pylist():
            assert a == str(n % 3)
            assert b == ("x" if n % 2 == 0 else "__HIVE_DEFAULT_PARTITION__")
    assert sum(part.num_rows for part in found.values()) == 100
    with pytest.raises(ConfigurationError, match="day of partitionBy"):
        list(partitions.split(given, ["day"], who=""))


def test_many_partition_columns_of_many_values_are_told_apart() -> None:
    # 500 to the power of 8 does not fit into 64 bits.
    columns = {f"k{power}": pa.array([n * (2 * power + 1) % 500 for n in range(500)]) for power in range(8)}
    given = batch(n=pa.array(range(500)), **columns)
    found = list(partitions.split(given, list(columns), who=""))
    assert len(found) == 500
    for folder, part in found:
        (n,) = part["n"].to_pylist()
        assert folder == "/".join(f"{name}={column[n]}" for name, column in columns.items())


def test_the_folder_of_null_is_refused_where_its_name_is_too_long() -> None:
    name = "c" * 230
    assert dict(partitions.split(batch(n=pa.array([1]), **{name: pa.array(["v"])}), [name], who=""))
    with pytest.raises(RecordRefusedError, match="257 bytes, and 255 is the most"):
        list(
            partitions.split(batch(n=pa.array([1]), **{name: pa.array([None], pa.string())}), [name], who="")
        )


def test_a_damaged_manifest_is_named_and_never_read_in_part(quick: Path) -> None:
    bench = Files(quick)
    bench.finish(0, bench.prepared(rows(1)))
    path = next(quick.rglob("*.manifest"))
    whole = path.read_bytes()
    newer = whole.replace(b'"version":1', b'"version":2')
    for data in (b"", whole[:-1], whole.replace(b"day", b"dax"), b"{}\n" + whole, newer, whole + b"\n{}"):
        path.write_bytes(data)
        with pytest.raises(LogError, match=path.name):
            files.committed(str(quick))
    layout = next(quick.rglob("*.layout"))
    path.write_bytes(layout.read_bytes())
    with pytest.raises(LogError, match="a file was moved by hand"):
        files.committed(str(quick))


def test_a_hundred_thousand_epochs_are_a_few_files(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MERGED", 5)  # the same tree, four levels deep, in a thousand epochs
    kept = ledger.Ledger(LocalStore(), quick)
    every = [
        manifest.Manifest(epoch=2 * n, layout="l", files=(manifest.DataFile(f"f{n}", 1, 1, "c"),))
        for n in range(1000)
    ]
    most = 0
    for each in every:
        kept.put(each)
        most = max(most, len(list(quick.iterdir())))
    assert kept.manifests() == every
    assert kept.newest() == 1998
    assert most < 5 * 2 * 5
    kept.put(every[0])
    kept.put(every[-1])
    with pytest.raises(LogError, match="other files for chk-7"):
        kept.put(manifest.Manifest(epoch=7, layout="l", files=every[0].files))
    assert kept.manifests() == every


def put_all(folder: Path, sizes: list[int]) -> ledger.Ledger:
    """Put an epoch for each number, with so many files."""
    kept = ledger.Ledger(LocalStore(), folder)
    for epoch, size in enumerate(sizes):
        files_of = tuple(manifest.DataFile(f"f{epoch}-{n}", 1, 1, "c") for n in range(size))
        kept.put(manifest.Manifest(epoch=epoch, layout="l", files=files_of))
    return kept


def test_no_merged_file_grows_beyond_its_limit_and_large_ones_do_not_stop_the_rest(
    quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MERGED", 3)
    monkeypatch.setattr(ledger, "MERGED_BYTES_MAX", 2000)
    kept = put_all(quick, [200, 1, 1, 1, 150, 90, *[1] * 60])
    assert [each.epoch for each in kept.manifests()] == list(range(66))
    parts = [(part, (quick / part.name).stat().st_size) for part in kept.standing()]
    assert all(part.level == 0 or size <= 2000 for part, size in parts)
    assert {part.first for part, size in parts if size > 1500 and part.level == 0} == {0, 4, 5}
    assert len(parts) < 30
    assert max(part.level for part, _ in parts) >= 2


def test_merging_that_fails_fails_no_epoch(
    quick: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ledger, "MERGED", 2)
    kept = put_all(quick, [1, 1, 1])
    oldest = next(path for path in quick.iterdir() if path.name.endswith(f"{0:020d}.manifest"))
    whole = oldest.read_bytes()
    oldest.write_bytes(whole[:-1])
    last = manifest.Manifest(epoch=3, layout="l", files=())
    kept.put(last)
    assert oldest.name in caplog.text
    oldest.write_bytes(whole)
    kept.put(last)
    assert [each.epoch for each in kept.manifests()] == [0, 1, 2, 3]
    assert kept.standing()[0].level == 1


def test_merging_decodes_no_values(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MERGED", 2)
    kept = put_all(quick, [1, 1, 1])
    monkeypatch.setattr(ledger, "decode_manifests", None)
    kept._store.put_if_absent(
        quick / ledger.Part(0, 3, 3).name,
        manifest.encode_manifests([manifest.Manifest(epoch=3, layout="l", files=())]),
    )
    kept._merge()
    monkeypatch.undo()
    assert [part.level for part in kept.standing()] == [1, 0, 0]
    whole = [*kept.manifests()[:2]]
    assert (quick / kept.standing()[0].name).read_bytes() == manifest.encode_manifests(whole)


def test_a_folder_that_never_comes_to_rest_is_not_read(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = put_all(quick, [1])
    listings = iter(range(1000))
    monkeypatch.setattr(kept, "_names", lambda: [ledger.Part(0, 0, next(listings)).name])
    with pytest.raises(UnavailableError, match="change too quickly"):
        kept.newest()


def test_a_target_whose_folder_was_made_this_moment_has_no_epoch_yet(tmp_path: Path) -> None:
    (tmp_path / "_onceonly").mkdir()
    assert files.committed(str(tmp_path)) == []


def test_committed_says_where_nothing_was_written(quick: Path) -> None:
    with pytest.raises(ConfigurationError, match="never wrote to"):
        files.committed(str(quick))


def open_text(path: Path) -> str:
    data = path.read_bytes()
    unpack: dict[str, Callable[[bytes], bytes]] = {
        ".gz": gzip.decompress,
        ".bz2": bz2.decompress,
        ".deflate": zlib.decompress,
        ".zst": lambda packed: pa.CompressedInputStream(pa.BufferReader(packed), "zstd").read(),
    }
    return unpack.get(path.suffix, bytes)(data).decode()


@pytest.mark.parametrize("compression", options.COMPRESSIONS["json"])
def test_every_codec_of_lines_is_the_same_lines(quick: Path, compression: str) -> None:
    bench = Files(quick / "out", options={"format": "json", "compression": compression})
    bench.finish(0, bench.prepared(rows(1, 3, 5)))
    assert [open_text(path) for path in bench.visible()] == ['{"id":1}\n{"id":3}\n{"id":5}\n']


@pytest.mark.parametrize("form", ["parquet", "orc", "json"])
@pytest.mark.parametrize("size", ["128m", "1"])
def test_no_file_has_more_rows_than_it_may(
    quick: Path, monkeypatch: pytest.MonkeyPatch, form: str, size: str
) -> None:
    monkeypatch.setattr(writer, "BUFFER_BYTES_MAX", 10_000)
    bench = Files(quick / "out", options={"format": form, "maxrecordsperfile": "70", "maxfilesize": size})
    sink, attempt = bench.begin()
    for start in range(0, 1000, 100):
        sink.write(attempt, pa.record_batch(rows(*range(start, start + 100))))
    bench.finish(0, sink.pre_commit(attempt))
    (epoch,) = files.committed(str(bench.target))
    assert epoch.rows == 1000
    assert max(file.rows for file in epoch.files) <= 70
    assert size == "1" or max(file.rows for file in epoch.files) == 70
