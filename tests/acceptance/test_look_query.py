"""``onceonly.look`` of a query of real Spark: running, stopped, and with a place whose name is odd."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import onceonly
import ways
from onceonly.errors import ConfigurationError, LogError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

spark = ways.spark  # a fixture
pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(400)]


def test_a_query_that_is_running_is_looked_at_and_shown_in_a_notebook(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = tmp_path / "a b%20c" / "checkpoint"
    rows = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
    writer = (
        rows.writeStream.format("onceonly.files")
        .queryName("clicks")
        .trigger(processingTime="200 milliseconds")
    )
    query = writer.option("checkpointLocation", str(place)).option("path", str(tmp_path / "out")).start()
    try:
        ways.until((place / "commits" / "1").exists, "an epoch was noted")
        seen = onceonly.look(query)
        assert (seen.view.query, seen.view.name, seen.view.run) == (query.id, "clicks", "alive")
        page = seen._repr_html_()
        assert "<svg" in page
        assert "everything up to chk-" in page
        first = seen.epoch(1)._repr_html_()
        assert "<svg" in first
        assert "chk-1" in first
        assert seen.report(tmp_path / "run.html").read_text(encoding="utf-8").count(query.id) >= 1
        with pytest.raises(ConfigurationError, match="has no chk-9999"):
            seen.epoch(9999)
    finally:
        query.stop()
    ended = onceonly.look(query)
    assert ended.view.run == "down"
    assert str(ended).startswith(f"query clicks {query.id}, run down; ")


def test_a_query_of_another_sink_is_said_to_have_no_log(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate").load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "cp")).start()
    try:
        with pytest.raises(LogError, match="in which onceonly has no decision log yet"):
            onceonly.look(query)
    finally:
        query.stop()
