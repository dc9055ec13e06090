"""Guards of Spark's sources in running queries, by the format and by foreachBatch: nothing is lost in silence."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

import ways
from onceonly import errors
from onceonly.checkpoint.files import FolderFiles
from onceonly.guards import known
from onceonly_proof.embedded.kafka_settings import FEEDER
from ways import BY_FORMAT_FIRST, WAIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from onceonly_proof.embedded.kafka import EmbeddedKafka
    from ways import Way

spark, way = ways.spark, ways.way  # fixtures
pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]
GO_ON: dict[str, Any] = {"onceonly.source.changed": "go-on"}


def refused(way: Way, df: DataFrame, **options: Any) -> errors.SourceChangedError:  # noqa: ANN401
    with pytest.raises(Exception, match="ONCEONLY") as caught:
        way.start(df, **options).awaitTermination(WAIT_S)
    found = errors.find_error(caught.value)
    assert isinstance(found, errors.SourceChangedError), caught.value
    return found


def record(way: Way) -> None:
    """Record what guards say from now on, in the process that plans, too."""
    way.record()
    way.arm("")


def told(way: Way) -> str:
    """Return all that guards have said of a query."""
    return "\n".join(event["message"] for event in way.seen("source.finding"))


# ------------------------------------------------------------------------------------------------ files
def read_files(way: Way) -> DataFrame:
    return way.spark.readStream.format("json").schema("id long").load(str(way.folder / "in"))


def put(way: Way, name: str, ids: range) -> Path:
    (way.folder / "in").mkdir(exist_ok=True)
    path = way.folder / "in" / name
    path.write_text("".join(f'{{"id": {n}}}\n' for n in ids), encoding="utf-8")
    return path


def fail_in_epoch(way: Way, df: DataFrame) -> None:
    """Let an epoch die between Spark's note of what it reads and the decision."""
    way.arm("link.before_put=raise")
    with pytest.raises(Exception, match=r"link\.before_put"):
        way.start(df).awaitTermination(WAIT_S)
    way.disarm()


@pytest.mark.parametrize("what", ["gone", pytest.param("anew", marks=pytest.mark.long)])
@BY_FORMAT_FIRST
def test_files_that_a_replay_would_not_read_as_before_stop_the_query(way: Way, what: str) -> None:
    put(way, "1.json", range(5))
    way.run(read_files(way))
    path = put(way, "a b.json", range(5, 10))
    fail_in_epoch(way, read_files(way))
    if what == "gone":
        path.rename(way.folder / "kept")
    else:
        stat = path.stat()
        path.write_text(path.read_text(encoding="utf-8").replace("5", "55"), encoding="utf-8")
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 2_000_000))
    error = refused(way, read_files(way))
    assert str(path) in error.what
    assert way.ids() == list(range(5))
    if what == "gone":
        (way.folder / "kept").rename(path)
        way.run(read_files(way))
        assert way.exactly(10)
    else:
        way.run(read_files(way), **GO_ON)
        assert way.ids() == [*range(5), *range(6, 10), 55]


@pytest.mark.long
def test_a_file_that_is_too_old_to_be_read_is_told(way: Way) -> None:
    put(way, "1.json", range(5))
    way.run(read_files(way))
    old = put(way, "old.json", range(5, 10))
    os.utime(old, (0, 0))
    put(way, "2.json", range(10, 15))
    record(way)
    way.run(read_files(way))
    assert way.ids() == [*range(5), *range(10, 15)]
    assert str(old) in told(way)


# ------------------------------------------------------------------------------------------------ Kafka
def made_anew(kafka: EmbeddedKafka, topic: str, *, partitions: int) -> None:
    """Delete a topic, and make one of its name."""
    admin = kafka.admin()
    admin.delete_topics([topic], operation_timeout=30)[topic].result(30)
    ways.until(lambda: topic not in admin.list_topics(timeout=10).topics, "the end of the topic")
    kafka.create_topic(topic, partitions=partitions)


