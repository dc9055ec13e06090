"""Ids and what leaders keep of producers do not grow with the epochs, whatever Spark does with its Python workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from harness import Bench
from kafka import KafkaAdminClient, TopicPartition

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly_proof.embedded.kafka import EmbeddedKafka

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900)]
LONG = [pytest.mark.long, pytest.mark.timeout(3_600)]
EPOCH_S = 20  # at the most: each task starts a Python of its own, and the machine may do much else

SLOTS = 2


def ids(servers: str, query: str) -> set[str]:
    """Name the transactional ids of a query that the broker keeps, in any state."""
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        listed = admin.list_transactions()
        names = {str(each.transactional_id) for some in listed.values() for each in some}
    finally:
        admin.close()
    return {name for name in names if query in name and not name.endswith(".check")}


def producers(servers: str, topic: str) -> list[int]:
    """Count the producers that the leader of each partition keeps."""
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        described = admin.describe_producers([TopicPartition(topic, number) for number in range(SLOTS)])
    finally:
        admin.close()
    return [len(each.active_producers) for each in described.values()]


@pytest.mark.parametrize("epochs", [5, pytest.param(120, marks=LONG)])
@pytest.mark.parametrize("producer", ["direct", pytest.param("row", marks=pytest.mark.long)])
def test_ids_are_bounded_by_the_slots_where_every_worker_ends_after_its_task(
    kafka: EmbeddedKafka, tmp_path: Path, epochs: int, producer: str
) -> None:
    """As with triggers more than a minute apart: no epoch meets a worker of the one before."""
    bench = Bench(kafka, tmp_path, partitions=SLOTS)
    bench.args = ["--per-epoch", "10", "--conf", "spark.python.worker.reuse=false"]
    bench.args += ["--option", f"onceonly.producer={producer}"]
    bench.feed([(f"k{number}", str(number)) for number in range(10 * epochs)])
    run = bench.start()
    try:
        assert run.wait(300 + EPOCH_S * epochs) == 0, run.tail()
    finally:
        run.kill_tree()
    assert sorted(value for _, value in bench.read()) == sorted(map(str, range(10 * epochs)))
    found = ids(kafka.bootstrap_servers, bench.query_id())
    assert SLOTS <= len(found) <= 2 * SLOTS, sorted(found)
    kept = producers(kafka.bootstrap_servers, bench.target)
    assert max(kept) <= 2 * SLOTS, "each id is one producer to the leaders"


@pytest.mark.parametrize("starts", [3, pytest.param(10, marks=pytest.mark.long)])
def test_a_scheduled_query_leaves_the_ids_of_its_slots_at_each_start(
    kafka: EmbeddedKafka, tmp_path: Path, starts: int
) -> None:
    """By availableNow, as a scheduler starts it. A start takes over no ids: docs/adr/0017-ids-of-a-start.md."""
    bench = Bench(kafka, tmp_path, partitions=SLOTS)
    bench.args = ["--per-epoch", "10"]
    rows = 20 * starts
    known: set[str] = set()
    for start in range(starts):
        bench.feed([(f"k{number}", str(number)) for number in range(20 * start, 20 * (start + 1))])
        bench.run()
        found = ids(kafka.bootstrap_servers, bench.query_id())
        assert SLOTS <= len(found - known) <= 2 * SLOTS, sorted(found - known)
        known = found
    assert sorted(value for _, value in bench.read()) == sorted(map(str, range(rows)))
