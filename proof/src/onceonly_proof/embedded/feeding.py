"""Writing rows into a topic: each once and in order, all of them, or an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.errors import UnavailableError
from onceonly_proof.embedded.kafka_settings import FEEDER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from confluent_kafka import KafkaError, Message

_REPORT_EVERY = 2_000
_FLUSH_TIMEOUT_S = 60.0


def feed(
    servers: str,
    topic: str,
    rows: Iterable[tuple[int, str | None, bytes]],
    *,
    on_progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Write rows, each with its partition and key, and return their number once the broker has them.

    Raises:
        UnavailableError: it did not take them all.
    """
    from confluent_kafka import Producer

    refused: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer({"bootstrap.servers": servers, **FEEDER, "linger.ms": 20, "log_level": 0})
    count = 0
    for partition, key, value in rows:
        while True:
            try:
                producer.produce(topic, value, key, partition=partition, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
        if count % _REPORT_EVERY == 0:
            producer.poll(0)
            on_progress(count)
    unsent = producer.flush(_FLUSH_TIMEOUT_S)
    if unsent or refused:
        raise UnavailableError(
            f"the broker did not take {unsent + len(refused):,} of {count:,} rows of {topic}: "
            f"{refused[0] if refused else 'time-out'}",
            next_step="read the broker's log",
        )
    on_progress(count)
    return count
