"""What the file sink writes, Spark reads back as it was: every type, every format, every partition value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import ways
from onceonly import files
from onceonly.errors import RecordRefusedError
from onceonly.model import Guarantee
from onceonly.ports import QueryContext, WriteContext
from onceonly.sinks.files import FilesSink
from onceonly.sinks.files.formats import encoding

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

spark = ways.spark  # a fixture
pytestmark = pytest.mark.acceptance

FLAT = """
  id, cast(if(id % 5 = 0, null, id % 2) as boolean) b, cast(id as tinyint) y, cast(id - 3 as smallint) h,
  cast(id * 100000 as int) i, id * 10000000000 l,
  cast(case id % 4 when 0 then 0.1 when 1 then 'NaN' when 2 then '-Infinity' else 1e-38 end as float) f,
  cast(case id % 4 when 0 then 0.1 when 1 then 'NaN' when 2 then 'Infinity' else 1.797693134862315e308 end as double)
  d,
  cast(id * -1.005 as decimal(9, 3)) c, cast(if(id = 1, 0, id) as decimal(38, 18)) big,
  date_add(date'0001-01-01', cast(id * 100000 as int)) da,
  timestamp_micros(id * 1234567890123456 - 9000000000000000) t,
  timestamp_ntz'2024-03-31 02:30:00.000001' + make_dt_interval(cast(id as int)) n,
  case id % 8 when 0 then null when 1 then '' when 2 then 'a,"b"\\\\c' when 3 then 'line\nbreak' when 4 then '\\\\'
    when 5 then ' blanks ' when 6 then 'é€😀' else '"' end s
"""
NESTED = """
  cast(if(id % 3 = 0, null, concat('x', id)) as binary) bin,
  if(id % 2 = 0, null, array(id, null, id + 1)) arr,
  map('k', if(id % 2 = 0, null, id), 'ü', id) m,
  named_struct('x y', id, 'in', named_struct('t', timestamp_micros(id * 1001), 'f', cast(0.1 as float), 'gone',
    if(id > 3, null, 'here')), 'list', array(named_struct('d', cast(id / 4 as decimal(9, 2))))) st
"""
DATA = {
    "parquet": f"{FLAT}, {NESTED}, map(id, timestamp_micros(id)) by_number",
    # What pyarrow's ORC does not give back to Spark is refused: times before 1970, days before 1582, timestamp_ntz.
    "orc": FLAT.replace("date'0001-01-01'", "date'1582-10-15'")
    .replace("- 9000000000000000) t", ") t")
    .replace("timestamp_ntz'", "timestamp'")
    + f", {NESTED}, map(id, timestamp_micros(id)) by_number",
    "json": f"{FLAT}, {NESTED}",
    "csv": FLAT,
    "text": "case id % 4 when 0 then '' when 1 then 'a,\"b' when 2 then ' é ' else '\\\\' end value",
}


def write(df: DataFrame, target: Path, query: str = "q", **options: str) -> FilesSink:
    """Take a frame through the sink's whole life, as the runtime does, in the batches that executors get."""
    sink = FilesSink({"path": str(target), **options})
    columns = tuple((field.name, field.dataType.simpleString()) for field in df.schema.fields)
    guarantee = Guarantee.EXACTLY_ONCE
    context = QueryContext(query=query, sink="files", guarantee=guarantee, columns=columns)
    attempt = sink.begin_transaction(
        WriteContext(
            query=query,
            sink="files",
            run="r",
            epoch=0,
            plan="p",
            slot=0,
            attempt="1",
            guarantee=guarantee,
            facts=sink.check(context),
        )
    )
    for batch in as_executors_get_it(df).to_batches():
        sink.write(attempt, batch)
    handle = sink.pre_commit(attempt)
    sink.commit(handle)
    sink.complete(context, 0, [handle])
    return sink


def as_executors_get_it(df: DataFrame) -> pa.Table:
    """The driver's Arrow has times in UTC; that of Python workers has the session's zone."""
    zone = df.sparkSession.conf.get("spark.sql.session.timeZone")
    table = df.toArrow()
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type) and field.type.tz is not None:
            column = table.column(index).cast(pa.timestamp("us", zone))
            table = table.set_column(index, field.with_type(column.type), column)
    return table


