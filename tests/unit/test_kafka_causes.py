"""What an attempt says of a failure: its cause, and whether a restart mends it. No broker."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from onceonly.errors import (
    ConfigurationError,
    EpochTimeoutError,
    LogError,
    RecordRefusedError,
    WriteFailedError,
)
from onceonly.families.behind import refuse_ahead
from onceonly.model import Guarantee, Mode
from onceonly.ports import WriteContext
from onceonly.sinks.kafka import writer
from onceonly.sinks.kafka.checks import target
from onceonly.sinks.kafka.options import KafkaOptions
from onceonly.sinks.kafka.producers.failures import Failure
from onceonly.sinks.kafka.producers.row_producer import RowProducer
from onceonly.sinks.kafka.writer import PlainWrite, TransactionalWrite, fitted

CONTEXT = WriteContext(
    query="q", sink="s", run="r", epoch=1, plan="p", slot=2, attempt="3", guarantee=Guarantee.EXACTLY_ONCE,
    facts={"max_message_bytes": 5000},
)  # fmt: skip
OPTIONS = KafkaOptions.parse({"kafka.bootstrap.servers": "nowhere:9", "topic": "t"})
FENCED, ENDED, FORBIDDEN, TOO_LARGE, INVALID = 90, 48, 29, 10, 87


def attempt(kind: Any = PlainWrite, *, lived_s: float = 0.0, **facts: int) -> Any:  # noqa: ANN401  either
    made = kind.__new__(kind)
    made.context = replace(CONTEXT, facts={**CONTEXT.facts, **facts})
    made.options = fitted(made.context, OPTIONS)
    made._began, made._timeout_ms = time.monotonic() - lived_s, 5000
    made._group, made._sieve = "the-group", None
    made._ready = cast("Any", SimpleNamespace(transactional_id="the-id"))
    return made


def failed(code: int, size: int | None = None) -> Failure:
    return Failure(KafkaError(code), size)


@pytest.mark.parametrize("code", [FENCED, ENDED, 47, KafkaError._FENCED])
def test_a_transaction_that_outlived_its_time_names_the_option(code: int) -> None:
    with pytest.raises(EpochTimeoutError, match=r"kafka\.transaction\.timeout\.ms, 5000 ms") as caught:
        attempt(TransactionalWrite, lived_s=5.5)._raise_failure(failed(code))
    assert "the-id" in caught.value.what
    assert "permission" not in str(caught.value)


def test_a_transaction_that_ends_sooner_was_ended_by_somebody_else() -> None:
    with pytest.raises(
        WriteFailedError, match=r"somebody else has ended .* a newer run .* an operator"
    ) as caught:
        attempt(TransactionalWrite, lived_s=1)._raise_failure(failed(FENCED))
    assert "permission" not in str(caught.value)


@pytest.mark.parametrize(("mode", "newest"), [(Mode.RUN, 0), (Mode.TENTATIVE, 1)])
def test_what_is_committed_of_a_later_epoch_is_an_older_checkpoint_or_a_newer_run(
    mode: Mode, newest: int
) -> None:
    context = replace(CONTEXT, mode=mode)
    refuse_ahead(context, newest, to="Kafka")
    with pytest.raises(LogError, match=r"newer run works .* or an older checkpoint was restored") as caught:
        refuse_ahead(context, newest + 1, to="Kafka")
    assert caught.value.next_step.startswith("if there is a newer run, nothing"), "the harmless cause first"


@pytest.mark.parametrize("kind", [PlainWrite, TransactionalWrite])
def test_a_permission_is_named_only_where_it_is_refused_and_no_restart_mends_it(kind: type) -> None:
    with pytest.raises(ConfigurationError, match="topic t") as caught:
        attempt(kind)._raise_failure(failed(FORBIDDEN))
    assert not caught.value.restartable
    with pytest.raises(WriteFailedError) as other:
        attempt(kind)._raise_failure(failed(KafkaError._MSG_TIMED_OUT))
    assert "permission" not in str(other.value)


def test_a_row_that_is_too_large_is_refused_with_the_limit_of_its_topic() -> None:
    with pytest.raises(
        RecordRefusedError, match=r"a row of 7000 bytes .* max\.message\.bytes of the topic, 5000"
    ):
        attempt()._raise_failure(failed(TOO_LARGE, 7000))


def test_a_small_row_in_a_batch_that_is_too_large_is_not_blamed() -> None:
    with pytest.raises(RecordRefusedError, match=r"a batch is refused .* below kafka\.batch\.size") as caught:
        attempt(max_message_bytes=0)._raise_failure(failed(TOO_LARGE, 101))
    assert "a row of 101 bytes" not in caught.value.what
    assert "DESCRIBE_CONFIGS" in caught.value.what


def test_a_row_at_the_bound_is_refused_for_what_is_stored_beside_it() -> None:
    """It has fewer bytes than the topic takes, and more as it is stored."""
    with pytest.raises(RecordRefusedError, match=r"a row of 4950 bytes .*, 5000, which counts 84 bytes more"):
        attempt()._raise_failure(failed(TOO_LARGE, 4950))


def test_a_row_with_many_headers_that_was_alone_in_its_batch_is_the_one() -> None:
    with pytest.raises(RecordRefusedError, match="a row of 4000 bytes"):
        attempt()._raise_failure(Failure(KafkaError(TOO_LARGE), 4000, is_alone=True))


def test_a_batch_that_the_topic_took_at_the_start_has_the_query_start_again() -> None:
    with pytest.raises(
        WriteFailedError, match=r"5000 when the query was started, has been lowered"
    ) as caught:
        attempt()._raise_failure(failed(TOO_LARGE, 101))
    assert "below" not in str(caught.value)


@pytest.mark.parametrize("lowered", [["t"], []])
def test_what_is_refused_by_a_limit_that_was_just_lowered_becomes_letters_by_the_next_try(
    lowered: list[str],
) -> None:
    made = attempt()
    made._sieve, made._reach = object(), SimpleNamespace(told=SimpleNamespace(lowered=lambda: lowered))
    with pytest.raises(WriteFailedError if lowered else RecordRefusedError) as caught:
        made._raise_failure(failed(TOO_LARGE, 7000))
    assert ("was lowered a moment ago" in str(caught.value)) == bool(lowered)
    with pytest.raises(RecordRefusedError):
        made._raise_failure(failed(INVALID))


def test_batches_are_no_larger_than_the_topic_takes() -> None:
    assert fitted(CONTEXT, OPTIONS).client["batch.size"] == "5000"
    unknown = replace(CONTEXT, facts={})
    assert fitted(unknown, OPTIONS) is OPTIONS
    smaller = KafkaOptions.parse({
        "kafka.bootstrap.servers": "nowhere:9", "topic": "t", "kafka.batch.size": "100"
    })  # fmt: skip
    assert fitted(CONTEXT, smaller) is smaller


def test_another_cluster_behind_an_executors_names_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    here = SimpleNamespace(cluster_id="other", patiently=lambda _seconds, _thing, attempt: attempt())
    monkeypatch.setattr(
        writer, "this_worker", lambda: SimpleNamespace(reach=lambda _options: SimpleNamespace(admin=here))
    )
    with pytest.raises(ConfigurationError, match="leads this executor to Kafka cluster other"):
        writer._require_cluster(replace(CONTEXT, facts={"cluster_id": "ours"}), OPTIONS)


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_no_attempt_begins_before_the_clusters_are_compared(
    monkeypatch: pytest.MonkeyPatch, guarantee: Guarantee
) -> None:
    here = SimpleNamespace(cluster_id="other", patiently=lambda _seconds, _thing, attempt: attempt())
    monkeypatch.setattr(
        writer, "this_worker", lambda: SimpleNamespace(reach=lambda _options: SimpleNamespace(admin=here))
    )
    context = replace(CONTEXT, guarantee=guarantee, facts={"cluster_id": "ours"})
    with pytest.raises(ConfigurationError, match="leads this executor to Kafka cluster other"):
        writer.begin(context, OPTIONS)


def test_an_attempt_that_cannot_begin_gives_its_id_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lock would be held, and its client live, as long as this process."""
    left: list[str] = []

    def begin(_group: str) -> None:
        raise KafkaException(KafkaError(53))

    producer = SimpleNamespace(
        begin_transaction=begin,
        close=lambda: left.append("client"),
    )
    lease = SimpleNamespace(give_back=lambda: left.append("id"))
    ready = SimpleNamespace(producer=producer, lease=lease, transactional_id="the-id")
    pool = SimpleNamespace(expected=lambda _context: "seed:1", take=lambda _epoch: ready)
    monkeypatch.setattr(writer, "_pool", lambda *_: pool)
    facts: dict[str, str | int] = {"cluster_id": "c", "end_txn_version": 5, "transaction_timeout_ms": 60_000}
    with pytest.raises(ConfigurationError, match="refuses access to the-id"):
        TransactionalWrite(replace(CONTEXT, facts=facts), OPTIONS)
    assert sorted(left) == ["client", "id"]


