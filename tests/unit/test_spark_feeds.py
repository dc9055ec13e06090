"""The data sources of feeds: their columns, what a task is told, and one format for a system that is written, too."""

from __future__ import annotations

import pickle
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.unit.feed_bench import one_start
from tests.unit.journal_bench import FEED, LIMITS, OF, opened, reader_of, rows
from tests.unit.scripted_server import EVENTS, STALL, ScriptedServer

from onceonly.errors import ConfigurationError, JournalError
from onceonly.operations.journals import drop_reader
from onceonly.ports import TwoPhaseCommitSink
from onceonly.settings import registry
from onceonly.sources.asked import ask
from onceonly.sources.journal import Journal, Reader, Writer
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


def test_a_journal_at_a_relative_path_is_at_the_same_place_for_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "journal") as writer:
        writer.append(rows("a", "b").drop_columns("id"))
    monkeypatch.chdir(tmp_path)
    options = {"host": "h", "port": "1", "journal": "journal", "receiver": "outside"}
    reader = FeedReader("socket", options, columns_of("socket"), Hadoop())
    start = reader.initialOffset()
    [share] = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    reader.stop()
    there = pickle.loads(pickle.dumps(reader))  # noqa: S301  its own
    monkeypatch.chdir("/")
    assert sum(batch.num_rows for batch in there.read(share)) == 2


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


def test_what_a_receiver_outside_has_taken_under_a_weaker_promise_counts_until_it_is_read(
    tmp_path: Path,
) -> None:
    """And no longer: the query need not wait for another start of the receiver."""
    place = tmp_path / "journal"
    journal = Journal.at(str(place))
    more = {"receiver": "outside", "onceonly.guarantee": "exactly-once"}
    with Writer.open(journal, LIMITS, feed=FEED, of=OF, promise="at-least-once") as writer:
        writer.append(rows("a"))
    with Writer.open(journal, LIMITS, feed=FEED, of=OF, promise="exactly-once") as writer:
        with pytest.raises(ConfigurationError, match="keeps at-least-once and exactly-once"):
            one_start(place, None, **more)
        end = one_start(place, None, receiver="outside").end
        writer.append(rows("b"))
        assert one_start(place, end, **more).end["segment"] == 2


def test_what_the_query_itself_has_taken_under_a_weaker_promise_is_told_or_refused_until_it_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "journal"
    with ScriptedServer([EVENTS, b"id: 2\ndata: b\n\n", STALL], http=True) as server:
        url = f"http://127.0.0.1:{server.port}/rows"
        exactly = {"url": url, "resume": "header:Last-Event-ID"}
        of = ask("http", {"journal": str(place), **exactly}).feed.of
        with Writer.open(
            Journal.at(str(place)), LIMITS, feed="http", of=of, promise="at-most-once"
        ) as writer:
            writer.append(rows("1"))
        asked = {**exactly, "onceonly.guarantee": "exactly-once"}
        with pytest.raises(
            ConfigurationError, match="at-most-once was what held when they were taken"
        ) as refused:
            one_start(place, None, "http", **asked)
        assert "receiver=outside" in refused.value.next_step
        one_start(place, None, "http", **exactly)
        assert f"onceonly.http: at-most-once and exactly-once up to the journal {place}" in caplog.text
        drop_reader(str(place))
        end = one_start(place, None, "http", url=url, receiver="outside").end  # as the refusal says
        caplog.clear()
        one_start(place, end, "http", **asked)
        assert "up to the journal" not in caplog.text


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("another place", "is not the one that the query has read: there is none"),
        ("an older copy", "ends with segment 0, and this query has read up to 1"),
        ("an older checkpoint", "was read up to segment 1 for good, and the query goes on after 0"),
        ("a new checkpoint", "was read up to segment 2 by another query, or on another checkpoint"),
    ],
)
def test_a_start_that_is_refused_takes_nothing_from_its_feed(tmp_path: Path, wrong: str, says: str) -> None:
    """A queue gives once what it is told to be durable: it would lie in a journal that nobody reads."""
    place = tmp_path / "journal"
    with ScriptedServer(
        [EVENTS, b"id: 1\ndata: a\n\n", STALL], [EVENTS, b"id: 2\ndata: b\n\n", STALL], http=True
    ) as server:
        options = {"url": f"http://127.0.0.1:{server.port}/", "resume": "header:Last-Event-ID"}
        of = ask("http", {"journal": str(place), **options}).feed.of
        Journal.at(str(place)).make("http", of)
        shutil.copytree(place, tmp_path / "older")
        first = one_start(place, None, "http", **options)
        second = one_start(place, first.end, "http", **options)
        assert (first.ids, second.ids) == (["1"], ["2"])
        after: dict[str, Any] | None = first.end
        match wrong:
            case "another place":
                place = tmp_path / "typo"
            case "an older copy":
                shutil.rmtree(place)
                shutil.copytree(tmp_path / "older", place)
            case "an older checkpoint":
                reader = reader_of(place)
                for end in (1, 2):
                    reader.commit(end)
                reader.close()
                after = {**first.end, "segment": 0, "writer": ""}
            case "a new checkpoint":
                after = None
        asked = server.connections
        with pytest.raises(JournalError, match=says):
            one_start(place, after, "http", **options)
        assert server.connections == asked
        assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize("noted", ["it has asked for more", "it has planned another epoch"])