def texts(df: DataFrame) -> list[str]:
    return sorted(str(row) for row in df.collect())


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize(
    ("form", "compression"),
    [
        ("parquet", "snappy"),
        ("parquet", "zstd"),
        ("parquet", "lz4"),
        ("orc", "zstd"),
        ("orc", "none"),
        ("json", "none"),
        ("json", "gzip"),
        ("csv", "none"),
        ("csv", "bzip2"),
        ("text", "gzip"),
        ("text", "deflate"),
        ("json", "zstd"),
    ],
)
def test_every_type_comes_back(
    spark: SparkSession, tmp_path: Path, form: str, compression: str, zone: str
) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    df = spark.sql(f"select {DATA[form]} from range(1, 17)")  # noqa: S608  of this file
    theirs, ours = tmp_path / "spark", tmp_path / "ours"
    df.write.format(form).save(str(theirs))
    write(df, ours, format=form, compression=compression)
    frame = files.read(spark, str(ours))
    assert frame.schema.simpleString() == df.schema.simpleString()
    assert texts(frame) == texts(df)
    bare = spark.read.format(form).schema(df.schema).option("multiLine", form == "csv").load(str(ours))
    spark_reads = (
        spark.read.format(form).schema(df.schema).option("multiLine", form == "csv").load(str(theirs))
    )
    if form == "parquet":
        assert (
            spark.read.parquet(str(ours)).drop("id").schema.simpleString()
            == df.drop("id").schema.simpleString()
        )
    # Spark writes text with milliseconds only, and trims csv; what it keeps, ours keeps, too.
    lossy = (
        [] if form in {"parquet", "orc"} else [name for name in ("t", "n", "st", "s") if name in df.columns]
    )
    assert texts(bare.drop(*lossy)) == texts(spark_reads.drop(*lossy))
    spark.conf.unset("spark.sql.session.timeZone")


