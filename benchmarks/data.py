"""The input, by its number: every record is a function of it, so what must come out is known without being kept.

A value begins with the record's number and a time in microseconds, both as text of fixed width; the rest looks like an
event in JSON. The record's timestamp is its event time.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from onceonly.errors import UnavailableError
from onceonly_proof.embedded.kafka_settings import FEEDER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from confluent_kafka import KafkaError, Message, Producer

    from benchmarks.values import Compression

APPS = 100
WINDOWS = 40
KEY_BYTES, HEAD_BYTES = 6, 30
CLOSING = b"closes"
"""The key of the last record of each partition, late enough to close all windows before it; it comes out of none."""
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_BEGIN_MS = int(_BEGIN.timestamp() * 1000)
_CLOSING_MS = 24 * 3600 * 1000
_POOL = 1024
_WINDOW_MS_MAX = 99_000  # seconds have two digits in an interval of Flink's SQL
_BETWEEN_POLLS = 2_000
_FLUSH_TIMEOUT_S = 120.0


def key(number: int, partitions: int) -> bytes:
    """Return the key: an application, in turns within each partition."""
    return b"app%03d" % (number // partitions % APPS)


def fillers(record_bytes: int) -> list[bytes]:
    """Return the texts that values end with: events in JSON, of a length. Always the same."""
    length = record_bytes - KEY_BYTES - HEAD_BYTES
    draw = random.Random(7)  # noqa: S311  the same events in every run, nothing secret
    words = [f"{draw.getrandbits(40):010x}" for _ in range(200)]
    found = []
    for _ in range(_POOL):
        text = '{"user":' + str(draw.randrange(10**7))
        while len(text) < length:
            text += f',"{draw.choice(words)[:4]}":"{draw.choice(words)}"'
        found.append(text[:length].encode())
    return found


def value(number: int, stamp_us: int, filler: bytes) -> bytes:
    """Return the value of a record."""
    return b"%012d %016d " % (number, stamp_us) + filler


def number_of(record_value: bytes) -> int:
    """Read the number back."""
    return int(record_value[:12])


def stamp_us_of(record_value: bytes) -> int:
    """Read the time back."""
    return int(record_value[13:29])


def span_ms(records: int, partitions: int) -> int:
    """Return how much event time the input covers: a millisecond each record of a partition."""
    return -(-records // partitions)


def window_ms(records: int, partitions: int) -> int:
    """Return the length of a window, so that there are about ``WINDOWS``; a divisor of Spark's and Flink's epoch."""
    return max(APPS, min(_WINDOW_MS_MAX, span_ms(records, partitions) // WINDOWS))


def expected_windows(records: int, partitions: int) -> Counter[bytes]:
    """Return every row that must come out of the windows, as ``key,begin,count``."""
    length, span = window_ms(records, partitions), span_ms(records, partitions)
    rows: Counter[tuple[int, int]] = Counter()
    for moment in range(span):
        share = min(partitions, records - moment * partitions)
        rows[(_BEGIN_MS + moment) // length * length, moment % APPS] += share
    return Counter(
        b"app%03d,%s,%d" % (app, window_name(begin_ms), count) for (begin_ms, app), count in rows.items()
    )


def window_name(begin_ms: int) -> bytes:
    """Write a window's begin as Spark and Flink are told to."""
    moment = _BEGIN + timedelta(milliseconds=begin_ms - _BEGIN_MS)
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3].encode()


def fill(  # noqa: PLR0913  one keyword for each property of the topic's content
    servers: str,
    topic: str,
    *,
    records: int,
    first: int = 0,
    partitions: int,
    record_bytes: int,
    compression: Compression = "none",
    closing: bool = False,
) -> None:
    """Write records ``first`` to ``first + records`` into a topic; returns when the broker has them all.

    Raises:
        UnavailableError: the broker did not take all of them.
    """
    from confluent_kafka import Producer

    taken: list[int] = [0]

    def delivered(error: KafkaError | None, _message: Message) -> None:
        taken[0] += error is None

    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": servers,
        **FEEDER,
        "linger.ms": 20,
        "compression.type": compression,
        "queue.buffering.max.messages": 500_000,
        "log_level": 0,
    }
    producer: Producer = Producer(settings)
    pool = fillers(record_bytes)
    rows: Sequence[int] = range(first, first + records)
    for number in rows:
        partition, moment = number % partitions, _BEGIN_MS + number // partitions
        row = key(number, partitions), value(number, 0, pool[number % _POOL])
        _send(producer, topic, row, partition, moment, delivered)
        if number % _BETWEEN_POLLS == 0:
            producer.poll(0)
    wanted = records
    if closing:
        late = _BEGIN_MS + span_ms(records, partitions) + _CLOSING_MS
        for partition in range(partitions):
            row = CLOSING, value(records + partition, 0, pool[0])
            _send(producer, topic, row, partition, late, delivered)
        wanted += partitions
    producer.flush(_FLUSH_TIMEOUT_S)
    if taken[0] != wanted:
        raise UnavailableError(
            f"the broker took {taken[0]:,} of {wanted:,} records of the input",
            next_step="see whether its disk is full, then run the benchmark again",
        )


def _send(
    producer: Producer,
    topic: str,
    row: tuple[bytes, bytes],
    partition: int,
    moment: int,
    delivered: Callable[[KafkaError | None, Message], None],
) -> None:
    while True:
        try:
            producer.produce(
                topic, row[1], row[0], partition=partition, timestamp=moment, on_delivery=delivered
            )
        except BufferError:
            producer.poll(0.5)
        else:
            return
