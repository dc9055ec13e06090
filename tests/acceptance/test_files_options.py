"""Spark's own options of text formats mean in our sink what they mean in Spark's: both are read back by Spark."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from test_files_round_trip import texts, write

import ways
from onceonly import files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

spark = ways.spark  # a fixture
pytestmark = pytest.mark.acceptance

STRANGE = [
    "a", "", "NA", "a,b", 'q"x', '"', '"x"', '""', "a\nb", "\\", "a\\", 'a\\"b', "#c", "$q", "$", "a;b", "null", "-",
    "'x'", "'", 'e!"e', "é", "~", None,
]  # fmt: skip
CSV: list[dict[str, str]] = [
    {},
    {"header": "true", "delimiter": ";"},
    {"nullValue": "NA"},
    {"nullValue": "a,b", "emptyValue": "-"},
    {"nullValue": '"n"'},
    {"emptyValue": ""},
    {"quoteAll": "true"},
    {"quoteAll": "true", "nullValue": "NULL", "header": "true"},
    {"quote": "'", "emptyValue": "''"},
    {"quote": "'", "escape": "'", "nullValue": "-", "emptyValue": "''"},
    {"quote": "$", "sep": ";", "emptyValue": "$$"},
    {"escape": '"'},
    {"escape": "!", "encoding": "UTF-8"},
]
TIMES = """
  id, date'2024-02-29' - cast(id * 20000 as int) d, if(id = 1, null, date'0001-01-01') first,
  timestamp'2024-07-31 13:05:06.123456' + make_dt_interval(cast(-id * 20000 as int), 7 * cast(id as int)) t,
  timestamp_ntz'2024-03-31 02:30:08.700001' - make_dt_interval(cast(id * 3 as int), cast(id as int)) n
"""
DATES = (
    "yyyy-MM-dd", "dd.MM.yyyy", "yyyyMMdd", "d MMM y", "d MMMM yyyy", "yyyy/M/d", "'it''s' yyyy-MM-dd ''",
    "[yyyy]-LL-dd",
)  # fmt: skip
LOCAL = (
    "yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS", "dd/MM/yyyy hh:mm:ss a", "d/M/y h:m:s a",
    "yyyyMMddHHmmssSSS", "yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]", "MMM d, y",
)  # fmt: skip
ZONED = (*LOCAL, "yyyy-MM-dd HH:mm:ss XXX", "yyyyMMddHHmmssXX", "yyyy-MM-dd HH:mm xxx")
NULLS = """
  id, if(id = 1, null, id) a, named_struct('x', if(id = 2, null, 'x'), 'y', array(null, 1), 'd', date'2024-03-05') s,
  map('k', if(id = 1, null, date'2024-03-05')) m, array(named_struct('q', cast(null as string))) z,
  timestamp'2024-07-31 13:05:06.5' ts
"""


def cases() -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield the format, the name of a frame, and the options."""
    for options in CSV:
        yield "csv", "strange", options
    for form in ("csv", "json"):
        for pattern in DATES:
            yield form, "dates", {"dateFormat": pattern}
        for pattern in LOCAL:
            yield form, "local", {"timestampNTZFormat": pattern}
        for pattern in ZONED:
            yield form, "zoned", {"timestampFormat": pattern}
    yield "csv", "dates", {"dateFormat": "d,M,yyyy", "quoteAll": "true", "sep": ","}
    yield "csv", "dates", {"dateFormat": "d-M,yyyy", "sep": "-"}
    for ignore in ("true", "false"):
        yield (
            "json",
            "nulls",
            {"ignoreNullFields": ignore, "dateFormat": "dd.MM.yyyy", "timestampFormat": "y/M/d H:m"},
        )


def lines(target: Path) -> list[str]:
    """Return the texts of a target's files, in order."""
    return sorted(line for path in target.glob("part-*") for line in path.read_text().splitlines())


def frames(spark: SparkSession) -> dict[str, DataFrame]:
    times = spark.sql(f"select {TIMES} from range(1, 30)")  # noqa: S608  of this file
    strange = [(text, "z", None if place % 2 else place, text) for place, text in enumerate(STRANGE)]
    return {
        "strange": spark.createDataFrame(strange, "a string, b string, c int, d string"),
        "dates": times.select("id", "d", "first"),
        "local": times.select("id", "n"),
        "zoned": times.select("id", "t"),
        "nulls": spark.sql(f"select {NULLS} from range(1, 4)"),  # noqa: S608
    }


@pytest.mark.long
def test_options_of_text_mean_what_they_mean_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    known, number = frames(spark), count()
    wrong: list[tuple[str, dict[str, str], str]] = []
    for form, name, options in cases():
        df, place = known[name], tmp_path / str(next(number))
        # By default, Spark trims what it writes into csv, and we do not.
        keep = (
            {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"} if form == "csv" else {}
        )
        df.coalesce(1).write.format(form).options(**options, **keep).save(str(place / "spark"))
        write(df, place / "ours", format=form, **options)
        reader = spark.read.format(form).schema(df.schema).options(**options, multiLine=form == "csv")
        try:
            theirs, ours = (texts(reader.load(str(place / each))) for each in ("spark", "ours"))
            back = texts(files.read(spark, str(place / "ours")))
        except PySparkException as error:
            wrong.append((form, options, str(error)[:200]))
            ours = theirs = back = []
        # What a null or an empty text is written as by default, our own reader knows apart.
        kept = name == "strange" and {"nullValue", "quoteAll"}.isdisjoint(options)
        if "emptyValue" not in options and back != (texts(df) if kept else theirs):
            wrong.append((form, options, "our own reader"))
        if ours != theirs:
            wrong.append((form, options, "Spark's reader"))
        # Where nothing else differs by default, the very bytes are the same.
        if name != "strange" and lines(place / "spark") != lines(place / "ours"):
            pairs = zip(lines(place / "spark"), lines(place / "ours"), strict=False)
            wrong.append((form, options, str([pair for pair in pairs if pair[0] != pair[1]][:2])))
    spark.conf.unset("spark.sql.session.timeZone")
    assert wrong == []