def test_a_topic_whose_partitions_may_not_be_seen_is_named_with_the_permission() -> None:
    made = attempt()
    made.rows = 0

    def partitions(_topic: str, _at_least: int) -> int:
        raise KafkaException(KafkaError(FORBIDDEN))

    made._partitions = partitions
    batch = pa.record_batch({"value": ["x"], "partition": pa.array([0], pa.int32())})
    with pytest.raises(ConfigurationError, match="refuses access to t"):
        made._produce(batch)


def test_a_full_buffer_says_why_it_is_full() -> None:
    made = attempt()
    made.rows = 0

    def write(*_rows: object, **_more: object) -> None:
        raise BufferError("t-0: Broker: Not enough in-sync replicas")

    made.producer = SimpleNamespace(write=write)
    with pytest.raises(WriteFailedError, match="Not enough in-sync replicas"):
        made._produce(pa.record_batch({"value": ["x"]}))


@pytest.mark.parametrize("said", ["broker 2: refused", ""])
def test_rows_that_are_not_acknowledged_come_with_what_was_heard_last(said: str) -> None:
    made = attempt()
    made._timeout_s = 120.0
    failures = SimpleNamespace(first=None, trouble=lambda: said)
    made.producer = SimpleNamespace(flush=lambda _timeout_s: 5, failures=failures)
    with pytest.raises(WriteFailedError, match=f"within 120 s(: {said}|, and no broker has said why)\\."):
        made._flush()


