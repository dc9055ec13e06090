"""Where all runs take place: one broker, the inputs that all read, an output for each run. Harness."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from benchmarks.contenders.base import Place
from benchmarks.data import expected_windows, fill, window_ms
from benchmarks.values import RECORD_BYTES
from onceonly_proof.campaign.broker import Broker, BrokerKind
from onceonly_proof.embedded.kafka import MeasuredKafka

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from benchmarks.plan import Sizes
    from benchmarks.values import Run, Work

_ADMIN_TIMEOUT_S = 30.0
_BROKER = {
    # What was deleted is to be gone before the disk is full.
    "log.segment.delete.delay.ms": "1000",
    "auto.create.topics.enable": "false",
}
# The records' timestamps are their event times, long past.
_KEPT = {"retention.ms": "-1"}


class MeasuredBroker(MeasuredKafka, Broker):
    """A broker of a kind that becomes as fast as it can."""


@dataclass(slots=True)
class World:
    """The broker and its topics. One thread."""

    folder: Path
    sizes: Sizes
    cores: int
    kafka: Broker
    admin: AdminClient
    _inputs: set[str] = field(default_factory=set)
    _number: int = 0

    @property
    def servers(self) -> str:
        """The broker's address."""
        return self.kafka.bootstrap_servers

    @property
    def partitions(self) -> int:
        """Of every topic: one for each core."""
        return self.cores

    def input(self, work: Work, records: int, say: Callable[[str], None]) -> str:
        """Return the topic with the input of a work; it is written once, and read by all."""
        kind = "window" if work.kind == "window" else "pass"
        topic = f"input-{kind}-{work.record}-{work.compression}"
        if topic not in self._inputs:
            say(f"writing {records:,} records into {topic}")
            self.kafka.create_topic(topic, self.partitions, _KEPT)
            fill(
                self.servers,
                topic,
                records=records,
                partitions=self.partitions,
                record_bytes=RECORD_BYTES[work.record],
                compression=work.compression,
                closing=kind == "window",
            )
            self._inputs.add(topic)
        return topic

    @contextmanager
    def place(self, run: Run, *, source: str = "", records: int = 0, per_epoch: int = 0) -> Iterator[Place]:
        """Return a fresh place for a run; without a ``source``, a fresh input, too. What is fresh is deleted later."""
        self._number += 1
        name = f"{self._number}-{run.contender}"
        fresh = [f"output-{name}"] + ([] if source else [f"input-{name}"])
        checkpoint = self.folder / f"checkpoint-{name}"
        with ExitStack() as close:
            for topic in fresh:
                self.kafka.create_topic(topic, self.partitions, _KEPT)
            close.callback(self.delete, fresh)
            close.callback(shutil.rmtree, checkpoint, ignore_errors=True)
            yield Place(
                name=name,
                servers=self.servers,
                source=source or fresh[1],
                target=fresh[0],
                checkpoint=checkpoint,
                partitions=self.partitions,
                per_epoch=per_epoch,
                window_ms=window_ms(records, self.partitions) if records else 0,
                tls_servers=self.kafka.tls_servers if run.work.tls else "",
                certificate=self.kafka.certificate if run.work.tls else None,
            )

    def fresh_folder(self) -> Path:
        """Name a folder that is not there yet. Short: Spark's sockets stand below it, and their paths are bounded."""
        self._number += 1
        return self.folder / str(self._number)

    def delete(self, topics: list[str]) -> None:
        """Delete topics, and wait until the broker has."""
        for answer in self.admin.delete_topics(topics, operation_timeout=_ADMIN_TIMEOUT_S).values():
            answer.result(_ADMIN_TIMEOUT_S)


@contextmanager
def open_world(folder: Path, sizes: Sizes, cores: int) -> Iterator[World]:
    """Start the broker; it is gone after the block, with all data."""
    with MeasuredBroker(folder / "kafka", BrokerKind(tls=True), properties=_BROKER) as kafka:
        try:
            yield World(folder=folder, sizes=sizes, cores=cores, kafka=kafka, admin=kafka.admin())
        finally:
            kafka.kill()


@cache
def windows(records: int, partitions: int) -> Counter[bytes]:
    """Return the rows that the windows must give; worked out once for all runs."""
    return expected_windows(records, partitions)
