"""``onceonly doctor --for`` of a job from Kafka to Kafka: rights, retention and time-outs, asked of a real broker."""

from __future__ import annotations

import json
import re
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from kafka_query import wait_for

from onceonly.jars.installed import Spark
from onceonly.operations import before_start, planned_job
from onceonly.operations.probes import Health

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onceonly_proof.embedded.kafka import EmbeddedKafka

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]
Description = dict[str, Any]


@pytest.fixture
def described(kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Description:
    """A job that is well."""
    monkeypatch.setattr(before_start, "installed", lambda: Spark(version="4.2.0", scala="2.13"))
    name = f"d{uuid.uuid4().hex[:8]}"
    for topic in (f"{name}-in", f"{name}-out"):
        kafka.create_topic(topic, partitions=1)
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    return {
        "format": "onceonly.kafka",
        "columns": {"key": "string", "value": "string"},
        "source": {"format": "kafka", "options": {**servers, "subscribe": f"{name}-in"}},
        "spark": {"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"},
        "trigger": "10 seconds",
        "outage": "10 minutes",
        "options": {
            **servers,
            "topic": f"{name}-out",
            "checkpointLocation": str(tmp_path / "cp"),
            "onceonly.lag.group": name,
        },
    }


def sick(described: Description, folder: Path) -> dict[tuple[str, str], str]:
    """Say what is not well, and what is to be done."""
    (folder / "job.json").write_text(json.dumps(described))
    job = planned_job.read(folder / "job.json")
    found = before_start.examine(job, agreed=True, within_s=60)
    ill = [each for each in found if each.health is not Health.WELL]
    assert all(each.told and each.next_step for each in ill), ill
    return {(each.category, each.probe): each.next_step for each in ill}


def test_nothing_is_wrong_with_a_job_that_is_well(described: Description, tmp_path: Path) -> None:
    assert sick(described, tmp_path) == {}
    described["options"]["onceonly.guarantee"] = "at-least-once"
    assert sick(described, tmp_path) == {}


def option(name: str, value: str) -> Callable[[Description], object]:
    return lambda each: each["options"].update({name: value})


FAULTS: dict[str, tuple[Callable[[Description], object], tuple[str, str]]] = {
    "a source's topic that is not there": (
        lambda each: each["source"]["options"].update(subscribe=f"no-{uuid.uuid4().hex}"), ("source", "can be read")
    ),
    "the topic that it reads": (
        lambda each: each["options"].update(topic=each["source"]["options"]["subscribe"]),
        ("source", "is not the target"),
    ),
    "an outage that transactions do not live through": (
        lambda each: each.update(outage="1 hour"), ("timeouts", "of an outage")
    ),
    "a trigger that is as long as a transaction lives": (
        lambda each: each.update(trigger="14 minutes"), ("timeouts", "of transactions")
    ),
    "an epoch that may take longer than a transaction lives": (
        option("onceonly.epoch.timeout", "800"), ("timeouts", "of transactions")
    ),
    "a name that no topic can have": (option("topic", "a b"), ("targets", "takes the rows")),
    "a time-out that the broker refuses": (
        option("kafka.transaction.timeout.ms", "1000000"), ("targets", "takes the rows")
    ),
    "a value that no record can have": (
        lambda each: each["columns"].update(value="array<int>"), ("targets", "takes the rows")
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_each_fault_trips_its_probe_and_no_other(described: Description, tmp_path: Path, fault: str) -> None:
    inject, probe = FAULTS[fault]
    inject(described)
    assert set(sick(described, tmp_path)) == {probe}


def test_a_time_out_that_is_too_short_for_the_outage_is_cured_by_what_is_told(
    described: Description, tmp_path: Path
) -> None:
    described["options"]["kafka.transaction.timeout.ms"] = "60000"
    [(probe, step)] = sick(described, tmp_path).items()
    assert probe == ("timeouts", "of an outage")
    cure(described, step)
    assert sick(described, tmp_path) == {}


def cure(described: Description, step: str) -> None:
    """Set what a next step names."""
    named = re.search(r"set ([\w.]+)=(\S+)", step)
    assert named is not None, step
    described["options"][named[1]] = named[2]


def test_retention_that_is_shorter_than_the_outage_is_cured_by_what_is_told(
    described: Description, tmp_path: Path, kafka: EmbeddedKafka
) -> None:
    topic = described["source"]["options"]["subscribe"]
    alter(kafka, topic, "retention.ms", "60000")
    [(probe, step)] = sick(described, tmp_path).items()
    assert probe == ("source", "keeps its rows")
    named = re.search(r"retention\.ms=(\d+)", step)
    assert named is not None
    alter(kafka, topic, "retention.ms", named[1])
    wait_for(lambda: sick(described, tmp_path) == {}, "it is cured")


def alter(kafka: EmbeddedKafka, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("TOPIC", topic, incremental_configs=[entry])
    admin = kafka.admin()  # its answers end with it
    admin.incremental_alter_configs([resource])[resource].result(30)


def test_a_lag_group_that_somebody_consumes_with(
    described: Description, tmp_path: Path, kafka: EmbeddedKafka
) -> None:
    joined: list[object] = []
    consumer = Consumer({
        "bootstrap.servers": kafka.bootstrap_servers, "group.id": described["options"]["onceonly.lag.group"],
    })  # fmt: skip
    consumer.subscribe([described["options"]["topic"]], on_assign=lambda *_: joined.append(1))
    try:
        wait_for(lambda: consumer.poll(0.1) or joined, "it has joined")
        assert set(sick(described, tmp_path)) == {("lag", "has a group")}
    finally:
        consumer.close()
    assert sick(described, tmp_path) == {}


def test_a_lag_group_in_which_a_consumer_that_is_down_has_offsets(
    described: Description, tmp_path: Path, kafka: EmbeddedKafka
) -> None:
    consumer = Consumer({
        "bootstrap.servers": kafka.bootstrap_servers, "group.id": described["options"]["onceonly.lag.group"],
    })  # fmt: skip
    consumer.commit(offsets=[TopicPartition(described["options"]["topic"], 0, 1)], asynchronous=False)
    consumer.close()
    [(probe, step)] = sick(described, tmp_path).items()
    assert probe == ("lag", "has a group")
    assert "delete the group" in step
