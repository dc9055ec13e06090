"""How long the commit phase takes by its number of transactions, on one broker that is warm.

The transactions are made by requests: id, two partitions and a group's offsets, but no rows, of which a commit costs
the same. Those with rows, and by our own writer, are in ``benchmarks.parts.commits``; there most time goes into
their preparation.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.scale import samples
from benchmarks.scale.links import point
from onceonly.coordinator.coordinator import Coordinator, Participant
from onceonly.log import open_log
from onceonly.model import Guarantee, Handle
from onceonly.sinks.kafka import KafkaSink
from onceonly.sinks.kafka.committer import fence
from onceonly.sinks.kafka.options import KafkaOptions
from onceonly.sinks.kafka.prepared import Prepared
from onceonly.sinks.kafka.wire.admin import TRANSACTION, Admin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from benchmarks.scale.values import Point
    from onceonly.model import Plan
    from onceonly_proof.embedded.kafka import EmbeddedKafka

COUNTS = (1, 4, 16, 64, 256)
WARM_COUNT, WARM_EPOCHS = 64, 25
EPOCHS = 3
"""Of each count in each repeat."""
PARTITIONS = 2
_TOPIC, _THREADS, _TIMEOUT_MS = "results", 8, 600_000
_STEPS = {"handle.committed": "commits_ms", "epoch.done": "decide_ms"}


def measure(kafka: EmbeddedKafka, folder: Path, repeats: int, say: Callable[[str], None]) -> list[Point]:
    """Decide epochs of all counts in turns, and time from the last vote until all is committed, noted and swept."""
    kafka.create_topic(_TOPIC, PARTITIONS)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": _TOPIC}
    taken: dict[tuple[str, int], list[float]] = defaultdict(list)
    with closing(_Job(options, folder)) as job:
        say(f"warming up with {WARM_EPOCHS} epochs of {WARM_COUNT} transactions")
        for _ in range(WARM_EPOCHS):
            job.epoch(WARM_COUNT)
        for number in range(repeats):
            say(f"commits, repeat {number + 1} of {repeats}")
            for count in COUNTS:
                for _ in range(EPOCHS):
                    for step, milliseconds in job.epoch(count).items():
                        taken[_STEPS[step], count].append(milliseconds)
    return [point(figure, {"transactions": count}, values) for (figure, count), values in taken.items()]


class _Job:
    """One query without Spark."""

    def __init__(self, options: Mapping[str, str], folder: Path) -> None:
        self._sink = KafkaSink(options)
        self._admin = Admin(KafkaOptions.parse(options))
        self._watched: dict[str, float] = {}
        log = open_log(str(folder / "commits"), query=samples.QUERY, create=True)
        self._coordinator = Coordinator(log=log, actor="driver", watch=self._watch)
        self._coordinator.join("kafka", Participant(sink=self._sink, guarantee=Guarantee.EXACTLY_ONCE))
        self._plan: Plan | None = None
        fence(self._admin, "warm", _TIMEOUT_MS)  # Kafka makes its topic of transactions

    def epoch(self, count: int) -> dict[str, float]:
        """Decide one more epoch; give how long after its begin each step was taken for the last time, in ms."""
        number = self._plan.epoch + 1 if self._plan else 0
        before = self._plan.id if self._plan else None
        plan = self._plan = self._coordinator.plan(number, run=samples.RUN, continues=before)
        with ThreadPoolExecutor(_THREADS) as pool:
            handles = list(pool.map(lambda _: self._prepare(), range(count)))
        votes = [
            replace(vote, sink="kafka", handle=handle)
            for vote, handle in zip(
                samples.votes(number, sinks=1, slots=count, plan=plan.id), handles, strict=True
            )
        ]
        self._watched.clear()
        began = time.monotonic()
        self._coordinator.decide(plan, votes)
        return {step: 1_000 * (self._watched[step] - began) for step in _STEPS}

    def close(self) -> None:
        """Give back connections."""
        self._sink.close()
        self._admin.close()

    def _watch(self, step: Mapping[str, str | int]) -> None:
        self._watched[str(step["kind"])] = time.monotonic()

    def _prepare(self) -> Handle:
        from kafka.protocol.producer.transaction import (
            AddOffsetsToTxnRequest,
            AddPartitionsToTxnRequest,
            InitProducerIdRequest,
        )

        name = f"onceonly-scale.{uuid.uuid4().hex}"
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=_TIMEOUT_MS,
            producer_id=-1,
            producer_epoch=-1,
            max_version=4,
        )
        made = self._admin.to_coordinator(TRANSACTION, name, request)
        _require(made.error_code)
        topics = [
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=_TOPIC, partitions=[*range(PARTITIONS)])
        ]
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=made.producer_id,
            v3_and_below_producer_epoch=made.producer_epoch,
            v3_and_below_topics=topics,
            max_version=3,
        )
        answer = self._admin.to_coordinator(TRANSACTION, name, added)
        for partition in answer.results_by_topic_v3_and_below[0].results_by_partition:
            _require(partition.partition_error_code)
        group = AddOffsetsToTxnRequest(
            transactional_id=name,
            producer_id=made.producer_id,
            producer_epoch=made.producer_epoch,
            group_id=name,
            max_version=3,
        )
        _require(self._admin.to_coordinator(TRANSACTION, name, group).error_code)
        return Prepared(
            cluster_id=self._admin.cluster_id,
            transactional_id=name,
            producer_id=made.producer_id,
            producer_epoch=made.producer_epoch,
            end_txn_version=5,
            group=name,
            marker_topic=_TOPIC,
            token="0:token",  # noqa: S106  a marker's, which is no secret
            predecessor="seed:token",
        ).handle()


def _require(code: int) -> None:
    if code:
        raise RuntimeError(f"Kafka answers error {code}")
