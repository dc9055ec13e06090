"""Writes rows of the campaign's kind into a topic, as many as are asked for, evenly over its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.errors import UnavailableError
from onceonly_proof.campaign.workload import row
from onceonly_proof.embedded.kafka_settings import FEEDER

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

_FLUSH_TIMEOUT_S = 60.0
_BETWEEN_POLLS = 1_000
_KEYS = 5_000


class Feed:
    """What one topic was fed. Campaign's process; one thread."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        from confluent_kafka import Producer

        self._topic = topic
        self._partitions = partitions
        self._producer: Producer = Producer({
            "bootstrap.servers": servers,
            **FEEDER,
            "linger.ms": 20,
            "log_level": 0,
        })  # fmt: skip
        self._taken = 0
        self.fed = 0

    def grow(self, count: int) -> None:
        """Write until the topic holds so many rows; returns when the broker has them. Idempotent.

        Raises:
            UnavailableError: the broker did not take all of them in time.
        """
        while self.fed < count:
            position, partition = divmod(self.fed, self._partitions)
            value = row(self.fed, partition, position, "")
            key = str(self.fed % _KEYS)
            try:
                self._producer.produce(
                    self._topic, value, key, partition=partition, on_delivery=self._delivered
                )
            except BufferError:
                self._producer.poll(1)
                continue
            self.fed += 1
            if self.fed % _BETWEEN_POLLS == 0:
                self._producer.poll(0)
        self._producer.flush(_FLUSH_TIMEOUT_S)
        if self._taken != self.fed:
            raise UnavailableError(
                f"the broker took {self._taken:,} of {self.fed:,} rows", next_step="read the broker's log"
            )

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self._taken += 1
