"""What a real broker has open and nobody ends is found: by our ids, and where no coordinator knows it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import foreign_hands
import pytest
from kafka.protocol.producer.produce import ProduceRequest
from kafka.record.memory_records import MemoryRecordsBuilder
from kafka_query import PROPERTIES, Query, wait_for
from tests.unit.operator_bench import QueryCoordinator, here

from onceonly.model import SinkUse
from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.integration,
    # kafka-python 3.0 reads its schemas by a function that importlib has deprecated.
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]
NOBODYS = 4_711_000


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    # As brokers were before 3.6: what comes after the end of its transaction is taken, and hangs.
    old = {"transaction.partition.verification.enable": "false"}
    with EmbeddedKafka(properties={**PROPERTIES, **old, "offsets.topic.num.partitions": "1"}) as kafka:
        yield kafka


def leave_hanging(query: Query, partition: int) -> None:
    """Write a row in a transaction that no coordinator has heard of."""
    builder = MemoryRecordsBuilder(
        2, 0, 16384, transactional=True, producer_id=NOBODYS, producer_epoch=0, base_sequence=0
    )
    builder.append(timestamp=None, key=None, value=b"late")
    builder.close()
    topic = ProduceRequest.TopicProduceData
    data = [topic.PartitionProduceData(index=partition, records=builder.buffer())]
    request = ProduceRequest(
        transactional_id="gone", acks=-1, timeout_ms=10_000, topic_data=[topic(name=query.topic, partition_data=data)],
        max_version=11,
    )  # fmt: skip
    answer = query.admin().send(request)
    assert answer.responses[0].partition_responses[0].error_code == 0


def test_what_no_coordinator_knows_is_found_with_what_it_holds_up(broker: EmbeddedKafka) -> None:
    query = Query(broker)
    query.write("before")
    assert list(query.sink.hanging()) == []
    leave_hanging(query, 0)
    (found,) = query.sink.hanging()
    assert (found.transaction, found.query) == ("", "")
    assert f"producer {NOBODYS}" in found.told
    assert found.blocks == f"readers of {query.topic}-0 stop at offset 1"
    assert f"--topic {query.topic} --partition 0 --start-offset 1" in found.command
    assert foreign_hands.abort(query.admin(), query.topic, 0) == 1, "what the command does"
    assert list(query.sink.hanging()) == []


def test_what_is_open_under_our_ids_is_told_with_its_query_and_a_transaction_at_work_is_not_hanging(
    broker: EmbeddedKafka,
) -> None:
    query = Query(broker)
    handle = query.prepare("a")
    names = {each.transaction: each for each in query.sink.hanging()}
    assert names[handle.transaction].query == query.id
    assert f"{query.topic}-" in names[handle.transaction].blocks
    assert all(each.transaction for each in names.values()), "its coordinator knows it"
    query.commit(handle)
    wait_for(lambda: handle.transaction not in {each.transaction for each in query.sink.hanging()}, "its end")


def test_the_command_finds_what_no_log_knows_and_says_what_ends_it(
    broker: EmbeddedKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query, foreign = Query(broker), Query(broker)
    coordinator = QueryCoordinator(tmp_path / "cp", query=query.id)
    coordinator.set_barrier(0)
    decided = query.prepare("decided")
    vote = replace(coordinator.vote(0), sink="kafka", handle=decided)
    use = SinkUse(sink="kafka", options=query.options)
    link = replace(
        coordinator.link(0, votes=[vote]), settings={"kafka": query.sink.identity()}, uses={"kafka": use}
    )
    coordinator.log.put_link(link)

    def found() -> tuple[int, list[dict[str, Any]]]:
        status = here("transactions", "hanging", coordinator.path, "--json")
        said = capsys.readouterr()
        assert status in {0, 1}, said.err
        return status, json.loads(said.out)["transactions"]

    assert found() == (0, []), "its log names what is open"
    leave_hanging(query, 1)
    handle = foreign.prepare("a")
    status, told = found()
    assert status == 1
    named = {each["transaction"]: each for each in told}
    assert named[handle.transaction]["query"] == foreign.id
    assert "whose checkpoint is not here" in named[handle.transaction]["told"]
    assert named[handle.transaction]["command"] is None
    assert f"--topic {query.topic} --partition 1 " in named[None]["command"]
    foreign.sink.abort(handle)
    foreign_hands.abort(query.admin(), query.topic, 1)
    assert here("transactions", "hanging", coordinator.path) == 0
    assert "nothing is open that no log knows" in capsys.readouterr().out
