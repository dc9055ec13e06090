"""``onceonly doctor CHECKPOINT`` of a query from Kafka to Kafka: rights, time-outs, rows, epochs, by a real broker."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import OFFSET_END, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from kafka_query import Query, wait_for
from tests.unit.operator_bench import QueryCoordinator

from onceonly.guards import known
from onceonly.guards.kafka import ids_of
from onceonly.guards.known import Known
from onceonly.guards.source import KAFKA, Source
from onceonly.log.files import encode
from onceonly.model import Link, Receipt, SinkUse
from onceonly.operations import doctor
from onceonly.operations.find import the_one
from onceonly.operations.given import Given
from onceonly.operations.probes import Health
from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from onceonly.model import Vote

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


class Job(QueryCoordinator):
    """Two epochs from a topic to another one."""

    def __init__(self, path: Path, broker: EmbeddedKafka) -> None:
        self.kafka = Query(broker)
        self.topic = f"in-{uuid.uuid4().hex}"
        broker.create_topic(self.topic, partitions=1)
        super().__init__(path, query=self.kafka.id)
        source = Source(KAFKA, {"kafka.bootstrap.servers": broker.bootstrap_servers})
        ids = ids_of(source, [self.topic])
        known.write(
            the_one(path).told.files,
            Known(formats=("kafka",), topics={name: (each,) for name, each in ids.items()}),
        )
        for epoch in (0, 1):
            self.commit(epoch)

    def barrier(self, epoch: int) -> str:
        return json.dumps({self.topic: {"0": 0}})

    def link(self, epoch: int, index: int = 0, *, votes: Iterable[Vote] = (), abort: str = "") -> Link:
        made = super().link(epoch, index, votes=votes, abort=abort)
        options = self.kafka.options
        return replace(
            made,
            settings={"kafka": dict(self.kafka.sink.identity())},
            uses={"kafka": SinkUse(sink="kafka", options=options)},
        )

    def commit(self, epoch: int, *, decides: bool = True) -> None:
        handle = self.kafka.prepare("a", epoch=epoch)
        if decides:
            vote = replace(self.vote(epoch), sink="kafka", handle=handle)
            self.set_barrier(epoch)
            self.log.put_link(self.link(epoch, votes=[vote]))
        self.kafka.commit(handle)
        if decides:
            self.log.put_receipt(Receipt(epoch=epoch, index=0, plan="p", outcomes={"committed": 1}))
            self.note(epoch)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    """A broker with permissions; what has none set is open to everybody."""
    with EmbeddedKafka(
        properties={
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
        }
    ) as made:
        yield made


@pytest.fixture
def job(tmp_path: Path, broker: EmbeddedKafka) -> Job:
    return Job(tmp_path / "cp", broker)


def ill(job: Job) -> dict[tuple[str, str], str]:
    found = doctor.examine(str(job.path), Given(), within_s=60)
    assert all(each.told and each.next_step for each in found if each.health is not Health.WELL)
    return {
        (each.category, each.probe): each.told
        for each in found
        if each.health is not Health.WELL and each.category != "jars"
    }


def test_nothing_is_wrong_with_a_job_that_is_well_and_its_source_is_found_by_its_id(job: Job) -> None:
    assert ill(job) == {}
    assert job.kafka.sink.newest_epoch(job.kafka.context) == 1


def test_an_older_checkpoint_that_was_restored(job: Job) -> None:
    job.commit(2, decides=False)
    wait_for(lambda: job.kafka.sink.newest_epoch(job.kafka.context) == 2, "its marker")
    assert set(ill(job)) == {("targets", "hold nothing else")}


def test_rows_that_were_deleted_before_they_were_read(job: Job, broker: EmbeddedKafka) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for _ in range(3):
        producer.produce(job.topic, b"a row")
    assert producer.flush(30) == 0
    assert ill(job) == {}
    admin = broker.admin()  # its answers end with it
    for answer in admin.delete_records([TopicPartition(job.topic, 0, 2)]).values():
        answer.result(30)
    wait_for(lambda: set(ill(job)) == {("source", "has what follows")}, "the rows to be gone")


def test_where_markers_are_gone_rows_tell_and_where_these_are_gone_too_it_is_not_said_to_be_well(
    job: Job, broker: EmbeddedKafka, capfd: pytest.CaptureFixture[str]
) -> None:
    admin = broker.admin()
    groups = [each.group_id for each in admin.list_consumer_groups().result().valid]
    for deleted in admin.delete_consumer_groups([each for each in groups if job.kafka.id in each]).values():
        deleted.result(30)
    assert ill(job) == {}
    ends = [TopicPartition(job.kafka.topic, each, OFFSET_END) for each in (0, 1)]
    for answer in admin.delete_records(ends).values():
        answer.result(30)
    wait_for(lambda: ill(job), "the rows to be gone")
    [(probe, told)] = ill(job).items()
    assert probe == ("targets", "hold what was committed")
    assert "cannot be told" in told
    assert "cannot be told" not in capfd.readouterr().err, "it is in the answer"


def test_a_time_out_that_the_broker_does_not_allow(job: Job) -> None:
    [link] = job.log.chain(1)
    use = replace(
        link.uses["kafka"],
        options={**link.uses["kafka"].options, "kafka.transaction.timeout.ms": "1000000"},
    )
    path = job.path / f"onceonly/links/{1:020d}.0.json"
    path.write_bytes(encode("link", replace(link, uses={"kafka": use})))
    assert set(ill(job)) == {("timeouts", "of transactions")}


def test_a_right_that_was_taken_away(job: Job, broker: EmbeddedKafka) -> None:
    wanted = (ResourceType.TOPIC, job.kafka.topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*")
    admin = broker.admin()
    read = [
        AclBinding(*wanted, each, AclPermissionType.ALLOW)
        for each in (AclOperation.READ, AclOperation.DESCRIBE)
    ]
    for answer in admin.create_acls(read, request_timeout=10).values():
        answer.result(10)
    shown = AclBindingFilter(*wanted, AclOperation.READ, AclPermissionType.ALLOW)
    wait_for(lambda: admin.describe_acls(shown, request_timeout=10).result(10), "the permission")
    found = ill(job)
    assert set(found) == {("targets", "give the rights")}
    assert job.kafka.topic in found["targets", "give the rights"]
