"""Reads an output back when a run is over: every row that a ``read_committed`` reader gets, in processes of its own."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.data import number_of
from onceonly.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

_BATCH = 20_000
# `consume` waits for a full batch, and the last one never is.
_BATCH_S_MAX = 0.2
_SILENCE_S_MAX = 30.0


@dataclass(frozen=True, slots=True)
class Partition:
    """What one partition holds: offsets in their order, and the records' numbers or, of windows, ``key,value``."""

    offsets: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64]
    rows: Counter[bytes]


def read(servers: str, topic: str, partitions: int, *, windows: bool = False) -> list[Partition]:
    """Read a topic from begin to end, its partitions at the same time. Blocks; the machine should have nothing else.

    Raises:
        UnavailableError: the broker gives no answer.
    """
    # Not by fork: this process has threads, of the clients of Kafka too.
    with ProcessPoolExecutor(partitions, mp_context=get_context("spawn")) as pool:
        asked = [
            pool.submit(read_partition, servers, topic, number, windows=windows)
            for number in range(partitions)
        ]
        return [each.result() for each in asked]


def read_partition(servers: str, topic: str, number: int, *, windows: bool) -> Partition:
    """Read one partition. See ``read``."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer: Consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"read-{uuid.uuid4().hex}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": False,
            # By default it waits for a second whenever 100,000 records are in its queue: three quarters of the time.
            "fetch.queue.backoff.ms": 5,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0)])
    offsets: list[int] = []
    numbers: list[int] = []
    rows: Counter[bytes] = Counter()
    heard_s = time.monotonic()
    try:
        while True:
            messages = consumer.consume(_BATCH, _BATCH_S_MAX)
            if messages:
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > _SILENCE_S_MAX:
                raise UnavailableError(
                    f"the output {topic} cannot be read: silence for {_SILENCE_S_MAX:.0f} s",
                    next_step="read the broker's log, then run the benchmark again",
                )
            for message in messages:
                error = message.error()
                if error is None:
                    offsets.append(message.offset() or 0)
                    value = message.value() or b""
                    if windows:
                        rows[b"%b,%b" % (message.key() or b"", value)] += 1
                    else:
                        numbers.append(number_of(value))
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  its documented name
                    return Partition(np.array(offsets, np.int64), np.array(numbers, np.int64), rows)
    finally:
        consumer.close()


def missing_and_again(found: Sequence[Partition], records: int) -> tuple[int, int]:
    """Count the records that are not there, and those that are there once more. Pure.

    A number that was never written counts as one too much.
    """
    numbers = np.concatenate([each.numbers for each in found])
    known = numbers[(numbers >= 0) & (numbers < records)]
    times = np.bincount(known, minlength=records)
    again = int((times - 1).clip(0).sum()) + len(numbers) - len(known)
    return int((times == 0).sum()), again


def wrong_windows(found: Sequence[Partition], expected: Counter[bytes]) -> tuple[int, int]:
    """Count the windows that are not there as they must be, and the rows that are too much. Pure."""
    rows: Counter[bytes] = Counter()
    for each in found:
        rows.update(each.rows)
    return (expected - rows).total(), (rows - expected).total()
