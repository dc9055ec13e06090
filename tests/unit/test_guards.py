"""Guards of Spark's sources: what is told of files, which source a topic is of, and when a query stops."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest
from tests.unit.journal_bench import read_upto, rows

from onceonly import failpoints
from onceonly.checkpoint.files import FolderFiles
from onceonly.coordinator.query import QueryCoordinator
from onceonly.errors import ConfigurationError, LogError, SourceChangedError, UnavailableError
from onceonly.executor.ballot import Ballot
from onceonly.guards import folders, guard, kafka, known
from onceonly.guards.guard import Guard
from onceonly.guards.known import Known
from onceonly.guards.source import FILES, KAFKA, Finding, Source, merged
from onceonly.log.opening import look
from onceonly.model import Guarantee, Vote
from onceonly.ports import WriteContext
from onceonly.settings.query import GoOn, QuerySettings, SinkSettings, parse, parse_query
from onceonly.settings.registry import remember
from onceonly.sources.journal import Journal, Limits, Position, Writer
from onceonly_proof.memory_sink import MemorySink

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

EXACTLY, AT_MOST = [Guarantee.EXACTLY_ONCE], [Guarantee.AT_MOST_ONCE]
DAY_S = 86_400


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    found = tmp_path / "chk"
    for name in ("offsets", "sources/0", "onceonly"):
        (found / name).mkdir(parents=True)
    return found


def note(checkpoint: Path, epoch: int, *paths: Path, end: str | None = None) -> None:
    """Have Spark list files for an epoch."""
    lines = [
        json.dumps({"path": path.as_uri(), "timestamp": path.stat().st_mtime_ns // 10**6, "batchId": epoch})
        for path in paths
    ]
    (checkpoint / "sources" / "0" / str(epoch)).write_text("\n".join(["v1", *lines]))
    (checkpoint / "offsets" / str(epoch)).write_text(f"v1\n{{}}\n{end or json.dumps({'logOffset': epoch})}")


def file(folder: Path, name: str, *, age_s: float = 0.0) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("row\n")
    now_s = 1_700_000_000.0
    os.utime(path, (now_s - age_s, now_s - age_s))
    return path


def made(
    checkpoint: Path, *sources: Source, changed: GoOn = GoOn.STOP, seen: bool = True, **more: str
) -> Guard:
    settings = QuerySettings(checkpoint=str(checkpoint), source_changed=changed, **more)  # type: ignore[arg-type]
    return Guard("q", FolderFiles(checkpoint), settings, lambda: sources if seen else None)


# ------------------------------------------------------------------------------------------------ files
def test_a_file_that_is_gone_before_a_replay_stops_the_query_by_its_name(
    checkpoint: Path, tmp_path: Path
) -> None:
    kept, gone = file(tmp_path / "in", "kept.txt"), file(tmp_path / "in", "a b%.txt")
    note(checkpoint, 0, kept, gone)
    source = Source(FILES, {"path": str(tmp_path / "in")})
    made(checkpoint, source).look(0, EXACTLY)
    gone.unlink()
    with pytest.raises(SourceChangedError, match=r"chk-0: 1 file .* is gone: \S*/in/a b%\.txt\.") as caught:
        made(checkpoint, source).look(0, EXACTLY)
    assert "kept.txt" not in caught.value.what
    assert "onceonly.source.changed=go-on" in caught.value.next_step
    assert not caught.value.restartable


def test_where_spark_itself_takes_files_away_that_is_named_and_the_way_on(
    checkpoint: Path, tmp_path: Path
) -> None:
    gone = file(tmp_path / "in", "a.txt")
    note(checkpoint, 0, gone)
    gone.unlink()
    with pytest.raises(SourceChangedError) as caught:
        made(checkpoint, Source(FILES, {"cleansource": "Archive"})).look(0, EXACTLY)
    for said in ("cleanSource=archive", "onceonly.source.changed=go-on and onceonly.replay=tell"):
        assert said in caught.value.next_step
    with pytest.raises(SourceChangedError) as caught:
        made(checkpoint, Source(FILES, {"cleansource": "off"})).look(0, EXACTLY)
    assert "cleanSource" not in caught.value.next_step


def test_a_file_that_was_written_anew_or_touched_stops_the_query(checkpoint: Path, tmp_path: Path) -> None:
    touched = file(tmp_path / "in", "a.txt")
    note(checkpoint, 0)
    note(checkpoint, 1, touched)
    os.utime(touched, (1_700_000_009, 1_700_000_009))
    with pytest.raises(
        SourceChangedError, match=r"chk-1: 1 file .* changed since Spark listed them: .*/a.txt"
    ):
        made(checkpoint, Source(FILES)).look(1, EXACTLY)


def test_files_of_epochs_before_may_go(checkpoint: Path, tmp_path: Path) -> None:
    first, second = file(tmp_path / "in", "1.txt"), file(tmp_path / "in", "2.txt")
    note(checkpoint, 0, first)
    note(checkpoint, 1, second)
    first.unlink()
    made(checkpoint, Source(FILES)).look(1, EXACTLY)


def test_who_has_chosen_to_go_on_is_told_and_goes_on(
    checkpoint: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gone = file(tmp_path / "in", "a.txt")
    note(checkpoint, 0, gone)
    gone.unlink()
    made(checkpoint, Source(FILES), changed=GoOn.GO_ON).look(0, EXACTLY)
    assert "chk-0: 1 file that chk-0 reads is gone" in caplog.text
    assert "It goes on, as it was told to" in caplog.text
    made(checkpoint, Source(FILES)).look(0, AT_MOST)
    with pytest.raises(SourceChangedError):
        made(checkpoint, Source(FILES)).look(0, [*EXACTLY, *AT_MOST])


def test_files_on_a_store_are_said_not_to_be_watched(
    checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entry = json.dumps({"path": "s3a://bucket/in/a.txt", "timestamp": 1, "batchId": 0})
    note(checkpoint, 0)
    (checkpoint / "sources" / "0" / "0").write_text(f"v1\n{entry}")
    made(checkpoint, Source(FILES)).look(0, EXACTLY)
    assert "1 file that chk-0 reads is not watched" in caplog.text


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "1 file of the file source will never be read"),
        ({"maxfileage": "9 days"}, ""),
        ({"maxfileage": "691200001"}, ""),  # of milliseconds, as Spark reads it
        ({"maxfileage": "3600000"}, "maxFileAge (3600000)"),
        ({"pathglobfilter": "*.json"}, ""),
        ({"latestfirst": "true"}, "will never be read"),
        ({"latestfirst": "true", "maxfilespertrigger": "1"}, ""),
        ({"latestfirst": "true", "maxfilespertrigger": "1", "maxfileage": "1d"}, "maxFileAge has no effect"),
    ],
)
def test_a_file_that_is_too_old_to_be_ever_read_is_told(
    checkpoint: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, options: dict[str, str], told: str
) -> None:
    new = file(tmp_path / "in", "new.txt")
    note(checkpoint, 0, new)
    file(tmp_path / "in", "old.txt", age_s=8 * DAY_S)
    file(tmp_path / "in", "_hidden", age_s=8 * DAY_S)
    made(checkpoint, Source(FILES, {"path": str(tmp_path / "in"), **options})).look(0, EXACTLY)
    found = [each for each in caplog.messages if "file source" in each]
    assert [told in each and ("old.txt" in each or "no effect" in told) for each in found] == [True] * bool(
        told
    )


def test_old_files_that_were_read_or_come_before_all_others_are_not_told(
    checkpoint: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = file(tmp_path / "in", "old.txt", age_s=8 * DAY_S)
    source = Source(FILES, {"path": str(tmp_path / "in")})
    note(checkpoint, 0)
    made(checkpoint, source).look(0, EXACTLY)
    note(checkpoint, 1, old)
    note(checkpoint, 2, file(tmp_path / "in", "new.txt"))
    # As Spark repeats lists.
    lists = checkpoint / "sources" / "0"
    (lists / "1.compact").write_text((lists / "1").read_text())
    (lists / "0").unlink()
    (lists / "1").unlink()
    made(checkpoint, source).look(2, EXACTLY)
    assert "never be read" not in caplog.text


# ------------------------------------------------------------------------------------------------ Kafka
def test_offsets_of_kafka_are_told_from_those_of_others() -> None:
    assert kafka.offsets_of('{"t":{"0":5,"1":0}}') == {"t": {0: 5, 1: 0}}
    assert kafka.offsets_of('\x00v1\n{"t":{"0":5}}') == {"t": {0: 5}}  # as a source notes where it begins
    for other in ("-", "7", '{"logOffset":7}', '{"rows":3,"fingerprint":"a"}', "", '{"a":{"b":1}}', "{}"):
        assert kafka.offsets_of(other) is None


class Asked:
    """Stands for the clusters: which source was asked for what, and what it answers."""

    def __init__(self, **ids: str) -> None:
        self.ids = ids
        self.findings: list[Finding] = []
        self.error: Exception | None = None
        self.seen: list[tuple[str, kafka.Standing, Mapping[str, tuple[str, ...]]]] = []

    def look(
        self, source: Source, standing: kafka.Standing, known: Mapping[str, tuple[str, ...]], *, epoch: int
    ) -> tuple[dict[str, str], Sequence[Finding]]:
        self.seen.append((source.options["kafka.bootstrap.servers"], standing, dict(known)))
        assert epoch >= 0
        if self.error is not None:
            raise self.error
        return {topic: self.ids[topic] for topic in standing.ends}, self.findings


def on(servers: str, topic: str) -> Source:
    return Source(KAFKA, {"kafka.bootstrap.servers": servers, "subscribe": topic})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    made = Asked(a="id-a", b="id-b")
    monkeypatch.setattr(kafka, "look", made.look)
    return made


def test_ids_of_topics_are_kept_and_compared_at_the_next_start(checkpoint: Path, asked: Asked) -> None:
    note(checkpoint, 0, end='{"a":{"0":5}}')
    (checkpoint / "sources" / "0" / "0").write_text('v1\n{"a":{"0":2}}')
    made(checkpoint, on("x", "a")).look(0, EXACTLY)
    note(checkpoint, 1, end='{"a":{"0":9}}')
    made(checkpoint, on("x", "a")).look(1, EXACTLY)
    assert asked.seen == [
        ("x", kafka.Standing({"a": {0: 5}}, {"a": {0: 2}}), {}),
        ("x", kafka.Standing({"a": {0: 9}}, {"a": {0: 5}}), {"a": ("id-a",)}),
    ]
    assert known.read(FolderFiles(checkpoint)) == Known(
        formats=("kafka",), promise="exactly-once", topics={"a": ("id-a",)}, since={"a": 0}
    )


def test_the_id_of_a_topic_made_anew_is_kept_only_where_the_query_goes_on(
    checkpoint: Path, asked: Asked
) -> None:
    note(checkpoint, 0, end='{"a":{"0":5}}')
    made(checkpoint, on("x", "a")).look(0, EXACTLY)
    asked.ids["a"], asked.findings = "new", [Finding("anew", "look", stops=True)]
    for _ in range(2):
        with pytest.raises(SourceChangedError, match="anew"):
            made(checkpoint, on("x", "a")).look(0, EXACTLY)
    made(checkpoint, on("x", "a"), changed=GoOn.GO_ON).look(0, EXACTLY)
    asked.findings = []
    made(checkpoint, on("x", "a")).look(0, EXACTLY)
    assert [seen for _, _, seen in asked.seen] == [{}, *[{"a": ("id-a",)}] * 3, {"a": ("new",)}]


@pytest.mark.parametrize("is_seen_without", [False, True])
def test_a_topic_that_was_left_out_is_new_when_it_is_taken_in_again(
    checkpoint: Path, asked: Asked, *, is_seen_without: bool
) -> None:
    """Whatever it was before; once it was read again, it must stay what it is."""
    note(checkpoint, 0, end='{"a":{"0":1},"b":{"0":1}}')
    made(checkpoint, on("x", "a")).look(0, EXACTLY)
    note(checkpoint, 1, end='{"a":{"0":2}}')
    if is_seen_without:
        made(checkpoint, on("x", "a")).look(1, EXACTLY)
    asked.ids["b"] = "another"
    note(checkpoint, 2, end='{"a":{"0":3},"b":{"0":1}}')
    for _ in range(2):  # it is killed, and the epoch is replayed
        made(checkpoint, on("x", "a")).look(2, EXACTLY)
    note(checkpoint, 3, end='{"a":{"0":4},"b":{"0":2}}')
    made(checkpoint, on("x", "a")).look(3, EXACTLY)
    only_a, both = {"a": ("id-a",)}, {"a": ("id-a",), "b": ("another",)}
    assert [seen for _, _, seen in asked.seen[-3:]] == [only_a, both, both]


def test_a_topic_that_is_left_out_and_taken_in_between_two_looks_is_new(
    checkpoint: Path, asked: Asked
) -> None:
    note(checkpoint, 0, end='{"a":{"0":1},"b":{"0":1}}')
    made(checkpoint, on("x", "a")).look(0, EXACTLY)
    note(checkpoint, 1, end='{"a":{"0":2}}')
    made(checkpoint, on("x", "a")).look(1, EXACTLY)
    note(checkpoint, 9, end='{"a":{"0":2},"b":{"0":1}}')
    note(checkpoint, 10, end='{"a":{"0":3},"b":{"0":2}}')
    made(checkpoint, on("x", "a")).look(10, EXACTLY)
    assert asked.seen[-1][2] == {"a": ("id-a",)}


def test_each_topic_is_asked_of_the_source_that_reads_it(
    checkpoint: Path, asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    text = 'v1\n{}\n{"a":{"0":5}}\n{"logOffset":1}\n{"b":{"0":5}}\n{"c":{"0":5}}'
    (checkpoint / "offsets" / "0").write_text(text)
    assigned = Source(KAFKA, {"kafka.bootstrap.servers": "y", "assign": '{"b":[0]}'})
    made(checkpoint, on("x", "a"), assigned).look(0, EXACTLY)
    assert [(servers, *standing.ends) for servers, standing, _ in asked.seen] == [("x", "a"), ("y", "b")]
    assert "The topics c are not watched" in caplog.text


def test_each_topic_is_asked_as_the_source_does_that_reads_it_though_all_are_of_one_cluster(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one may have no right to it, or read committed rows alone."""
    ends = '{"a":{"0":5}}', '{"b":{"0":5}}', '{"c-1":{"0":5},"c-2":{"0":5}}', '{"d":{"0":5}}'
    (checkpoint / "offsets" / "0").write_text("\n".join(["v1", "{}", *ends]))
    seen: dict[str, str] = {}

    def looked(source: Source, standing: kafka.Standing, *_: object, epoch: int) -> object:
        seen.update(dict.fromkeys(standing.ends, source.options["user"]))
        return dict.fromkeys(standing.ends, f"id {epoch}"), []

    monkeypatch.setattr(kafka, "look", looked)
    told = {"assign": '{"a":[0]}'}, {"subscribe": "x, b"}, {"subscribepattern": "c-.*"}
    sources = [
        Source(KAFKA, {"kafka.bootstrap.servers": "x", "user": str(number), **options})
        for number, options in enumerate(told)
    ]
    made(checkpoint, *sources).look(0, EXACTLY)
    assert seen == {"a": "0", "b": "1", "c-1": "2", "c-2": "2", "d": "0"}


