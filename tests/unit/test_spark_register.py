"""What ``onceonly.register`` does to a session of Spark Connect, whose driver is elsewhere."""

from __future__ import annotations

import contextlib
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import MagicMock

import pyspark
import pytest

import onceonly
from onceonly.errors import SetupError
from onceonly.log import lag_state
from onceonly.log.place import notes_store
from onceonly.settings import registry
from onceonly.settings.query import START
from onceonly.sinks.kafka import KafkaSink
from onceonly.spark import asked, collection, connect, lag, register, versions
from onceonly.spark.format import SinkFormat
from onceonly.stores.address import parse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.hadoop.fs.s3a.access.key": "ak",
    "spark.hadoop.fs.s3a.secret.key": "sk",
    "spark.app.name": "x",
}


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401  it is none
    monkeypatch.setattr(connect, "install", lambda: None)
    made = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    made.formats = []
    made.session_id = "8a1f"
    made.dataSource = SimpleNamespace(register=made.formats.append)
    made.conf = SimpleNamespace(get=lambda _name, default: default, getAll=dict(SETTINGS))
    return made


def test_its_server_is_given_the_formats_with_what_it_was_told_of_stores(session: Any) -> None:  # noqa: ANN401
    onceonly.register(session)
    formats = {each.name(): each for each in session.formats}
    assert set(formats) >= {"onceonly.kafka", "onceonly.files", "onceonly.collection"}
    kafka = formats["onceonly.kafka"]
    assert kafka.hadoop.access(parse("s3a://bucket/chk")).keys == ("ak", "sk", "")
    assert kafka.application == connect.application(session, onceonly.spark.application._PROGRAM)


def test_its_server_is_given_the_formats_with_where_the_session_puts_checkpoints(session: Any) -> None:  # noqa: ANN401
    session.conf.get = {register.SESSION_CHECKPOINTS: "/checkpoints"}.get
    onceonly.register(session)
    written = [each for each in session.formats if issubclass(each, SinkFormat)]
    assert {each.checkpoints for each in written} == {"/checkpoints"}


