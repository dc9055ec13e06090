"""What a writer was asked for in Python reaches our formats, and nobody else's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from onceonly.errors import ConfigurationError, ReplayMismatchError, SetupError
from onceonly.settings.registry import BUILT_IN
from onceonly.sinks.files.options import DECLARED
from onceonly.spark import asked
from onceonly.spark.asked import PARTITION_BY, _told, take_partition_by, wrap, wrap_batch


def test_columns_of_partition_by_are_told_to_our_formats_only() -> None:
    given: dict[str, tuple[Any, ...]] = {"format": ("onceonly.files",), "partitionBy": ("day", "a,b")}
    assert _told(given) == {PARTITION_BY: "`day`,`a,b`"}
    assert _told({**given, "partitionBy": (["day"],)}) == {PARTITION_BY: "`day`"}
    assert _told({**given, "format": ("parquet",)}) == {}
    assert _told({"partitionBy": ("day",)}) == {}
    with pytest.raises(ConfigurationError, match="cannot cluster rows"):
        _told({**given, "clusterBy": ("day",)})


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


def pysparks() -> type[Any]:
    """Make a class like PySpark's writer, as far as it is wrapped."""

    class Writer:
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

    return Writer


def test_start_tells_what_was_asked_and_changes_nothing_else() -> None:
    writer = pysparks()
    for _ in range(2):
        wrap(writer)
    nothing = {"path": "/x", "queryName": "q"}
    ours = writer().format("onceonly.files").partitionBy("day")
    assert ours.start("/x", queryName="q", header="true") == {
        **nothing,
        "header": "true",
        PARTITION_BY: "`day`",
    }
    assert ours.told == [("format", "onceonly.files"), ("partitionBy", ("day",))]
    found = writer().start("/x", queryName="q", format="onceonly.files", partitionBy=["day", "hour"])
    assert found == {**nothing, PARTITION_BY: "`day`,`hour`"}
    assert writer().format("onceonly.files").start("/x", queryName="q") == nothing
    assert writer().format("parquet").partitionBy("day").start("/x", queryName="q") == nothing


def test_without_formats_modes_and_layout_are_as_a_formats_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark takes no partitionBy with foreachBatch, which stands in for the format."""
    monkeypatch.setattr(asked, "has_formats", lambda: False)
    writer = pysparks()
    wrap(writer)
    ours = writer().partitionBy("day").format("onceonly.files")
    assert ours.start("/x") == {"path": "/x", "queryName": None, PARTITION_BY: "`day`"}
    assert ours.told == [("format", "onceonly.files")]
    theirs = writer().partitionBy("day").format("parquet")
    theirs.start("/x")
    assert theirs.told == [("format", "parquet"), ("partitionBy", ("day",))]
    with pytest.raises(ConfigurationError, match="takes no update mode"):
        writer().format("onceonly.kafka").outputMode("update").start()
    with pytest.raises(ConfigurationError, match="cannot replace what it has written"):
        writer().format("onceonly.files").start(outputMode="complete")
    with pytest.raises(ConfigurationError, match="cannot replace its former output"):
        writer().format("onceonly.ledger").start(outputMode="complete")
    for mode in ("append", "complete"):
        assert writer().format("onceonly.kafka").start(outputMode=mode) == {"path": None, "queryName": None}


def test_files_in_complete_mode_are_refused_before_the_query_starts() -> None:
    writer = pysparks()
    wrap(writer)
    function = SimpleNamespace(sink_class=BUILT_IN["files"])
    with pytest.raises(ConfigurationError, match="cannot replace what it has written"):
        writer().outputMode("complete").foreachBatch(function).start()
    with pytest.raises(ConfigurationError, match="cannot replace what it has written"):
        writer().foreachBatch(function).start(outputMode="complete")
    assert writer().outputMode("update").foreachBatch(function).start() == {"path": None, "queryName": None}
    kafka = SimpleNamespace(sink_class=BUILT_IN["kafka"])
    assert writer().outputMode("complete").foreachBatch(kafka).start() == {"path": None, "queryName": None}


class BatchWriter:
    """PySpark's batch writer, as far as it is wrapped."""

    def __init__(self, error: Exception | None = None) -> None:
        self.columns: tuple[object, ...] = ()
        self.saved: dict[str, object] = {}
        self._error = error

    def format(self, source: str) -> BatchWriter:
        return self

    def partitionBy(self, *columns: object) -> BatchWriter:  # noqa: N802  PySpark's name
        self.columns = columns
        return self

    def save(self, path: str | None = None, mode: str | None = None, **options: object) -> None:
        self.saved = {"path": path, "mode": mode, "columns": self.columns, **options}
        if self._error is not None:
            raise self._error


