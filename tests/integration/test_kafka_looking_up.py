"""What the operator is told of a Kafka transaction: as the brokers have it, and nothing is changed by asking."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka_query import PROPERTIES, Query, wait_for

from onceonly.model import Committed, Handle
from onceonly.ports.standing import Stands
from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.integration,
    # kafka-python 3.0 reads its schemas by a function that importlib has deprecated.
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(properties={**PROPERTIES, "offsets.topic.num.partitions": "1"}) as kafka:
        yield kafka


def last_stable(query: Query, partition: int) -> int:
    """Ask the broker up to where readers of committed rows get."""
    admin = AdminClient({"bootstrap.servers": query.options["kafka.bootstrap.servers"]})
    place = TopicPartition(query.topic, partition)
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # confluent-kafka does not say
    asked = admin.list_offsets({place: latest}, isolation_level=IsolationLevel.READ_COMMITTED)
    return int(asked[place].result().offset)


def test_what_is_open_names_the_offsets_at_which_readers_stand_still(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    query.write("before", "before")
    transaction = query.sink.begin_transaction(query.attempt())
    rows = {"value": ["a", "b"], "partition": pa.array([0, 1], pa.int32())}
    query.sink.write(transaction, pa.record_batch(rows))
    handle = query.sink.pre_commit(transaction)
    assert handle is not None
    query.write("after", "after")
    found = query.sink.look_up(handle)
    assert (found.stands, "Ongoing" in found.told) == (Stands.OPEN, True)
    for partition in (0, 1):
        assert f"offset {last_stable(query, partition)} of {query.topic}-{partition}" in found.blocks
        assert last_stable(query, partition) == 1
    ends = datetime.fromisoformat(found.until.split(" ")[1])
    assert 800 < (ends - datetime.now(UTC)).total_seconds() < 901
    assert query.commit(handle) == Committed(), "the look has changed nothing"
    wait_for(lambda: query.sink.look_up(handle).stands is Stands.COMMITTED, "its coordinator has told all")
    later = query.prepare("x", epoch=1)
    assert query.sink.look_up(handle).stands is Stands.COMMITTED
    query.sink.abort(later)
    wait_for(lambda: query.sink.look_up(later).stands is Stands.GONE, "the aborted one is gone")
    assert query.sink.look_up(handle).stands is Stands.COMMITTED


def test_one_that_its_coordinator_has_timed_out_is_gone(broker: EmbeddedKafka) -> None:
    query = Query(broker, **{"kafka.transaction.timeout.ms": "1000"})
    handle = query.prepare("a")
    wait_for(lambda: query.sink.look_up(handle).stands is Stands.GONE, "its coordinator has aborted it")


def test_one_that_no_link_names_is_known_by_its_id(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    query.prepare("a")
    [leftover] = query.sink.recover(query.context)
    found = query.sink.look_up(leftover.handle)
    assert found.stands is Stands.OPEN
    assert query.topic in found.told
    query.sink.abort(leftover.handle)
    wait_for(lambda: query.sink.look_up(leftover.handle).stands is Stands.GONE, "it is gone")


def test_a_marker_that_is_neither_its_own_nor_its_predecessor_tells_nothing(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    handle = query.prepare("a")
    assert query.commit(handle) == Committed()
    assert query.commit(query.prepare("b", epoch=1)) == Committed()
    # A coordinator answers before the group shows the second marker.
    neither = "neither its own nor the one of before it"
    wait_for(lambda: neither in query.sink.look_up(handle).told, "the next marker in the group")
    assert query.sink.look_up(handle).stands is Stands.UNKNOWN
    other = Handle(transaction=handle.transaction, data={**handle.data, "predecessor": ""})
    assert query.sink.look_up(other).stands is Stands.UNKNOWN
