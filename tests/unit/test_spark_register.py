"""What ``onceonly.register`` does to a session of Spark Connect, whose driver is elsewhere."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

import onceonly
from onceonly.errors import SetupError
from onceonly.settings.query import START
from onceonly.spark import asked, connect
from onceonly.spark.epoch import Epoch
from onceonly.stores.address import parse

if TYPE_CHECKING:
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
    assert kafka.application == connect.application(session, onceonly.spark.register._PROGRAM)


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


def test_a_foreach_batch_function_is_refused_by_name(session: Any) -> None:  # noqa: ANN401
    with pytest.raises(SetupError, match="Spark Connect"):
        Epoch(cast("Any", SimpleNamespace(sparkSession=session)), 0, cast("Any", None))
