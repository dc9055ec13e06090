"""What a writer was asked for in Python reaches our formats, and nobody else's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from onceonly.errors import ConfigurationError
from onceonly.settings.registry import BUILT_IN
from onceonly.sinks.files.options import DECLARED
from onceonly.spark.asked import PARTITION_BY, _told, take_partition_by, wrap


def test_columns_of_partition_by_are_told_to_our_formats_only() -> None:
    asked: dict[str, tuple[Any, ...]] = {"format": ("onceonly.files",), "partitionBy": ("day", "a,b")}
    assert _told(asked) == {PARTITION_BY: "`day`,`a,b`"}
    assert _told({**asked, "partitionBy": (["day"],)}) == {PARTITION_BY: "`day`"}
    assert _told({**asked, "format": ("parquet",)}) == {}
    assert _told({"partitionBy": ("day",)}) == {}
    with pytest.raises(ConfigurationError, match="cannot cluster rows"):
        _told({**asked, "clusterBy": ("day",)})


def test_what_was_told_is_the_option_and_must_not_contradict_it() -> None:
    told = {"path": "/x", PARTITION_BY: "`day`"}
    assert take_partition_by(told, DECLARED, who="files") == {"path": "/x", "partitionby": "`day`"}
    assert take_partition_by({"path": "/x"}, DECLARED, who="files") == {"path": "/x"}
    same = take_partition_by({**told, "partitionBy": "day"}, DECLARED, who="files")
    assert same["partitionby"] == "`day`"
    with pytest.raises(ConfigurationError, match="twice"):
        take_partition_by({**told, "partitionBy": "hour"}, DECLARED, who="files")
    with pytest.raises(ConfigurationError, match="no partition columns"):
        take_partition_by(told, (), who="onceonly.kafka")


class Writer:
    """PySpark's writer, as far as it is wrapped."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def format(self, source: str) -> Writer:
        self.told.append(("format", source))
        return self

    def partitionBy(self, *columns: object) -> Writer:  # noqa: N802  PySpark's names
        self.told.append(("partitionBy", columns))
        return self

    def outputMode(self, mode: str) -> Writer:  # noqa: N802
        self.told.append(("outputMode", mode))
        return self

    def foreachBatch(self, function: object) -> Writer:  # noqa: N802
        self.told.append(("foreachBatch", function))
        return self

    def start(self, path: str | None = None, **options: object) -> dict[str, object]:
        return {"path": path, **options}


def test_start_tells_what_was_asked_and_changes_nothing_else() -> None:
    for _ in range(2):
        wrap(Writer)
    nothing = {"path": "/x", "queryName": "q"}
    ours = Writer().format("onceonly.files").partitionBy("day")
    assert ours.start("/x", queryName="q", header="true") == {
        **nothing,
        "header": "true",
        PARTITION_BY: "`day`",
    }
    assert ours.told == [("format", "onceonly.files"), ("partitionBy", ("day",))]
    found = Writer().start("/x", queryName="q", format="onceonly.files", partitionBy=["day", "hour"])
    assert found == {**nothing, PARTITION_BY: "`day`,`hour`"}
    assert Writer().format("onceonly.files").start("/x", queryName="q") == nothing
    assert Writer().format("parquet").partitionBy("day").start("/x", queryName="q") == nothing


def test_files_in_complete_mode_are_refused_before_the_query_starts() -> None:
    wrap(Writer)
    function = SimpleNamespace(sink_class=BUILT_IN["files"])
    with pytest.raises(ConfigurationError, match="cannot replace what it has written"):
        Writer().outputMode("complete").foreachBatch(function).start()
    with pytest.raises(ConfigurationError, match="cannot replace what it has written"):
        Writer().foreachBatch(function).start(outputMode="complete")
    assert Writer().outputMode("update").foreachBatch(function).start() == {"path": None, "queryName": None}
    kafka = SimpleNamespace(sink_class=BUILT_IN["kafka"])
    assert Writer().outputMode("complete").foreachBatch(kafka).start() == {"path": None, "queryName": None}