def test_csv_with_header_and_separator(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.createDataFrame([("a\tb", None), ("", "x")], '`one, two` string, `t"` string')
    write(df, tmp_path, format="csv", header="true", sep="\\t", maxFileSize="1")
    assert len(list(tmp_path.glob("part-*"))) > 0
    assert texts(files.read(spark, str(tmp_path))) == texts(df)
    bare = spark.read.csv(str(tmp_path), header=True, sep="\t")
    assert bare.columns == df.columns


@pytest.mark.parametrize("mode", ["EXCEPTION", "LEGACY"])
def test_days_of_long_ago_are_the_same_whatever_a_session_takes_parquet_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """The first is the default of Spark 3, the second what a session has that still reads files of Spark 2."""
    df = spark.sql(
        "select date'1000-01-01' d, timestamp'1300-01-01 00:00:00' t, timestamp_ntz'1300-01-01 00:00:00' n"
    )
    write(df, tmp_path / "now")
    # As versions before this one wrote them.
    monkeypatch.setattr(encoding, "counted_as_spark", lambda schema: schema)
    write(df, tmp_path / "before")
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", mode)
    try:
        for frame in (
            spark.read.parquet(str(tmp_path / "now")),
            files.read(spark, str(tmp_path / "now")),
            files.read(spark, str(tmp_path / "before")),
        ):
            shown = frame.selectExpr("string(d)", "string(t)", "string(n)").collect()
            assert [tuple(row) for row in shown] == [
                ("1000-01-01", "1300-01-01 00:00:00", "1300-01-01 00:00:00")
            ]
    finally:
        spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInRead")


def test_no_row_of_csv_is_passed_over_by_a_bare_reader(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.createDataFrame([("\ufeffa", 1), (None, None), ("\x01", None)], "s string, n int")
    with pytest.raises(RecordRefusedError, match="all values of a row are null or empty"):
        write(df, tmp_path / "refused", format="csv", sep="\\t")
    write(df, tmp_path / "taken", format="csv", sep="\\t", nullValue="-")
    bare = spark.read.schema(df.schema).csv(str(tmp_path / "taken"), sep="\t", nullValue="-")
    assert texts(bare) == texts(files.read(spark, str(tmp_path / "taken"))) == texts(df)
    only = df.select("s").where("s is not null")
    write(only, tmp_path / "only", format="csv")
    assert texts(spark.read.schema(only.schema).csv(str(tmp_path / "only"))) == texts(only)


PARTITIONS = [
    "a/b", "..", ".", "a=b", "a\nb", "", None, "é%2F", "a b", "{x}", "[y]", "_u", ".h", "a:b?*\"'#^\\", "\x7f",
    "~", "a,b", "x" * 200, "\x01", "001", "null", "*",
]  # fmt: skip


def test_partition_folders_are_sparks_and_values_come_back(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.createDataFrame(list(enumerate(PARTITIONS)), "id int, `p/q` string")
    theirs, ours = tmp_path / "spark", tmp_path / "ours"
    df.write.partitionBy("p/q").json(str(theirs))
    write(df, ours, format="json", partitionBy="P/Q")
    assert folders(ours) == folders(theirs)
    expected = texts(spark.read.schema(df.schema).json(str(theirs)))
    assert texts(files.read(spark, str(ours))) == expected
    assert texts(spark.read.schema(df.schema).json(str(ours))) == expected
    assert sum("None" in text for text in expected) == 2, "the empty text is null, as in Spark"


def folders(target: Path) -> list[str]:
    return sorted(path.name for path in target.iterdir() if path.is_dir() and path.name != "_onceonly")


def test_nul_in_a_partition_value_comes_back_too(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.createDataFrame([(1, "a\0b")], "id int, p string")
    write(df, tmp_path, partitionBy="p")
    assert files.read(spark, str(tmp_path)).collect() == df.collect()
    assert spark.read.parquet(str(tmp_path)).collect() == df.collect()


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_partitions_of_every_type_come_back(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    df = spark.sql(
        """select id, if(id = 3, null, id = 1) b, cast(id as tinyint) y, cast(1.50 * id as decimal(5, 2)) c,
        cast(if(id = 2, 'NaN', 0.1 * id) as double) d, cast(0.1 as float) f, date'2024-02-03' + cast(id as int) da,
        timestamp_micros(1729992600000000 + id * 1800000000) t,
        timestamp_ntz'2024-10-27 02:30:00.5' n from range(1, 8)"""
    )
    keys = ["b", "y", "c", "d", "f", "da", "t", "n"]
    write(df, tmp_path / "ours", partitionBy=",".join(keys))
    assert texts(files.read(spark, str(tmp_path / "ours"))) == texts(df)
    if zone == "UTC":
        df.write.partitionBy(*keys).parquet(str(tmp_path / "spark"))
        theirs, ours = (spark.read.parquet(str(tmp_path / name)) for name in ("spark", "ours"))
        assert ours.schema == theirs.schema
        assert texts(ours) == texts(theirs)
    spark.conf.unset("spark.sql.session.timeZone")


def test_reading_knows_queries_schemas_and_an_empty_target(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "a * {b} [c]"
    one = spark.sql("select 1 id, 'x' p, 2.5 only_here")
    sink = FilesSink({"path": str(target), "partitionby": "p"})
    columns = tuple((field.name, field.dataType.simpleString()) for field in one.schema.fields)
    sink.check(QueryContext(query="q", sink="files", guarantee=Guarantee.EXACTLY_ONCE, columns=columns))
    assert files.read(spark, str(target)).collect() == []
    assert files.read(spark, str(target)).schema.simpleString() == one.schema.simpleString()
    write(one, target, partitionBy="p")
    write(spark.sql("select 'x' p, 2 id"), target, query="q-2", format="json")
    both = {
        (row.id, row.p, row.only_here and float(row.only_here))
        for row in files.read(spark, str(target)).collect()
    }
    assert both == {(1, "x", 2.5), (2, "x", None)}
    assert [row.id for row in files.read(spark, f"file://{target}", query="q-2").collect()] == [2]
    write(spark.sql("select 'x' p, 3L id"), target, query="q-3", format="json")
    with pytest.raises(Exception, match="The column id was written as int, and later as bigint"):
        files.read(spark, str(target))
    assert sorted(row.id for row in files.read(spark, str(target), schema="id long, p string").collect()) == [
        1,
        2,
        3,
    ]
    # Of parquet, too, whose files know their types.
    assert [
        tuple(row)
        for row in files.read(spark, str(target), query="q", schema="new int, id string, p string").collect()
    ] == [(None, "1", "x")]
    with pytest.raises(Exception, match="has written nothing of query nobody"):
        files.read(spark, str(target), query="nobody")
    with pytest.raises(Exception, match="never wrote to"):
        files.read(spark, str(tmp_path))


@pytest.mark.parametrize("partition_by", ["", "p"])
def test_each_row_is_read_once_whatever_the_targets_name_is(
    spark: SparkSession, tmp_path: Path, partition_by: str
) -> None:
    target = tmp_path / "a[1] {b} *"
    df = spark.sql("select id, if(id % 2 = 0, 'x}', '{[*?]}') p from range(10)")
    write(df, target, format="json", maxFileSize="1", partitionBy=partition_by)
    (target / "a[1] {b} x.json").write_text('{"id": 99}')
    assert len(list(target.rglob("part-*"))) > 2
    assert texts(files.read(spark, str(target)).select("id", "p")) == texts(df)


def test_files_that_are_gone_are_told_or_left_out(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.range(10)
    write(df, tmp_path, maxFileSize="1")
    first, *rest = sorted(tmp_path.glob("part-*"))
    first.unlink()
    with pytest.raises(Exception, match="is not there: it was deleted or moved away"):
        files.read(spark, str(tmp_path))
    assert files.read(spark, str(tmp_path), missing="skip").count() == len(rest) > 0
