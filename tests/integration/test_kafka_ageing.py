"""An epoch that comes near the broker's transaction time-out is given up before it is decided, and runs again."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from kafka_query import PROPERTIES, Query, wait_for
from tests.unit.late_bench import KILLED, Lives

from onceonly.errors import UnavailableError
from onceonly.model import LinkKind
from onceonly.sinks.kafka import KafkaSink
from onceonly.sinks.kafka.checks import ageing
from onceonly.sinks.kafka.committer import fence
from onceonly.sinks.kafka.outcomes import standing
from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.integration,
    # kafka-python 3.0 reads its schemas by a function that importlib has deprecated.
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]

TIMEOUT = "kafka.transaction.timeout.ms"
# Its last fifth is long enough to look at what is open then, on a slow machine.
SHORT_S = 8


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(properties=PROPERTIES) as kafka:
        yield kafka


# ------------------------------------------------------------------------------------------- the question


def test_a_young_epoch_costs_no_question(broker: EmbeddedKafka) -> None:
    query = Query(broker, **{TIMEOUT: "60000"})
    handle = query.prepare("a")
    unconnected = KafkaSink({**query.options, "kafka.bootstrap.servers": "127.0.0.1:1"})
    assert unconnected.expiring([handle], query.facts, 29.9) == ""
    assert unconnected.expiring([handle], {}, 10**6) == "", "a sink that has no transactions"


def test_an_old_epoch_with_young_transactions_is_in_time(broker: EmbeddedKafka) -> None:
    """As after a long shuffle: the sink's part of the epoch has only just begun."""
    query = Query(broker, **{TIMEOUT: "60000"})
    handles = [query.prepare("a"), query.prepare("b", slot=1)]
    for age_s in (30.0, 59.0, 600.0):
        assert query.sink.expiring(handles, query.facts, age_s) == ""
    query.sink.abort(handles[0])
    query.sink.abort(handles[1])


def test_a_transaction_near_its_end_is_told_while_it_is_still_open(broker: EmbeddedKafka) -> None:
    query = Query(broker, **{TIMEOUT: str(1000 * SHORT_S)})
    began = time.monotonic()
    handles = [query.prepare("a"), query.prepare("b", slot=1)]

    def told() -> str:
        return query.sink.expiring(handles, query.facts, time.monotonic() - began)

    wait_for(lambda: told().startswith("2 of 2 transactions"), "two transactions that are too old")
    assert len(query.open_transactions()) == 2
    for part in (
        handles[0].transaction,
        handles[1].transaction,
        "s old",
        f"at {SHORT_S} s",
        TIMEOUT,
    ):
        assert part in told()


@pytest.mark.parametrize("hour", [3600, -3600], ids=["behind", "ahead"])
def test_where_clocks_differ_the_age_of_the_epoch_counts(
    broker: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch, hour: int
) -> None:
    query = Query(broker, **{TIMEOUT: "60000"})
    handle = query.prepare("a")
    wrong = time.time() + hour
    monkeypatch.setattr(ageing, "time", SimpleNamespace(time=lambda: wrong, monotonic=time.monotonic))
    assert query.sink.expiring([handle], query.facts, 47.9) == ""
    assert "48.0 s old" in query.sink.expiring([handle], query.facts, 48.0)
    query.sink.abort(handle)


def test_a_transaction_that_is_gone_is_told(broker: EmbeddedKafka) -> None:
    query = Query(broker, **{TIMEOUT: "1000"})
    dropped, fenced = query.prepare("a"), query.prepare("b", slot=1)
    fence(query.admin(), fenced.transaction, 60_000)
    assert f"{fenced.transaction} is not open any more" in query.sink.expiring([fenced], query.facts, 0.6)
    wait_for(lambda: not query.open_transactions(), "the broker's time-out")
    told = query.sink.expiring([dropped, fenced], query.facts, 1.5)
    assert told.startswith("2 of 2 transactions")
    assert f"{dropped.transaction} is not open any more" in told


def test_an_id_that_kafka_does_not_know_is_told(broker: EmbeddedKafka) -> None:
    query = Query(broker, **{TIMEOUT: "60000"})
    handle = query.prepare("a")
    unknown = type(handle)(
        transaction="never", data={**handle.data, "transactional_id": f"{handle.transaction}.never"}
    )
    assert "not known to Kafka" in query.sink.expiring([unknown], query.facts, 31.0)
    query.sink.abort(handle)