def test_save_hands_over_partition_columns_which_spark_would_refuse() -> None:
    for _ in range(2):
        wrap_batch(BatchWriter)
    ours = BatchWriter().partitionBy("day").format("onceonly.files")
    ours.save("/x", mode="append", header="true")
    plain = {"path": "/x", "mode": "append"}
    assert ours.saved == {**plain, "columns": (), "header": "true", PARTITION_BY: "`day`"}
    ours = BatchWriter()
    ours.save("/x", format="onceonly.files", mode="append", partitionBy=["day", "hour"])
    assert ours.saved == {**plain, "columns": (), PARTITION_BY: "`day`,`hour`"}
    theirs = BatchWriter().format("parquet").partitionBy("day")
    theirs.save("/x", mode="append")
    assert theirs.saved == {**plain, "columns": ("day",)}


def test_what_is_first_to_be_done_is_done_for_our_formats_only() -> None:
    first: list[Any] = []

    class Batch(BatchWriter):
        def save(self, path: str | None = None, mode: str | None = None, **options: object) -> None:
            """Not wrapped yet, as its base's may be."""

    stream = pysparks()
    wrap(stream, first=first.append)
    wrap_batch(Batch, first=first.append)
    ours = [stream().format("onceonly.files"), Batch()]
    stream().format("parquet").start("/x")
    Batch().save("/x", format="parquet")
    assert first == []
    ours[0].start("/x")
    ours[1].save("/x", format="onceonly.files")
    assert first == ours


def test_an_error_of_a_batch_comes_out_of_save_by_its_type_and_another_as_it_is() -> None:
    wrap_batch(BatchWriter)
    told = RuntimeError(
        f"Job aborted: Traceback: {ReplayMismatchError('other rows', next_step='see')}\n at Foo.java"
    )
    with pytest.raises(ReplayMismatchError, match="other rows") as caught:
        BatchWriter(told).format("onceonly.files").save()
    assert caught.value.next_step == "see"
    assert caught.value.__suppress_context__, "no stack trace for what is explained"
    for error, source in ((RuntimeError("disk full"), "onceonly.files"), (told, "parquet")):
        with pytest.raises(RuntimeError) as other:
            BatchWriter(error).format(source).save()
        assert other.value is error


def test_what_a_start_says_of_a_format_of_ours_comes_out_of_it_by_its_type() -> None:
    said = "An error occurred while calling o9.start.\n: [DATA_SOURCE_NOT_FOUND] Failed to find the data source: {}."

    class Writer(pysparks()):  # type: ignore[misc]
        def start(self, path: str | None = None, **options: object) -> None:
            raise RuntimeError(said.format(self.told[0][1]))

    wrap(Writer)
    with pytest.raises(ConfigurationError, match=r"did you mean 'onceonly.kafka'\?") as caught:
        Writer().format("onceonly.kafak").start("/x")
    assert caught.value.__suppress_context__, "no stack trace for what is explained"
    with pytest.raises(RuntimeError, match="parket"):
        Writer().format("parket").start("/x")


def test_update_mode_is_refused_to_a_format_before_the_query_starts() -> None:
    writer = pysparks()
    wrap(writer)
    with pytest.raises(ConfigurationError, match=r"use \.foreachBatch\(onceonly\.sink"):
        writer().format("onceonly.kafka").outputMode("update").start()
    assert writer().format("kafka").outputMode("update").start("/x")["path"] == "/x"


def test_a_batch_is_refused_by_name_where_pyspark_has_no_writer_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrap_batch(BatchWriter)
    monkeypatch.setattr(asked, "has_formats", lambda: False)
    ours = BatchWriter().format("onceonly.files")
    with pytest.raises(SetupError, match="a batch cannot be written"):
        ours.save("/x")
    assert ours.saved == {}
    BatchWriter().format("parquet").save("/x")
