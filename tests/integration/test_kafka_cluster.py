"""Three brokers: the coordinator of a prepared transaction dies and another broker takes over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kafka_query import PROPERTIES, Query, wait_for

from onceonly.errors import UnavailableError
from onceonly.model import AlreadyCommitted, Committed, Lost, RetryLater
from onceonly.sinks.kafka.outcomes import marker
from onceonly.sinks.kafka.wire.admin import GROUP, TRANSACTION, transaction_partition
from onceonly_proof.embedded.kafka_cluster import EmbeddedCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.integration,
    # kafka-python 3.0 reads its schemas by a function that importlib has deprecated.
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]
ENDED = {Committed(), AlreadyCommitted()}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(properties=PROPERTIES) as brokers:
        yield brokers


def coordinator_of(query: Query, transaction: str) -> int:
    admin = query.admin()
    return int(admin.client().coordinator(TRANSACTION, transaction))


def test_the_newest_committed_epoch_is_found_on_whichever_broker_keeps_it(cluster: EmbeddedCluster) -> None:
    query = Query(cluster)
    groups = [marker.group_name("onceonly", query.id, "kafka", slot) for slot in range(9)]
    query.admin().client().coordinator(GROUP, groups[0])  # the first question makes the topic
    cluster.spread_leaders()
    client = query.admin().client()
    assert len({client.coordinator(GROUP, group) for group in groups}) > 1, "they are on several brokers"
    query.prepare("never", epoch=20, slot=9)

    def newest() -> list[int | None]:
        return [found.committed for found in query.sink.recover(query.context)]

    for slot in range(9):
        assert query.commit(query.prepare("seen", epoch=slot, slot=slot)) in ENDED
        wait_for(lambda slot=slot: newest() == [slot], "the marker to reach its group")  # type: ignore[misc]  # bound now
    for leftover in query.sink.recover(query.context):
        query.sink.abort(leftover.handle)


def test_coordinators_are_guessed_as_kafka_deals_ids_out_and_a_wrong_guess_is_looked_up(
    cluster: EmbeddedCluster,
) -> None:
    query = Query(cluster)
    handles = [query.prepare(f"v{slot}", slot=slot) for slot in range(8)]
    ids = [handle.transaction for handle in handles]
    cluster.spread_leaders()
    told = [coordinator_of(query, each) for each in ids]
    assert len(set(told)) > 1, "they are on several brokers"
    query.sink.recover(query.context)
    admin = query.sink._admin
    leaders = admin.client().leaders
    assert [leaders[transaction_partition(each, len(leaders))] for each in ids] == told
    admin.learn_leaders([leader % 3 + 1 for leader in leaders])  # each another one
    assert all(isinstance(outcome, RetryLater) for outcome in query.sink.commit_many(handles))
    wait_for(lambda: set(query.sink.commit_many(handles)) <= ENDED, "the right ones to be found")
    query.until_read(*(f"v{slot}" for slot in range(8)))


def test_the_coordinator_moves_and_each_row_is_there_once(cluster: EmbeddedCluster) -> None:
    """Prepared under one coordinator: committed, found by a sweep and aborted under the next."""
    query = Query(cluster)
    decided, void = query.prepare("decided", slot=0), query.prepare("void", slot=1)
    killed = coordinator_of(query, decided.transaction)
    cluster.broker(killed).kill()
    assert query.commit(decided) in ENDED
    assert coordinator_of(query, decided.transaction) != killed
    query.until_read("decided")

    def listed() -> list[str]:
        try:
            return query.open_transactions()
        except UnavailableError:  # while it moves, no part of the list is given
            return []

    wait_for(lambda: listed() == [void.transaction], "the open transaction in the list")
    query.sink.abort(void)
    assert isinstance(query.commit(void), Lost)
    assert query.commit(decided) in ENDED
    cluster.broker(killed).start()
    cluster.wait_ready()
    assert query.commit(decided) in ENDED
    cluster.spread_leaders()
    assert coordinator_of(query, decided.transaction) == killed, "and moves back"
    assert query.commit(query.prepare("next", epoch=1)) in ENDED
    query.until_read("decided", "next")


def test_what_one_dead_coordinator_keeps_of_many_commits_is_committed_by_the_next_and_each_row_is_there_once(
    cluster: EmbeddedCluster,
) -> None:
    query = Query(cluster)
    handles = [query.prepare(f"m{slot}", slot=slot) for slot in range(8)]
    query.sink.recover(query.context)  # learns the leaders, which are old in a moment
    killed = coordinator_of(query, handles[0].transaction)
    cluster.broker(killed).kill()
    first = query.sink.commit_many(handles)
    assert all(outcome in ENDED or isinstance(outcome, RetryLater) for outcome in first)
    assert isinstance(first[0], RetryLater)
    wait_for(lambda: set(query.sink.commit_many(handles)) <= ENDED, "another broker to take over")
    # 3.3 may never end a transaction whose markers arrive while its coordinator loads (KAFKA-16352); the next epoch
    # goes on all the same, with another id for that slot.
    following = [query.prepare(f"n{slot}", epoch=1, slot=slot) for slot in range(8)]
    wait_for(lambda: set(query.sink.commit_many(following)) <= ENDED, "the next epoch")
    cluster.broker(killed).start()
    cluster.wait_ready()
    query.until_read(*(f"{epoch}{slot}" for slot in range(8) for epoch in "mn"))
    assert query.open_transactions() == []
