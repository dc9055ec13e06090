"""The data sources of feeds: their columns, what a task is told, and one format for a system that is written, too."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.unit.journal_bench import FEED, LIMITS, OF, opened, rows

from onceonly.errors import ConfigurationError
from onceonly.ports import TwoPhaseCommitSink
from onceonly.settings import registry
from onceonly.sources.journal import Journal, Writer
from onceonly.sources.known import FEEDS
from onceonly.spark.feed_source import FeedReader, columns_of, make_feed_format
from onceonly.spark.format import make_format
from onceonly.stores.access import Hadoop

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("feed", sorted(FEEDS))
def test_a_feed_has_a_value_and_the_time_of_its_arrival(feed: str) -> None:
    made = make_feed_format(feed, Hadoop(), None)({})
    assert made.name() == f"onceonly.{feed}"
    assert made.schema() == columns_of(feed)
    assert [(field.name, field.dataType.simpleString()) for field in columns_of(feed)][:2] == [
        ("value", "binary"),
        ("arrived", "timestamp"),
    ]


def test_one_format_reads_a_socket_and_writes_it() -> None:
    written = make_format("socket", registry.find("socket")[1], "an application")
    made = make_feed_format("socket", Hadoop(), written)({"host": "h", "port": "1"})
    assert isinstance(made, DataSource)
    assert made.name() == "onceonly.socket"
    assert made.schema() == columns_of("socket")
    with pytest.raises(ConfigurationError, match="checkpoint"):
        made.streamWriter(columns_of("socket"), overwrite=False)  # type: ignore[attr-defined, unused-ignore]


def test_a_task_is_told_nothing_of_the_feed(tmp_path: Path) -> None:
    options = {"url": "http://h/", "header.Authorization": "Bearer s3cret", "journal": str(tmp_path)}
    reader = FeedReader("http", options, columns_of("http"), Hadoop())
    assert b"s3cret" not in pickle.dumps(reader)
    assert list(tmp_path.iterdir()) == []


def test_a_query_that_ends_when_it_has_read_all_leaves_a_full_journal_to_take_more(tmp_path: Path) -> None:
    """As one that a scheduler starts: no later call of the same start asks for more."""
    place = tmp_path / "journal"
    options = {"host": "h", "port": "1", "journal": str(place), "receiver": "outside"}
    with opened(place, backlog_bytes=4096) as writer:
        writer.append(rows("a"))
        reader = FeedReader("socket", options, columns_of("socket"), Hadoop())
        start = reader.initialOffset()
        reader.prepareForTriggerAvailableNow()
        end = reader.latestOffset(start, ReadAllAvailable())
        assert (end["segment"], writer.is_full()) == (1, True)
        assert reader.latestOffset(end, ReadAllAvailable()) == end
        assert not writer.is_full()
        reader.stop()


def test_what_a_receiver_outside_keeps_is_told_and_what_it_does_not_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = tmp_path / "journal"
    Writer.open(Journal.at(str(journal)), LIMITS, feed=FEED, of=OF, promise="at-least-once").close()

    def begin(**more: str) -> None:
        options = {"uri": "amqp://h", "queue": "q", "journal": str(journal), "receiver": "outside", **more}
        reader = FeedReader("rabbitmq", options, columns_of("rabbitmq"), Hadoop())
        try:
            reader.initialOffset()
        finally:
            reader.stop()

    begin()
    assert f"onceonly.rabbitmq: at-least-once up to the journal {journal}" in caplog.text
    begin(**{"onceonly.guarantee": "at-least-once"})
    for asked in ("exactly-once", "at-most-once"):
        with pytest.raises(
            ConfigurationError, match=f"cannot be read {asked}: the receiver .* keeps at-least-once"
        ):
            begin(**{"onceonly.guarantee": asked})


def test_a_sink_of_the_users_is_not_named_like_a_feed() -> None:
    class Rabbit(TwoPhaseCommitSink[Any]):  # type: ignore[misc, unused-ignore]
        name = "rabbitmq"

    with pytest.raises(ConfigurationError, match="uses itself"):
        registry.remember(Rabbit)