def test_on_connect_a_pyspark_without_formats_is_refused_by_its_version(
    session: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(register, "has_formats", lambda: False)
    with pytest.raises(
        SetupError, match=f"Spark Connect .* PySpark {pyspark.__version__} has no writer"
    ) as caught:
        onceonly.register(session)
    assert "4.0" in caught.value.next_step
    assert session.formats == []


def test_what_is_registered_already_is_not_given_to_spark_again(session: Any) -> None:  # noqa: ANN401
    onceonly.register(session)
    names = [each.name() for each in session.formats]
    assert len(names) == len(set(names))
    onceonly.register(session)
    assert [each.name() for each in session.formats] == names
    session.conf.getAll["spark.hadoop.fs.s3a.access.key"] = "another"
    onceonly.register(session)
    assert [each.name() for each in session.formats] == [*names, *names]
    kafka = next(each for each in reversed(session.formats) if each.name() == "onceonly.kafka")
    assert kafka.hadoop.access(parse("s3a://bucket/chk")).keys == ("another", "sk", "")


def test_where_nobody_hears_of_epochs_the_doctor_can_read_that_no_group_is_kept(tmp_path: Path) -> None:
    (tmp_path / "onceonly").mkdir()
    lag.unheard(str(tmp_path), "orders-lag")
    state = lag_state.read(notes_store(str(tmp_path)))
    assert state is not None
    assert (state.group, "onceonly.register" in state.told) == ("orders-lag", True)
    lag.unheard(str(tmp_path), "")
    assert lag_state.read(notes_store(str(tmp_path))) is None


def test_a_sink_of_the_users_gives_way_to_none_of_ours(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401
    """Its name may be like that of a source's module."""
    monkeypatch.setattr(registry, "_given", {})
    own = type("Own", (KafkaSink,), {"name": "rabbitmq_stream"})
    onceonly.register(session, own)
    assert {"onceonly.rabbitmq_stream", "onceonly.rabbitmq.stream"} <= {
        each.name() for each in session.formats
    }


def test_two_sessions_of_one_server_are_two_applications(session: Any) -> None:  # noqa: ANN401
    first = connect.application(session, "p")
    session.session_id = "other"
    assert connect.application(session, "p") != first


def test_a_server_that_shows_nothing_leaves_stores_to_the_machine(session: Any) -> None:  # noqa: ANN401
    del session.conf.getAll
    assert connect.hadoop_of(cast("SparkSession", session)).get("fs.s3a.access.key") == ""


def test_each_start_by_a_format_of_ours_has_a_word_of_its_own() -> None:
    given: list[dict[str, Any]] = []

    class Writer:
        def format(self, _source: str) -> Writer:
            return self

        def start(self, _path: str | None = None, **options: Any) -> None:  # noqa: ANN401
            given.append(options)

    asked.wrap(Writer, more=lambda: {START: f".{len(given)}"})
    Writer().format("onceonly.kafka").start()
    Writer().start(format="onceonly.kafka")
    Writer().format("kafka").start()
    assert [each.get(START) for each in given] == [".0", ".1", None]


@pytest.mark.parametrize(
    ("said", "ends_well"),
    [
        ("[UNKNOWN_RESPONSE] Unknown response: Plan observed(__python_accumulator__=[binary]).", True),
        ("[UNKNOWN_RESPONSE] Unknown response: Plan observed(rows=[1]).", False),
    ],
)
def test_a_run_of_a_pipeline_ends_well_though_its_server_tells_of_pythons_accumulators(
    said: str, *, ends_well: bool
) -> None:
    def events(_client: object) -> Iterator[str]:
        yield "Run is COMPLETED."
        raise ValueError(said)

    seen: list[str] = []
    with contextlib.nullcontext() if ends_well else pytest.raises(ValueError, match="rows="):
        seen.extend(connect._ending_well(events)(None))
    assert seen == ["Run is COMPLETED."]


@pytest.mark.parametrize("call", [onceonly.register, lambda _: onceonly.sink("onceonly.console")])
def test_a_pyspark_before_3_5_is_refused_by_its_version(monkeypatch: pytest.MonkeyPatch, call: Any) -> None:  # noqa: ANN401
    monkeypatch.delattr(pyspark.SparkContext, "addJobTag")
    monkeypatch.setattr(pyspark, "__version__", "3.4.1")
    with pytest.raises(SetupError, match=r"PySpark 3\.4\.1 is too old") as caught:
        call(None)
    assert "3.5" in caught.value.next_step


def test_a_collection_is_refused_where_a_source_is_told_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "has_read_limits", lambda: False)
    with pytest.raises(SetupError, match="how much to read") as caught:
        onceonly.collection(MagicMock(), [(1,)], "n int")
    assert "4.2" in caught.value.next_step


@pytest.mark.parametrize(
    ("there", "has"),
    [
        (("DataSourceStreamArrowWriter", "DataSourceArrowWriter"), True),
        (("DataSourceArrowWriter",), True),
        ((), False),
    ],
    ids=["4.1", "4.0", "none for batches"],
)
def test_a_format_needs_a_writer_that_is_given_batches(
    monkeypatch: pytest.MonkeyPatch, *, there: tuple[str, ...], has: bool
) -> None:
    from pyspark.sql import datasource

    for name in {"DataSourceStreamArrowWriter", "DataSourceArrowWriter"} - set(there):
        monkeypatch.delattr(datasource, name, raising=False)
    assert versions.has_formats() is has


def test_without_formats_one_sentence_says_how_queries_are_written(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(register, "has_formats", lambda: False)
    monkeypatch.setattr(register, "_require_same_python", lambda _: None)
    session = MagicMock()
    with caplog.at_level(logging.WARNING, logger="onceonly"):
        onceonly.register(session)
    assert "foreachBatch(onceonly.sink(...))" in caplog.text
    session.dataSource.register.assert_not_called()
    session.streams.addListener.assert_called_once()
