"""A transactional id's producer epochs are numbers of 16 bits: when they run out, Kafka gives a new producer id."""

from __future__ import annotations

import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from kafka_query import PROPERTIES, Query

from onceonly.model import AlreadyCommitted, Committed, Lost, RetryLater
from onceonly.sinks.kafka.options import KafkaOptions
from onceonly.sinks.kafka.producers.pool import this_worker
from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    # kafka-python 3.0 reads its schemas by a function that importlib has deprecated.
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]
ENDED = {Committed(), AlreadyCommitted()}
# 32767 is only ever used to fence: org.apache.kafka TransactionMetadata.isProducerEpochExhausted.
LAST = 2**15 - 2
AT_ONCE = 500
_INIT_PRODUCER_ID = 22
# Of EndTxn, from which version on each end raises the epoch (KIP-890).
_BUMPS_AT_THE_END = 5
# The name of a case, and the producer epoch that its transaction gets.
CASES = {
    "before the last": LAST - 1,
    "the last": LAST,
    "the last, void": LAST,
    "the last, by version 3": LAST,
}


def use_up(address: str, transactional_id: str, epoch: int) -> None:
    """Initialise an id until it stands at ``epoch``; by the wire, as a client of any library takes minutes."""
    name = transactional_id.encode()
    body = struct.pack(f">hhih4sh{len(name)}si", _INIT_PRODUCER_ID, 1, 0, 4, b"test", len(name), name, 60_000)
    request = struct.pack(">i", len(body)) + body
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 60) as connection, connection.makefile("rb") as answers:
        reached = -1
        while reached < epoch:
            count = min(AT_ONCE, epoch - reached)
            connection.sendall(count * request)
            for _ in range(count):
                (size,) = struct.unpack(">i", answers.read(4))
                # The request's number, the throttle time, the error, the producer id and its epoch.
                error, reached = struct.unpack(">8xh8xh", answers.read(size))
                assert error == 0


@pytest.fixture(scope="module")
def queries() -> Iterator[dict[str, Query]]:
    """A query for each case; its next transaction is on an id that has hardly any epoch left."""
    with EmbeddedKafka(properties=PROPERTIES) as broker:
        made = {case: Query(broker) for case in CASES}
        made["the last, by version 3"].facts["end_txn_version"] = 3

        def prepare(case: str) -> None:
            query = made[case]
            timeout_ms = int(query.facts["transaction_timeout_ms"])
            pool = this_worker().pool(query.attempt(), KafkaOptions.parse(query.options), timeout_ms)
            use_up(broker.bootstrap_servers, f"{pool._leases._prefix}0", CASES[case] - 1)

        with ThreadPoolExecutor(len(CASES)) as pool:
            list(pool.map(prepare, CASES))
        yield made


@pytest.mark.parametrize("case", [case for case in CASES if "void" not in case])
def test_each_row_is_there_once_when_producer_epochs_run_out(queries: dict[str, Query], case: str) -> None:
    query = queries[case]
    former = query.prepare("former")
    assert former.data["producer_epoch"] == CASES[case]
    assert query.open_transactions() == [former.transaction]
    assert query.sink.expiring([former], query.facts, 600.0) == ""
    for _ in range(3):  # as after an answer that was lost
        assert query.commit(former) in ENDED
    assert query.commit(query.prepare("beside", epoch=1, slot=1)) in ENDED

    latter = query.prepare("latter", epoch=2)
    assert latter.transaction == former.transaction
    if case == "before the last" and int(query.facts["end_txn_version"]) < _BUMPS_AT_THE_END:
        # Without transactions of version 2 the commit uses no epoch up: the last one is this producer's.
        assert latter.data["producer_id"] == former.data["producer_id"]
        assert latter.data["producer_epoch"] == LAST
    else:
        assert latter.data["producer_id"] != former.data["producer_id"]
        assert latter.data["producer_epoch"] in {0, 1}
    assert query.sink.expiring([latter], query.facts, 600.0) == ""
    assert "not open any more" in query.sink.expiring([former], query.facts, 600.0)
    # A late duplicate is told from the marker, and ends nothing of the new producer's.
    assert query.commit(former) == AlreadyCommitted()
    assert query.open_transactions() == [latter.transaction]
    query.until_read("beside", "former")
    for _ in range(3):
        assert query.commit(latter) in ENDED
    query.until_read("beside", "former", "latter")
    assert query.open_transactions() == []


def test_what_is_swept_at_the_last_producer_epoch_is_proven_lost_and_written_again_once(
    queries: dict[str, Query],
) -> None:
    query = queries["the last, void"]
    void = query.prepare("row")
    assert void.data["producer_epoch"] == LAST
    for leftover in query.sink.recover(query.context):
        query.sink.abort(leftover.handle)
    assert query.open_transactions() == []
    assert isinstance(query.commit(void), Lost)
    assert query.commit(query.prepare("beside", epoch=1, slot=1)) in ENDED
    again = query.prepare("row", epoch=2)
    assert again.transaction == void.transaction
    assert again.data["producer_id"] != void.data["producer_id"]
    # Too late to be told, as the marker is not stable; and it ends nothing of the new producer's.
    assert isinstance(query.sink.commit(void), RetryLater)
    assert query.open_transactions() == [again.transaction]
    assert query.commit(again) in ENDED
    query.until_read("beside", "row")
    assert query.open_transactions() == []
