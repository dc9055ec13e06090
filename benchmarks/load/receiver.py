"""Notes when each record can be read, ``read_committed``: ``python -m benchmarks.load.receiver`` with a JSON argument.

Ends when it has all of them, or when nothing came for a while; writes ``numbers`` and ``latencies_ms`` to a file.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.data import number_of, stamp_us_of
from onceonly_proof.parent import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable

_POLL_S = 0.2
_MICRO = 1_000_000


def receive(
    servers: str, topic: str, *, total: int, partitions: int, silence_s: float, ready: Callable[[], None]
) -> tuple[list[int], list[float]]:
    """Return each record's number and its latency in ms, in the order of arrival. ``ready`` is called before the first.

    Records that do not belong to the ``total`` are left out: those that make the query start.
    """
    from confluent_kafka import Consumer, TopicPartition

    consumer: Consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"latency-{uuid.uuid4().hex}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    # Makes it connect; what it gives is looked at below, as everything else.
    message = consumer.poll(_POLL_S)
    ready()
    numbers: list[int] = []
    latencies_ms: list[float] = []
    seen = bytearray(total)
    count, last_s = 0, time.monotonic()
    try:
        while count < total and time.monotonic() - last_s < silence_s:
            if message is not None and message.error() is None:
                now_us, record = time.time() * _MICRO, message.value() or b""
                last_s = time.monotonic()
                number = number_of(record)
                if number < total:
                    numbers.append(number)
                    latencies_ms.append((now_us - stamp_us_of(record)) / 1000)
                    count += not seen[number]
                    seen[number] = 1
            message = consumer.poll(_POLL_S)
    finally:
        consumer.close()
    return numbers, latencies_ms


def main() -> None:
    """Do it as the argument says."""
    die_with_parent()
    told = json.loads(sys.argv[1])
    path = Path(told.pop("file"))

    def ready() -> None:
        sys.stdout.write("ready\n")
        sys.stdout.flush()

    numbers, latencies_ms = receive(told.pop("servers"), told.pop("topic"), ready=ready, **told)
    np.savez(path, numbers=np.array(numbers, np.int64), latencies_ms=np.array(latencies_ms, np.float64))


if __name__ == "__main__":
    main()
