"""Options, columns and names of the file sink: taken, refused by name, and as the page says."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceonly.errors import ConfigurationError, RecordRefusedError
from onceonly.families.columns import parse
from onceonly.sinks.files import FilesSink, options, paths
from onceonly.sinks.files.formats import columns
from onceonly.sinks.files.targets import buckets
from onceonly.stores import opened
from onceonly.stores.access import Hadoop

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "files-options.md"


def read(**given: str) -> options.FilesOptions:
    return FilesSink({"path": "/data/out", **given})._files


def test_defaults() -> None:
    found = read()
    assert (found.form, found.compression, found.extension) == ("parquet", "snappy", ".snappy.parquet")
    assert (found.target, found.staging) == (Path("/data/out"), Path("/data/out/_onceonly/staging"))
    assert (found.partition_by, found.file_bytes_max) == ((), 128 << 20)


@pytest.mark.parametrize(
    ("given", "extension"),
    [
        ({"format": "json"}, ".json"),
        ({"format": "json", "compression": "gzip"}, ".json.gz"),
        ({"format": "text"}, ".txt"),
        ({"compression": "uncompressed"}, ".parquet"),
        ({"compression": "ZSTD"}, ".zstd.parquet"),
        ({"compression": "lz4_raw"}, ".lz4.parquet"),
        ({"format": "csv", "compression": "bzip2"}, ".csv.bz2"),
        ({"format": "csv", "compression": "zstd"}, ".csv.zst"),
        ({"format": "orc"}, ".zstd.orc"),
        ({"format": "orc", "compression": "uncompressed"}, ".orc"),
        ({"format": "text", "compression": "deflate"}, ".txt.deflate"),
    ],
)
def test_extensions_are_sparks(given: dict[str, str], extension: str) -> None:
    assert read(**given).extension == extension


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"path": "abfss://c@a.dfs.core.windows.net/x"}, "on Azure Storage, where files cannot be put yet"),
        ({"path": "gs://bucket/x"}, "on Google Cloud Storage, where files cannot be put yet"),
        ({"path": "dbfs:/x"}, "is on dbfs:"),
        ({"path": "file://host/x"}, "not an absolute path of this machine"),
        ({"path": " "}, "option path of the sink files is empty"),
        ({"path": "a\0b"}, "names no folder"),
        ({"format": "delta"}, "'delta', and must be"),
        ({"format": "orc", "compression": "gzip"}, "one of zstd, snappy, zlib, lz4, none for orc"),
        ({"format": "avro"}, "cannot write Avro: pyarrow has no writer"),
        ({"maxRecordsPerFile": "-1"}, "a whole number; 0 for no limit"),
        ({"maxFileSize": "0"}, "must be a number of bytes"),
        ({"maxFileSize": "many"}, "must be a number of bytes"),
        ({"partitionBy": "a,,b"}, "separated by commas, none twice"),
        ({"partitionBy": "a,a"}, "separated by commas, none twice"),
        ({"partitionBy": "a,A"}, "separated by commas, none twice"),
        ({"compression": "snappy", "format": "json"}, "one of none, gzip, bzip2, deflate, zstd for json"),
        ({"compression": "lz4", "format": "csv"}, "what Hadoop names lz4 and snappy are framings of its own"),
        ({"header": "true"}, "is for csv, and format is parquet"),
        ({"sep": ";", "format": "json"}, "The option sep of the sink files is for csv, and format is json"),
        ({"sep": ";;", "format": "csv"}, "one ASCII character"),
        ({"sep": '"', "format": "csv"}, "is '\"', as is what quotes or escapes"),
        ({"delimiter": "\\", "format": "csv"}, "as is what quotes or escapes"),
        ({"quote": "", "format": "csv"}, "one ASCII character that is no letter"),
        ({"escape": "xy", "format": "csv"}, "one ASCII character that is no letter"),
        ({"nullValue": "a\nb", "format": "csv"}, "a text of one line"),
        ({"nullValue": "NA", "format": "json"}, "is for csv, and format is json"),
        (
            {"ignoreNullFields": "false", "format": "csv"},
            "ignoreNullFields of the sink files is for json, and",
        ),
        ({"dateFormat": "yyyy"}, "is for json and csv, and format is parquet"),
        ({"encoding": "latin1", "format": "text"}, "must be UTF-8"),
        ({"dateFormat": "GG yyyy", "format": "csv"}, "The option dateFormat of the sink files is 'GG yyyy'"),
        ({"dateFormat": "GG yyyy", "format": "csv"}, "'GG' is not among yyyy yy y"),
        ({"dateFormat": "EEE d", "format": "json"}, "'EEE' is not among"),
        ({"dateFormat": "dd HH", "format": "json"}, "'HH' is not among"),
        ({"timestampNTZFormat": "HH XXX", "format": "json"}, "'XXX' is not among"),
        ({"timestampFormat": "YYYY", "format": "json"}, "'YYYY' is not among"),
        ({"timestampFormat": "HH VV", "format": "json"}, "'VV' is not among"),
        ({"timestampFormat": "[HH", "format": "json"}, "'[' is not closed"),
        ({"timestampFormat": "[HH[mm]]", "format": "json"}, "'[' has no meaning there"),
        ({"timestampFormat": "HH]", "format": "json"}, "']' has no meaning there"),
        ({"timestampFormat": "{HH}", "format": "json"}, "'{' has no meaning there"),
        ({"timestampFormat": "'HH", "format": "json"}, '"\'" has no meaning there'),
        ({"timestampFormat": "", "format": "json"}, "it is empty"),
        ({"partitonby": "a"}, "did you mean partitionBy?"),
    ],
)
def test_wrong_options_are_refused_by_name(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(**given)
    assert said in str(caught.value)


def test_sep_has_two_names_and_the_first_counts_as_in_spark() -> None:
    assert read(format="csv", delimiter="\\t").texts.sep == "\t"
    assert read(format="csv", delimiter="|", sep=";").texts.sep == ";"


def test_readers_are_told_only_what_is_not_the_default() -> None:
    plain = read(format="csv", header="TRUE", quote='"', escape="\\", encoding="utf8", nullValue="").texts
    assert plain.for_readers == ()
    given = {"quote": "'", "escape": "!", "nullValue": "NA", "dateFormat": "d.M.y", "timestampNTZFormat": "y"}
    assert dict(read(format="csv", **given).texts.for_readers) == given
    assert dict(read(format="csv", quoteAll="true").texts.for_readers) == {"nullValue": ""}


def test_names_in_backquotes_keep_their_commas() -> None:
    assert read(partitionBy="a, `b,c` ,d").partition_by == ("a", "b,c", "d")


def test_the_page_has_the_table_of_the_declared_options() -> None:
    assert "```{onceonly-files-options}\n" in PAGE.read_text(encoding="utf-8")


def test_paths_are_taken_as_spark_takes_them() -> None:
    for text in ("/a b/%20", "file:/a b/%20", "file:///a b/%20", "file://localhost/a b/%20"):
        assert paths.target_path(text) == Path("/a b/%20")
    assert paths.target_path("a/b:c").is_absolute()


def test_an_address_is_a_path_that_keeps_its_slashes() -> None:
    target = paths.target_path("hdfs://NameNode:8020//data/./out/")
    assert str(target / "day=1") == "hdfs://namenode/data/out/day=1"
    assert target in (target / "day=1" / "f").parents
    assert paths.place(str(target)) == target == paths.real(target)
    assert str((target / "a").relative_to(target)) == "a"
    assert paths.place("/data/out") == Path("/data/out")


def test_an_address_without_a_name_node_is_in_the_one_that_hadoop_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigurationError, match="names no name node"):
        paths.target_path("hdfs:///out")
    monkeypatch.setattr(opened, "_told", Hadoop({"fs.defaultFS": "hdfs://nn:9000"}))
    for text in ("hdfs:///out", "hdfs:/out", "/out", "hdfs://nn:9000/out"):
        assert str(paths.target_path(text)) == "hdfs://nn:9000/out"


def test_temporary_files_are_where_the_target_is() -> None:
    with pytest.raises(ConfigurationError, match="is not where the target"):
        FilesSink({"path": "hdfs://nn/out", "staging": "/staged"})
    with pytest.raises(ConfigurationError, match="uploads that wait"):
        FilesSink({"path": "s3a://bucket/out", "staging": "s3a://bucket/staged"})


def test_a_file_is_refused_that_has_more_parts_than_an_upload(monkeypatch: pytest.MonkeyPatch) -> None:
    assert options._UPLOAD_BYTES_MAX < 10_000 * buckets.PART_BYTES  # S3's own limit
    assert read(path="/out", maxFileSize="100g").file_bytes_max == 100 << 30
    assert read(path="hdfs://nn/out", maxFileSize="100g").file_bytes_max == 100 << 30
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "of-nobody")
    assert read(path="s3a://bucket/out", maxFileSize="64g").file_bytes_max == 64 << 30
    with pytest.raises(ConfigurationError, match="maxFileSize of the sink files is 107374182400 bytes"):
        read(path="s3a://bucket/out", maxFileSize="100g")


@pytest.mark.parametrize(
    ("kind", "forms"),
    [
        ("string", "parquet orc json csv text"),
        ("varchar(5)", "parquet orc json csv text"),
        ("bigint", "parquet orc json csv"),
        ("decimal(38,18)", "parquet orc json csv"),
        ("timestamp_ntz", "parquet json csv"),
        ("array<timestamp_ntz>", "parquet json"),
        ("binary", "parquet orc json"),
        ("array<struct<a b:int,c:map<string,date>>>", "parquet orc json"),
        ("map<int,string>", "parquet orc"),
        ("void", ""),
        ("variant", ""),
        ("interval day to second", ""),
        ("time(6)", ""),
        ("struct<>", ""),
        ("array<void>", ""),
        ("struct<a:array<interval year>>", ""),
        ("something new", ""),
    ],
)
def test_what_each_format_writes(kind: str, forms: str) -> None:
    for form in options.COMPRESSIONS:
        if form in forms.split():
            columns.check([("x", kind)], form=form, partition_by=())
        else:
            with pytest.raises(ConfigurationError) as caught:
                columns.check([("x", kind)], form=form, partition_by=())
            assert "x" in caught.value.what
            assert form in caught.value.what.lower()


@pytest.mark.parametrize(
    ("kind", "ddl"),
    [
        ("struct<a:int,b c:array<map<string,decimal(5,2)>>>",
         "struct<`a`: int, `b c`: array<map<string, decimal(5,2)>>>"),
        ("struct<x:y:int,a,b:string>", "struct<`x:y`: int, `a,b`: string>"),
        ("struct<a`b:struct<q:double>>", "struct<`a``b`: struct<`q`: double>>"),
    ],
)  # fmt: skip
def test_types_become_ddl_whatever_fields_are_named(kind: str, ddl: str) -> None:
    assert parse(kind).ddl == ddl


@pytest.mark.parametrize(
    ("given", "partition_by", "said"),
    [
        ([("a", "int"), ("A", "int")], (), "Two columns are named a and A"),
        ([("a", "int")], ("b",), "b of partitionBy is not among the columns a"),
        ([("a", "int")], ("A",), "All columns (a)"),
        ([("a", "int"), ("b", "array<int>")], ("b",), "b is of type array<int>"),
        ([("a", "int"), ("b", "binary")], ("b",), "b is of type binary"),
        ([("a", "int"), (".b", "int")], (".b",), "begins with a dot"),
        ([("a", "void"), ("b", "int")], ("b",), "a is of type void"),
    ],
)
def test_wrong_columns_are_refused_by_name(
    given: list[tuple[str, str]], partition_by: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        columns.check(given, form="parquet", partition_by=partition_by)
    assert said in str(caught.value)
    columns.check([], form="parquet", partition_by=partition_by)  # not known here


texts = st.text(max_size=80)


@given(st.lists(st.tuples(st.text(min_size=1, max_size=9), texts), min_size=1, max_size=4))
def test_partition_folders_are_safe_and_reversible(row: list[tuple[str, str]]) -> None:
    names, values = [name for name, _ in row], [value for _, value in row]
    try:
        folder = paths.folder_of(names, values, who="test")
    except RecordRefusedError:
        assert any(len(f"{paths.escape(n)}={paths.escape(v)}".encode()) > 255 for n, v in row)
        return
    parts = folder.split("/")
    assert len(parts) == len(row)
    for part, name, value in zip(parts, names, values, strict=True):
        escaped, _, shown = part.partition("=")
        assert part not in {".", ".."}
        assert not set(part) & set("\0\n\r")
        assert len(part.encode()) <= 255
        assert paths.unescape(escaped) == name
        assert (shown == paths.NULL_FOLDER) == (not value)
        assert not value or paths.unescape(shown) == value


def test_what_no_folder_keeps_is_refused_by_column_and_value() -> None:
    for value in ("x" * 300, "é" * 127, "/" * 84, paths.NULL_FOLDER):
        with pytest.raises(RecordRefusedError, match="the partition column day"):
            paths.folder_of(["day"], [value], who="slot 0")
    with pytest.raises(RecordRefusedError, match="longer than 2500 bytes"):
        paths.folder_of([f"c{n}" for n in range(20)], ["x" * 200] * 20, who="slot 0")
    assert paths.folder_of(["day"], [None], who="") == f"day={paths.NULL_FOLDER}"


@pytest.mark.parametrize("name", ["lineSep", "timeZone", "charset", "parquet.block.size"])
def test_an_option_that_only_sparks_sink_has_is_named_and_no_other_is_guessed(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        FilesSink({"path": "/x", name: "1"})
    assert f"The option {name} of Spark's file sinks is none of the sink files: " in str(caught.value)
    assert "did you mean" not in str(caught.value)
