"""Streams the flights into Kafka: an idempotent producer, all partitions in step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.errors import UnavailableError
from onceonly_proof.embedded.kafka_settings import FEEDER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from confluent_kafka import KafkaError, Message

    from onceonly_proof.demo.data import Flight

PARTITIONS = 4
_REPORT_EVERY = 2_000
_FLUSH_TIMEOUT_S = 60.0


def feed(servers: str, topic: str, flights: Iterable[Flight], on_progress: Callable[[int], None]) -> int:
    """Produce every flight once, and give their number. Parent process; blocks until all are acknowledged.

    Partition = place in the stream modulo ``PARTITIONS``: the source takes the same number of rows from each
    partition, so that it reads them in nearly the order of the stream.

    Raises:
        UnavailableError: the broker did not take them all.
    """
    from confluent_kafka import Producer

    refused: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer({"bootstrap.servers": servers, **FEEDER, "linger.ms": 20, "log_level": 2})
    place = -1
    for place, flight in enumerate(flights):
        while True:
            try:
                producer.produce(
                    topic, flight.to_json(), partition=place % PARTITIONS, on_delivery=on_delivery
                )
                break
            except BufferError:
                producer.poll(0.1)
        if place % _REPORT_EVERY == 0:
            producer.poll(0)
            on_progress(place)
    unsent = producer.flush(_FLUSH_TIMEOUT_S)
    if unsent or refused:
        raise UnavailableError(
            f"the broker did not take {unsent + len(refused)} events: {refused[0] if refused else 'time-out'}",
            next_step="run the demo again; with --keep DIR the broker's log is left for a look",
        )
    on_progress(place + 1)
    return place + 1
