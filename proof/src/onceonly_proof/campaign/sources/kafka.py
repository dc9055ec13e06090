"""Kafka: a topic of the campaign's broker, which has faults of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from onceonly.errors import UnavailableError
from onceonly_proof.auditor import read_inputs
from onceonly_proof.campaign.sources.port import Flow, require_whole
from onceonly_proof.embedded.kafka_settings import FEEDER

if TYPE_CHECKING:
    from confluent_kafka import Producer

    from onceonly_proof.auditor import Input
    from onceonly_proof.campaign.workload import Workload

_FLUSH_TIMEOUT_S = 60.0


class Topic(Flow):
    """A topic that is there. ``fed`` is what the broker has taken, with what came before."""

    def __init__(self, servers: str, topic: str, workload: Workload) -> None:
        from confluent_kafka import Producer

        super().__init__(workload)
        self._servers = servers
        self._topic = topic
        self._producer: Producer = Producer({
            "bootstrap.servers": servers,
            **FEEDER,
            "linger.ms": 5,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        })  # fmt: skip
        self.fed = 0

    def options(self) -> dict[str, str]:
        return {}

    def is_read(self, offsets: str) -> bool:
        return self.rows_until(offsets) >= self.fed

    def rows_until(self, offsets: str) -> int:
        try:
            return sum(json.loads(offsets.splitlines()[-1])[self._topic].values())
        except (IndexError, ValueError, KeyError):
            return 0  # not there, or being written

    def inputs(self) -> list[Input]:
        return read_back(self._servers, self._topic)

    def _produce(self, partition: int, key: str, value: bytes) -> int:
        """Return how many were taken: none while the broker is down for long, which is not counted."""
        try:
            self._producer.produce(
                self._topic, key=key, value=value, partition=partition, on_delivery=self._delivered
            )
        except BufferError:
            return 0
        return 1

    def _flush(self) -> None:
        self._producer.poll(0)

    def _finish(self) -> int:
        left = self._producer.flush(_FLUSH_TIMEOUT_S)
        written = self.distinct + self._repeated
        if left or self.fed != written:
            raise UnavailableError(
                f"the broker took {self.fed} of {written} rows of the workload",
                next_step="read the broker's log in the kept folder",
            )
        return self.fed

    def _delivered(self, error: object, _message: object) -> None:
        if error is None:
            self.fed += 1


def read_back(servers: str, topic: str) -> list[Input]:
    """Return the rows that were fed into a topic. Raises ``UnavailableError``."""
    return require_whole(read_inputs(servers, topic))
