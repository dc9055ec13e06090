"""``onceonly.lag.group`` on a real broker: what the usual tools say of it, and what Kafka refuses."""

from __future__ import annotations

import subprocess
import threading
import time
import uuid
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec
from decided_query import DecidedQuery
from kafka_query import wait_for

from onceonly.guards.lag import Keeper
from onceonly.guards.source import KAFKA, Source
from onceonly.jars.java import find_java
from onceonly.log import lag_state
from onceonly.log.place import log_store
from onceonly.settings.query import QuerySettings
from onceonly_proof.embedded.jars import broker_classpath
from onceonly_proof.embedded.kafka import EmbeddedKafka
from onceonly_proof.embedded.kafka_settings import FEEDER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
PARTITIONS = 3


class Job:
    """A topic, and a query that is decided up to where it says."""

    def __init__(self, kafka: EmbeddedKafka, folder: Path) -> None:
        self.kafka = kafka
        self.admin = kafka.admin()  # its answers end with it
        self.topic = f"l{uuid.uuid4().hex[:8]}"
        self.group = f"g-{self.topic}"
        kafka.create_topic(self.topic, partitions=PARTITIONS)
        self.query = DecidedQuery(folder / "chk")
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self.epoch = 0
        self.keepers: list[Keeper] = []

    def feed(self, *partitions: int) -> None:
        """Add a row to each partition that is named."""
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers, **FEEDER})
        for partition in partitions:
            producer.produce(self.topic, "x", partition=partition)
            self.ends[partition] += 1
        assert producer.flush(30) == 0

    def decide(self) -> None:
        """Decide an epoch of all rows that are there."""
        self.query.decide(self.epoch, {self.topic: dict(self.ends)})
        self.epoch += 1

    def keep(self, **options: str) -> Keeper:
        settings = QuerySettings(checkpoint=str(self.query.checkpoint), lag_group=self.group)
        source = Source(KAFKA, {"kafka.bootstrap.servers": self.kafka.bootstrap_servers, **options})
        self.keepers.append(Keeper(settings, self.query.id, lambda: [source], every_s=0.05))
        return self.keepers[-1]

    def offsets(self) -> dict[int, int]:
        """Return what the group has committed, by partition."""
        asked = ConsumerGroupTopicPartitions(self.group)
        answer = self.admin.list_consumer_group_offsets([asked])[self.group].result(30)
        return {each.partition: each.offset for each in answer.topic_partitions}

    def lags(self) -> list[int]:
        """Return the end less what is committed, as kafka-lag-exporter, kafka_exporter and KMinion work it out."""
        committed = self.offsets()
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(self.topic, each): latest for each in committed}
        found = self.admin.list_offsets(wanted)
        ends = {each.partition: future.result(30).offset for each, future in found.items()}
        return [ends[each] - at for each, at in sorted(committed.items())]

    def told(self) -> str:
        state = lag_state.read(log_store(str(self.query.checkpoint)))
        return state.told if state else ""


@pytest.fixture
def job(kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[Job]:
    made = Job(kafka, tmp_path)
    yield made
    for each in made.keepers:
        each.close()


def test_kafkas_own_tool_shows_the_rows_that_are_to_be_read_and_0_when_drained(job: Job) -> None:
    job.feed(0, 0, 1)
    job.decide()
    job.feed(0, 2, 2)
    job.keep().close()
    assert shown(job) == {"0": ("2", "1"), "1": ("1", "0"), "2": ("0", "2")}
    job.decide()
    job.keep().close()
    assert {lag for _, lag in shown(job).values()} == {"0"}


def shown(job: Job) -> dict[str, tuple[str, str]]:
    """Return offset and lag by partition, as kafka-consumer-groups.sh prints them."""
    out = subprocess.run(
        [
            *(str(find_java()), "-cp", ":".join(map(str, broker_classpath())), TOOL),
            *("--bootstrap-server", job.kafka.bootstrap_servers, "--describe", "--group", job.group),
        ],
        check=True, capture_output=True, text=True, timeout=120,
    ).stdout  # fmt: skip
    head, *rows = (line.split() for line in out.splitlines() if job.group in line or "CURRENT-OFFSET" in line)
    if head[0] != "GROUP":  # the line about members comes first
        head, *rows = rows
    found = [dict(zip(head, row, strict=False)) for row in rows]
    return {each["PARTITION"]: (each["CURRENT-OFFSET"], each["LAG"]) for each in found}


def test_an_exporters_formula_is_never_below_0_and_burrow_says_ok(job: Job) -> None:
    """Burrow: of a window of commits, one with lag 0 is OK; one that goes back is REWIND."""
    keeper = job.keep()
    windows: list[list[int]] = [[] for _ in range(PARTITIONS)]
    seen: list[dict[int, int]] = []
    for number in range(10):
        job.feed(number % 2, 0)  # nothing comes to the last partition
        job.decide()
        keeper.moved()
        wait_for(lambda: job.offsets() == job.ends, "the epoch is shown")
        seen.append(job.offsets())
        for window, lag in zip(windows, job.lags(), strict=True):
            window.append(lag)
    assert all(lag >= 0 for window in windows for lag in window)
    assert all(0 in window for window in windows)
    for earlier, later in pairwise(seen):
        assert all(later[each] >= at for each, at in earlier.items())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_is_told_by_name_and_shown_once_they_are_gone(job: Job, protocol: str) -> None:
    job.feed(0)
    job.decide()
    consumer = Consumer({
        "bootstrap.servers": job.kafka.bootstrap_servers, "group.id": job.group, "client.id": "somebody",
        "enable.auto.commit": False, "group.protocol": protocol,
    })  # fmt: skip
    joined, over = threading.Event(), threading.Event()
    consumer.subscribe([job.topic], on_assign=lambda *_: joined.set())

    def consume() -> None:
        while not over.is_set():
            consumer.poll(0.1)

    thread = threading.Thread(target=consume)
    thread.start()
    try:
        wait_for(joined.is_set, "the consumer has joined")
        keeper = job.keep()
        wait_for(lambda: "has members" in job.told(), "it is told")
        assert f"the group {job.group} has members" in job.told()
        if protocol == "classic":
            assert "somebody" in job.told()
    finally:
        over.set()
        thread.join()
        consumer.close()
    keeper.moved()
    wait_for(lambda: job.offsets() == job.ends, "the group is shown")
    wait_for(lambda: job.told() == "", "the state says so")


def test_a_topic_that_is_gone_is_told_and_costs_the_query_nothing(job: Job) -> None:
    job.feed(0)
    job.decide()
    admin = job.admin
    admin.delete_topics([job.topic], operation_timeout=30)[job.topic].result(30)
    keeper = job.keep()
    began = time.monotonic()
    keeper.moved()
    job.decide()
    assert time.monotonic() - began < 5
    wait_for(lambda: job.topic in job.told(), "it is told")


@pytest.mark.long
def test_idle_partitions_do_not_expire_while_a_run_lives(tmp_path: Path) -> None:
    """As Kafka's default of 7 days would do to a query that is idle for longer; here a minute."""
    properties = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
    with EmbeddedKafka(properties=properties) as kafka:
        job, other = Job(kafka, tmp_path / "kept"), Job(kafka, tmp_path / "left")
        for each in (job, other):
            each.feed(0, 1, 2)
            each.decide()
        keeper = job.keep()
        other.keep().close()
        wait_for(lambda: job.offsets() == job.ends == other.offsets(), "both are shown", seconds=120)
        wait_for(lambda: not any(at > 0 for at in other.offsets().values()), "one expires", seconds=180)
        assert job.offsets() == job.ends
        keeper.close()
