"""Sends records at a fixed rate, whatever happens: ``python -m benchmarks.load.sender`` with a JSON text as argument.

Open loop: record n is due at begin + n / rate, and carries *that* time. If the sender or the broker is late, the
lateness is in the measured latency, not left out of it (coordinated omission).
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

from benchmarks.data import fillers, key, value
from onceonly_proof.parent import die_with_parent

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

_FLUSH_TIMEOUT_S = 60.0
_PAUSE_S_MAX = 0.002
_MICRO = 1_000_000
# Time for the client to know the topic, before the first record is due.
_LEAD_S = 0.5


def due(elapsed_s: float, rate: int, total: int) -> int:
    """Return how many records are due: the first one at once. Pure."""
    return min(total, int(elapsed_s * rate) + 1) if elapsed_s >= 0 else 0


def send(
    servers: str, topic: str, *, rate: int, total: int, partitions: int, record_bytes: int
) -> dict[str, float]:
    """Send, and give how many the broker has taken and how late the sender has been at worst."""
    from confluent_kafka import Producer

    taken = [0]

    def delivered(error: KafkaError | None, _message: Message) -> None:
        taken[0] += error is None

    producer: Producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 0, "acks": "all", "log_level": 0}
    )
    producer.list_topics(topic, timeout=30)
    pool = fillers(record_bytes)
    begin_s, begin = time.time() + _LEAD_S, time.monotonic() + _LEAD_S
    number, late_s = 0, 0.0
    while number < total:
        elapsed_s = time.monotonic() - begin
        for each in range(number, due(elapsed_s, rate, total)):
            stamp_us = int((begin_s + each / rate) * _MICRO)
            producer.produce(
                topic,
                value(each, stamp_us, pool[each % len(pool)]),
                key(each, partitions),
                partition=each % partitions,
                on_delivery=delivered,
            )
            late_s = max(late_s, elapsed_s - each / rate)
            number = each + 1
        producer.poll(0)
        rest_s = begin + number / rate - time.monotonic()
        time.sleep(min(max(rest_s, 0.0), _PAUSE_S_MAX))
    producer.flush(_FLUSH_TIMEOUT_S)
    return {"taken": taken[0], "late_ms": round(late_s * 1000, 3)}


def main() -> None:
    """Do it as the argument says, and print what it was like."""
    die_with_parent()
    told = json.loads(sys.argv[1])
    sys.stdout.write(json.dumps(send(told.pop("servers"), told.pop("topic"), **told)) + "\n")


if __name__ == "__main__":
    main()