def test_a_broker_that_cannot_be_asked_is_no_yes(
    broker: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(broker, **{TIMEOUT: "60000"})
    handle = query.prepare("a")
    monkeypatch.setattr(ageing, "_ASK_S", 0.1)
    monkeypatch.setattr("onceonly.sinks.kafka.wire.settings.CONNECT_S", 0.5)
    unreachable = KafkaSink({**query.options, "kafka.bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(UnavailableError, match=r"description of .* NoBrokersAvailable|did not answer"):
        unreachable.expiring([handle], query.facts, 31.0)
    # One bound for all: who comes too late is not asked for.
    monkeypatch.setattr(ageing, "_ASK_S", 0.0)
    with pytest.raises(UnavailableError, match=f"within 0 s; {handle.transaction} was not asked for"):
        query.sink.expiring([handle, handle], query.facts, 31.0)
    query.sink.abort(handle)


# ------------------------------------------------------------------------- drivers in processes of their own


class Bench(Lives):
    def __init__(self, broker: EmbeddedKafka, folder: Path) -> None:
        self.topic = Query(broker, **{TIMEOUT: str(1000 * SHORT_S)})
        super().__init__(folder, "onceonly.kafka", self.topic.options, query=self.topic.id)

    def see_each_row_once(self) -> None:
        self.topic.until_read("0", "1", "2", "3")
        assert self.topic.open_transactions() == []
        assert self.chain()[-1] is LinkKind.COMMIT
        assert self.chain().count(LinkKind.COMMIT) == 1


@pytest.fixture
def lives(broker: EmbeddedKafka, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(broker, tmp_path)
    yield bench
    bench.close()


def near_its_end(bench: Bench) -> None:
    """Wait, by the broker's word, until the older of the transactions is too old."""
    admin = bench.topic.admin()
    states = [standing.describe(admin, each) for each in bench.topic.open_transactions()]
    admin.close()
    began_s = min(state.transaction_start_time_ms for state in states) / 1000
    wait_for(
        lambda: time.time() - began_s > ageing.REFUSED_FROM * SHORT_S, "the time to come near the time-out"
    )
    assert bench.topic.open_transactions(), "the broker has not dropped it yet"


@pytest.mark.parametrize("dropped", [False, True], ids=["near its end", "already dropped"])
def test_a_driver_that_stood_still_runs_the_epoch_again_instead_of_deciding_it(
    lives: Bench, *, dropped: bool
) -> None:
    with lives.paused(at="link.before_check") as process:
        if dropped:
            wait_for(lambda: not lives.topic.open_transactions(), "the broker's time-out")
        else:
            near_its_end(lives)
    code, said = lives.end(process)
    assert code == 3
    for part in ("EPOCH_TIMEOUT", "chk-0", "sink kafka", "not open any more" if dropped else TIMEOUT):
        assert part in said
    assert LinkKind.COMMIT not in lives.chain()
    assert lives.topic.open_transactions() == []
    assert lives.topic.read() == []
    assert lives.live()[0] == 0
    lives.see_each_row_once()


@pytest.mark.parametrize("point", ["link.before_check", "link.before_put"])
def test_a_driver_killed_before_its_decision_leaves_nothing_that_is_decided_later(
    lives: Bench, point: str
) -> None:
    assert lives.live(armed=f"{point}=kill")[0] == KILLED
    assert len(lives.topic.open_transactions()) == 2
    assert lives.live()[0] == 0
    lives.see_each_row_once()


def test_after_its_link_an_old_epoch_is_committed_not_asked(lives: Bench) -> None:
    """What is decided stays decided: in time it is committed, and past its end it is proven lost and written again."""
    with lives.paused(at="link.after_put") as process:
        near_its_end(lives)
    code, said = lives.end(process)
    if code:
        # The machine was so slow that the broker came first: the proof is the safety net.
        assert "TRANSACTION_LOST" in said
        assert lives.live()[0] == 0
        lives.topic.until_read("0", "1", "2", "3")
    else:
        lives.see_each_row_once()