def test_a_first_epoch_whose_end_a_power_cut_took_from_sparks_checkpoint_is_run_again(
    tmp_path: Path, noted: str
) -> None:
    """Ours of what was read stands by then. Who begins anew is refused all the same."""
    place = tmp_path / "journal"
    options = {"host": "h", "port": "1", "journal": str(place), "receiver": "outside"}

    def begun() -> tuple[FeedReader, dict[str, Any]]:
        reader = FeedReader("socket", options, columns_of("socket"), Hadoop())
        return reader, reader.initialOffset()

    with opened(place) as writer:
        writer.append(rows("a"))
        writer.append(rows("b"))
        reader, start = begun()
        end = reader.latestOffset(start, ReadAllAvailable())
        first = [repr(each) for each in reader.partitions(start, end)]
        if noted == "it has asked for more":
            reader._reader.stand(end["segment"])
        else:
            reader.commit(end)
        reader.stop()
        reader, start = begun()
        assert [repr(each) for each in reader.partitions(start, end)] == first
        writer.append(rows("c"))
        following = reader.latestOffset(end, ReadAllAvailable())
        assert following["segment"] == 3
        reader.commit(end)
        reader.stop()
        reader, start = begun()
        with pytest.raises(JournalError, match="was read up to segment 2 by another query"):
            reader.latestOffset(start, ReadAllAvailable())
        reader.stop()


def test_a_start_whose_journal_another_query_reads_leaves_no_receiver_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(Reader.__init__.__kwdefaults__ or {}, "wait_s", 0)
    with ScriptedServer([EVENTS, STALL], http=True) as server:
        options = {"url": f"http://127.0.0.1:{server.port}/", "resume": "header:Last-Event-ID"}
        of = ask("http", {"journal": str(tmp_path), **options}).feed.of
        Journal.at(str(tmp_path)).make("http", of)
        reader = reader_of(tmp_path)
        with pytest.raises(ConfigurationError, match="another query reads the journal"):
            one_start(tmp_path, None, "http", **options)
        Writer.open(Journal.at(str(tmp_path)), LIMITS, feed="http", of=of, wait_s=0).close()
        reader.close()


def test_a_sink_of_the_users_is_not_named_like_a_feed() -> None:
    class Rabbit(TwoPhaseCommitSink[Any]):  # type: ignore[misc, unused-ignore]
        name = "rabbitmq"

    with pytest.raises(ConfigurationError, match="uses itself"):
        registry.remember(Rabbit)
