"""One format reads and writes a stream; formats of sinks without a source refuse to be read."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StructType

from onceonly.errors import ConfigurationError, SetupError
from onceonly.settings.registry import BUILT_IN
from onceonly.spark import format as formats
from onceonly.spark.kinesis_source import KinesisReader
from onceonly.stores.access import Hadoop

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS = {"stream": "orders", "region": "r", "onceonly.ranges": "/ranges"}


def test_the_format_has_the_columns_of_records() -> None:
    made = formats.make_format("kinesis", BUILT_IN["kinesis"], "app")(dict(OPTIONS))
    assert [field.split()[0] for field in made.schema().split(", ")] == [
        "value", "partitionKey", "sequenceNumber", "subSequenceNumber", "shardId", "approximateArrivalTimestamp",
    ]  # fmt: skip
    assert isinstance(made.streamReader(StructType()), KinesisReader)


def test_a_sink_that_is_no_source_is_not_read() -> None:
    made = formats.make_format("redis", BUILT_IN["redis"], "app")({})
    with pytest.raises(ConfigurationError, match=r"onceonly\.redis is a sink"):
        made.schema()


def test_a_source_that_is_a_sink_too_says_that_it_is_a_stream_to_who_reads_it_as_a_batch() -> None:
    made = formats.make_format("kinesis", BUILT_IN["kinesis"], "app")(dict(OPTIONS))
    with pytest.raises(ConfigurationError, match=r"onceonly\.kinesis is a stream.*use spark\.readStream"):
        made.reader(StructType())


@pytest.mark.parametrize("name", ["kinesis", "socket"])
def test_a_pyspark_that_tells_no_limits_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "has_read_limits", lambda: False)
    made = formats.make_format(name, BUILT_IN[name], "app")(dict(OPTIONS))
    for read in (made.schema, lambda: made.streamReader(StructType())):
        with pytest.raises(SetupError, match=r"use PySpark 4\.2"):
            read()


def test_wrong_options_stop_before_the_first_record() -> None:
    made = formats.make_format("kinesis", BUILT_IN["kinesis"], "app")({"stream": "orders"})
    with pytest.raises(ConfigurationError, match=r"onceonly\.ranges"):
        made.streamReader(StructType())


def test_a_reader_travels_without_its_planner(tmp_path: Path) -> None:
    reader = KinesisReader({**OPTIONS, "onceonly.ranges": str(tmp_path)}, StructType(), Hadoop())
    assert reader._plan is reader._plan
    assert pickle.loads(pickle.dumps(reader))._planner is None  # noqa: S301  its own