class Topic:
    """A topic that a query reads ids from."""

    def __init__(self, kafka: EmbeddedKafka, way: Way) -> None:
        self.kafka, self.way = kafka, way
        self.name = f"g{uuid.uuid4().hex[:8]}"
        kafka.create_topic(self.name, partitions=1)

    def anew(self) -> None:
        made_anew(self.kafka, self.name, partitions=1)

    def feed(self, ids: range, **settings: str) -> Producer:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers, **FEEDER, **settings})
        if settings:
            producer.init_transactions(30)
            producer.begin_transaction()
        for n in ids:
            producer.produce(self.name, str(n))
        assert producer.flush(30) == 0
        return producer

    def read(self, **options: str) -> DataFrame:
        return (
            self.way.spark.readStream.format("kafka")
            .options(**{
                "kafka.bootstrap.servers": self.kafka.bootstrap_servers, "subscribe": self.name,
                "startingOffsets": "earliest", **options,
            })
            .load().selectExpr("cast(string(value) as long) as id")
        )  # fmt: skip


@BY_FORMAT_FIRST
def test_a_topic_that_was_made_anew_stops_the_query_though_spark_would_skip_its_rows(
    way: Way, kafka: EmbeddedKafka
) -> None:
    topic = Topic(kafka, way)
    topic.feed(range(5))
    way.run(topic.read())
    topic.anew()
    topic.feed(range(100, 115))
    error = refused(way, topic.read())
    assert f"The topic {topic.name} of the Kafka source is another one" in error.what
    assert way.exactly(5)
    record(way)
    way.run(topic.read(), **GO_ON)
    assert "It goes on, as it was told to" in told(way)
    assert way.ids() == [*range(5), *range(105, 115)]
    topic.feed(range(115, 120))
    way.run(topic.read())  # for one start
    assert way.ids() == [*range(5), *range(105, 120)]


@pytest.mark.long
def test_rows_that_retention_took_stop_the_query_though_it_was_told_to_pass_them_over(
    way: Way, kafka: EmbeddedKafka
) -> None:
    from confluent_kafka import TopicPartition

    topic = Topic(kafka, way)
    topic.feed(range(5))
    record(way)
    way.run(topic.read(failOnDataLoss="false"))
    assert "failOnDataLoss=false" in told(way)
    noted = known.read(FolderFiles(way.folder / "q" / "checkpoint"))
    assert noted is not None
    assert (noted.formats, noted.promise) == (("kafka, failOnDataLoss=false",), "at-most-once")
    topic.feed(range(5, 15))
    place = TopicPartition(topic.name, 0, 10)
    admin = kafka.admin()  # its answers end with it
    admin.delete_records([place])[TopicPartition(topic.name, 0)].result(30)
    error = refused(way, topic.read(failOnDataLoss="false"))
    assert "up to 5 rows are gone" in error.what
    assert way.exactly(5)
    way.run(topic.read(failOnDataLoss="false"), **GO_ON)
    assert way.ids() == [*range(5), *range(10, 15)]


@pytest.mark.long
def test_rows_of_aborted_transactions_are_told_of(way: Way, kafka: EmbeddedKafka) -> None:
    topic = Topic(kafka, way)
    topic.feed(range(5), **{"transactional.id": topic.name}).abort_transaction(30)
    record(way)
    way.run(topic.read())
    assert f"topic {topic.name} is written in transactions" in told(way)
    assert way.exactly(5)  # of a transaction that was aborted: Spark's default


@pytest.mark.long
def test_every_source_of_a_plan_is_seen(way: Way, kafka: EmbeddedKafka) -> None:
    topic = Topic(kafka, way)
    topic.feed(range(5))
    put(way, "1.json", range(5, 10))
    rate = way.spark.readStream.format("rate").option("rowsPerSecond", 1).load().selectExpr("value as id")
    way.run(topic.read().union(read_files(way)).union(rate).union(way.source().select("id")))
    found = known.read(FolderFiles(way.folder / "q" / "checkpoint"))
    assert found is not None
    assert sorted(found.formats) == ["files", "kafka", "onceonly.collection", "rate"]
    assert found.promise == "exactly-once"
    assert list(found.topics) == [topic.name]


@pytest.mark.long
def test_what_is_not_seen_is_said_once(
    way: Way, kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onceonly.spark import spans

    topic = Topic(kafka, way)
    topic.feed(range(5))
    monkeypatch.setattr(spans, "read_sources", lambda _: None)
    record(way)
    way.run(topic.read(maxOffsetsPerTrigger="2"))
    assert told(way).count("nothing of them is watched") == 1
    login = {
        "onceonly.source.format": "kafka",
        "onceonly.source.option.kafka.bootstrap.servers": kafka.bootstrap_servers,
    }
    topic.feed(range(5, 10))
    way.run(topic.read(), **login)
    topic.anew()
    topic.feed(range(100, 115))
    assert topic.name in refused(way, topic.read(), **login).what