def test_a_buffer_of_librdkafka_that_stays_full_says_what_it_last_heard() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        config = {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "queue.buffering.max.messages": "5",
            "log_level": "0",
        }
        made = RowProducer(config)
        batch = pa.record_batch({"value": ["x"] * 10})
        with pytest.raises(BufferError, match=rf"127\.0\.0\.1:{port} failed: Connection refused .* s ago"):
            made.write(batch, "t", 0, wait_s=1.0)
        made.close()


class Cluster:
    """So many brokers, and the internal topics that are there."""

    def __init__(self, brokers: int, *there: str) -> None:
        self.brokers, self.there = brokers, there

    def patiently(self, _seconds: float, _thing: str, attempt: Any) -> Any:  # noqa: ANN401
        return attempt()

    def send(self, request: Any) -> Any:  # noqa: ANN401
        topics = [
            SimpleNamespace(name=each.name, error_code=0 if each.name in self.there else 3)
            for each in request.topics
        ]
        return SimpleNamespace(brokers=[None] * self.brokers, topics=topics)


@pytest.mark.parametrize(
    "setting", ["transaction.state.log.replication.factor", "offsets.topic.replication.factor"]
)
def test_a_cluster_that_can_never_have_transactions_is_told_its_setting(setting: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{setting} is 3") as caught:
        target._check_internal_topics(cast("Any", Cluster(1)), {setting: "3"})
    assert not caught.value.restartable
    target._check_internal_topics(cast("Any", Cluster(3)), {setting: "3"})
    target._check_internal_topics(
        cast("Any", Cluster(1, "__transaction_state", "__consumer_offsets")), {setting: "3"}
    )
    target._check_internal_topics(cast("Any", Cluster(1)), {})