def test_what_cannot_be_asked_is_said_not_to_be_watched_unless_it_was_before(
    checkpoint: Path, asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    note(checkpoint, 0, end='{"a":{"0":5}}')
    asked.error = ConfigurationError("a Java keystore", next_step="use PEM")
    made(checkpoint, on("x", "a")).look(0, EXACTLY)
    assert (
        "The topics a are not watched: a Java keystore. Next: use PEM; or say with onceonly.source.option."
        in (caplog.text)
    )
    asked.error = UnavailableError("silence", next_step="wait")
    made(checkpoint, on("x", "a")).look(0, EXACTLY)
    asked.error = None
    made(checkpoint, on("x", "a")).look(0, EXACTLY)
    asked.error = UnavailableError("silence", next_step="wait")
    with pytest.raises(UnavailableError, match="silence"):
        made(checkpoint, on("x", "a")).look(0, EXACTLY)
    made(checkpoint, on("x", "a"), changed=GoOn.GO_ON).look(0, EXACTLY)


def test_without_kafkas_client_topics_are_said_not_to_be_watched(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "kafka", None)
    monkeypatch.delitem(sys.modules, "onceonly.sinks.kafka.wire.requests", raising=False)
    note(checkpoint, 0, end='{"a":{"0":5}}')
    made(checkpoint, on("localhost:1", "a")).look(0, EXACTLY)
    assert "The topics a are not watched: asking Kafka needs the package kafka-python" in caplog.text
    assert "pip install 'onceonly[kafka]'" in caplog.text


def test_what_is_known_of_sources_may_be_damaged_without_a_dead_end(checkpoint: Path) -> None:
    note(checkpoint, 0)
    made(checkpoint, Source("rate")).look(0, EXACTLY)
    path = checkpoint / "onceonly" / "sources.json"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(LogError, match="torn") as caught:
        made(checkpoint, Source("rate")).look(0, EXACTLY)
    assert "onceonly.source.changed=go-on" in caught.value.next_step
    made(checkpoint, Source("rate"), changed=GoOn.GO_ON).look(0, EXACTLY)
    made(checkpoint, Source("rate")).look(0, EXACTLY)


# -------------------------------------------------------------------------------------- who tells of them
def test_what_was_decided_is_committed_though_the_source_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    MemorySink.stores.clear()
    remember(MemorySink)
    for folder in ("offsets", "commits", "sources/0"):
        (tmp_path / "chk" / folder).mkdir(parents=True)
    (tmp_path / "chk" / "metadata").write_text(json.dumps({"id": "q"}))
    path = file(tmp_path / "in", "a.txt")
    note(tmp_path / "chk", 0, path)

    def started(*sources: Source) -> QueryCoordinator:
        settings = QuerySettings(checkpoint=str(tmp_path / "chk"))
        found = QueryCoordinator(settings, actor="driver", application="a", sources=lambda _: sources)
        found.enlist(SinkSettings(name="memory"), MemorySink, ())
        return found

    first = started(Source(FILES))
    plan = first.plan(0, run="r")
    sink = MemorySink({})
    context = WriteContext(
        query="q", sink="memory", run="r", epoch=0, plan=plan.id, slot=0, attempt="0", guarantee=EXACTLY[0]
    )
    handle = sink.pre_commit(sink.begin_transaction(context))
    vote = Vote(
        sink="memory", epoch=0, slot=0, plan=plan.id, run="r", attempt="0", rows=1, checksum="xxh3:0", handle=handle
    )  # fmt: skip
    monkeypatch.setattr(failpoints, "_counts", {})
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", "commit.before_handle=raise")
    with pytest.raises(failpoints.FailpointError):
        first.decide(plan, [Ballot(vote=vote)])
    monkeypatch.delenv("ONCEONLY_FAILPOINTS")
    assert look(str(tmp_path / "chk"))[0].receipt(0) is None
    path.unlink()
    with pytest.raises(SourceChangedError):
        started(Source(FILES)).plan(0, run="s")
    assert look(str(tmp_path / "chk"))[0].receipt(0) is not None


def test_where_nobody_sees_the_sources_it_is_said_what_is_not_watched(
    checkpoint: Path, asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    note(checkpoint, 0, end='{"a":{"0":5}}')
    made(checkpoint, seen=False).look(0, EXACTLY)
    assert "nothing of them is watched: topics made anew" in caplog.text
    assert not asked.seen


def test_a_receiver_outside_says_itself_what_it_promises(
    checkpoint: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the query's options would promise: they are not those with which it was started."""
    journal = tmp_path / "journal"
    outside = Source("onceonly.rabbitmq", {"journal": str(journal), "receiver": "outside"})
    note(checkpoint, 0)

    def told(promise: str) -> tuple[str, tuple[str, ...]]:
        if promise:
            limits = Limits(segment_bytes=1024, backlog_bytes=1024**2)
            Writer.open(Journal.at(str(journal)), limits, feed="f", of="o", promise=promise).close()
        made(checkpoint, outside).look(0, EXACTLY)
        found = known.read(FolderFiles(checkpoint))
        assert found is not None
        return found.promise, found.formats

    assert told("") == ("exactly-once", ("onceonly.rabbitmq",))  # of an older one, which says nothing
    assert told("at-least-once") == ("at-least-once", ("onceonly.rabbitmq, at-least-once",))
    assert told("exactly-once") == ("exactly-once", ("onceonly.rabbitmq",))
    with Writer.open(Journal.at(str(journal)), Limits(), feed="f", of="o", promise="at-least-once") as writer:
        writer.append(rows("a"))
    assert told("exactly-once") == (
        "at-least-once",
        ("onceonly.rabbitmq, at-least-once", "onceonly.rabbitmq"),
    )
    read_upto(journal, 1)
    assert told("exactly-once") == ("exactly-once", ("onceonly.rabbitmq",))
    (journal / "receiving").write_bytes(b"torn")
    caplog.clear()
    assert told("") == ("exactly-once", ("onceonly.rabbitmq",))
    assert "What the receiver of onceonly.rabbitmq promises is not known" in caplog.text


@pytest.mark.parametrize("receiver", ["inside", "outside"])
def test_what_was_taken_under_a_weaker_promise_counts_until_it_is_read(
    checkpoint: Path, tmp_path: Path, receiver: str
) -> None:
    """Also where the receiver is inside the query, whose options say more by now."""
    place = tmp_path / "journal"
    journal = Journal.at(str(place))
    for promise in ("at-least-once", "exactly-once"):
        with Writer.open(journal, Limits(), feed="f", of="o", promise=promise) as writer:
            writer.append(rows(promise))
    identity = journal.identity()
    assert identity is not None
    source = Source("onceonly.rabbitmq", {"journal": str(place), "receiver": receiver})
    for epoch, promised in ((1, "at-least-once"), (2, "exactly-once")):  # which begin after segment 0, and 1
        note(checkpoint, epoch - 1, end=json.dumps(Position(identity.journal, "r", epoch - 1).offset))
        made(checkpoint, source).look(epoch, EXACTLY)
        found = known.read(FolderFiles(checkpoint))
        assert found is not None
        assert found.promise == promised


@pytest.mark.parametrize("seen", [False, True])
def test_each_start_looks_once_however_many_processes_plan_for_it(
    checkpoint: Path, caplog: pytest.LogCaptureFixture, *, seen: bool
) -> None:
    """As on Spark Connect, where no planner process lives as long as the query."""
    note(checkpoint, 0)
    settings = QuerySettings(checkpoint=str(checkpoint))
    lossy = [Source("socket")]

    def look(start: str) -> int:
        caplog.clear()
        for _ in range(3):
            Guard("q", FolderFiles(checkpoint), settings, lambda: lossy if seen else None, start).look(
                0, EXACTLY
            )
        return len(caplog.records)

    assert [look(start) for start in ("one", "two", "two", "")] == [1, 1, 0, 3]


def test_options_of_the_user_take_the_place_of_the_plans_login() -> None:
    given = {"kafka.bootstrap.servers": "y", "kafka.security.protocol": "SSL"}
    planned = Source(
        KAFKA, {"kafka.bootstrap.servers": "x", "kafka.ssl.truststore.location": "/jks", "subscribe": "a"}
    )
    assert merged(None, {}, "") is None
    assert merged(None, given, KAFKA) == (Source(KAFKA, given),)
    assert merged([planned, Source("rate")], given, KAFKA) == (
        Source(KAFKA, {"subscribe": "a", **given}),
        Source("rate"),
    )
    found = merged([planned], {"failondataloss": "false"}, KAFKA)
    assert found is not None
    assert found[0].options["kafka.bootstrap.servers"] == "x"


def test_options_for_the_guards_are_read_and_do_not_show_themselves() -> None:
    given = {
        "checkpointLocation": "/c", "onceonly.source.format": "Kafka", "onceonly.source.changed": "GO-ON",
        "onceonly.source.option.kafka.sasl.password": "canary", "topic": "t",
    }  # fmt: skip
    settings = parse(given, default_name="kafka")
    assert settings.query is not None
    assert (settings.query.source_format, settings.query.source_changed) == ("kafka", GoOn.GO_ON)
    assert settings.query.source == (("kafka.sasl.password", "canary"),)
    assert settings.sink.options == {"topic": "t"}
    assert "canary" not in repr(settings)
    for wrong, said in (
        ({"onceonly.source.option.path": "/in"}, "does not say of which"),
        ({"onceonly.source.format": "rate"}, "nothing is watched of such a source"),
        ({"onceonly.source.changed": "never"}, "cannot be 'never'"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            parse_query({"checkpointlocation": "/c", **wrong})


def test_sources_do_not_show_their_options() -> None:
    assert "canary" not in repr(Source(KAFKA, {"kafka.sasl.password": "canary"}))
    assert guard.reader_of([on("x", "a"), on("y", "a")], ["a"]) is None
    assert folders.local("hdfs://n/in") is None
