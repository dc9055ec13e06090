"""What monitors of consumers' lag say of the groups that hold a healthy query's markers: that nothing lags."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import OffsetSpec
from kafka_query import PROPERTIES, Query

from onceonly.jars.java import find_java
from onceonly.model import Committed, Handle
from onceonly.sinks.kafka import KafkaSink
from onceonly.sinks.kafka.checks.marker_topic import name_of
from onceonly.sinks.kafka.outcomes import marker
from onceonly_proof.embedded.jars import broker_classpath
from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.integration,
    # kafka-python 3.0 reads its schemas by a function that importlib has deprecated.
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]

EPOCHS, ROWS = 4, 50
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(properties={**PROPERTIES, "auto.create.topics.enable": "false"}) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def query(broker: EmbeddedKafka) -> Query:
    """Some epochs of two slots, all of whose rows are there."""
    query = Query(broker)
    for epoch in range(EPOCHS):
        for slot in (0, 1):
            values = [f"{epoch}-{slot}-{number}" for number in range(ROWS)]
            assert query.commit(query.prepare(*values, epoch=epoch, slot=slot)) == Committed()
    return query


def offsets(broker: EmbeddedKafka, group: str) -> dict[tuple[str, int], tuple[int, int]]:
    """Return what a group has committed, and the end of each partition, as an exporter asks for them."""
    admin = broker.admin()
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
    committed = {(each.topic, each.partition): each.offset for each in answer.topic_partitions}
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    wanted = {TopicPartition(*place): latest for place in committed}
    ends = {
        (each.topic, each.partition): future.result(30).offset
        for each, future in admin.list_offsets(wanted).items()
    }
    return {place: (committed[place], ends[place]) for place in committed}


def groups(query: Query) -> list[str]:
    return [marker.group_name("onceonly", query.id, "kafka", slot) for slot in (0, 1)]


def test_a_lag_exporters_formula_gives_no_lag(broker: EmbeddedKafka, query: Query) -> None:
    """As kafka-lag-exporter, kafka_exporter and KMinion: the end less what is committed, not below 0."""
    for group in groups(query):
        shown = offsets(broker, group)
        assert {place: max(end - committed, 0) for place, (committed, end) in shown.items()} == {
            (name_of("onceonly"), 0): 0
        }
        assert all(committed <= end for committed, end in shown.values()), "none is ahead of its end either"


def test_burrows_rule_says_ok(broker: EmbeddedKafka, query: Query) -> None:
    """Its first rule: a partition of which any commit in the window has lag 0 is OK."""
    for group in groups(query):
        window = [end - committed for committed, end in offsets(broker, group).values()]
        assert 0 in window


def test_kafkas_own_tool_shows_no_lag(broker: EmbeddedKafka, query: Query) -> None:
    (group, _) = groups(query)
    shown = subprocess.run(
        [
            *(str(find_java()), "-cp", ":".join(map(str, broker_classpath())), TOOL),
            *("--bootstrap-server", broker.bootstrap_servers, "--describe", "--group", group),
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout
    head, row = (line.split() for line in shown.splitlines() if group in line or "CURRENT-OFFSET" in line)
    found = dict(zip(head, row, strict=False))
    assert (found["TOPIC"], found["CURRENT-OFFSET"], found["LAG"]) == (name_of("onceonly"), "0", "0")


def test_the_markers_topic_has_one_partition_and_is_empty(broker: EmbeddedKafka, query: Query) -> None:
    del query
    admin = broker.admin()
    topic = admin.list_topics(name_of("onceonly"), timeout=30).topics[name_of("onceonly")]
    assert len(topic.partitions) == 1


def test_rows_that_carry_their_topics_need_no_option(broker: EmbeddedKafka) -> None:
    sink = KafkaSink({"kafka.bootstrap.servers": broker.bootstrap_servers})
    assert sink.check(Query(broker).context)["marker_topic"] == name_of("onceonly")


def test_markers_of_before_are_read(broker: EmbeddedKafka) -> None:
    """A query that was written when markers named the topic of the rows goes on, and its handles are resolved."""
    query = Query(broker)
    former = query.facts.pop("marker_topic")
    old = query.prepare("a", epoch=6)
    assert old.data["marker_topic"] == query.topic
    assert query.commit(old) == Committed()
    query.facts["marker_topic"] = former
    assert [each.committed for each in query.sink.recover(query.context)] == []
    new = query.prepare("b", epoch=7)
    assert new.data["marker_topic"] == former
    assert marker.epoch_of(str(new.data["predecessor"])) == 6, "an older checkpoint is still noticed"
    (leftover,) = query.sink.recover(query.context)
    assert leftover.committed == 6
    KafkaSink(query.options).look_back(query.context, 6, [old])
    assert query.commit(Handle(transaction=new.transaction, data=new.data)) == Committed()
    query.until_read("a", "b")
