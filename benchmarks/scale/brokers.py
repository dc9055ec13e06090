"""How much of a broker's heap transactional ids and groups of markers take, after a full collection."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

from benchmarks.scale import samples
from benchmarks.scale.links import point
from onceonly.sinks.kafka.committer import fence
from onceonly.sinks.kafka.options import KafkaOptions
from onceonly.sinks.kafka.outcomes import marker
from onceonly.sinks.kafka.wire.admin import Admin
from onceonly_proof.embedded.kafka import MeasuredKafka

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.scale.values import Point

COUNTS = (0, 2_000, 5_000, 10_000)
_THREADS, _TIMEOUT_MS, _JCMD_S = 8, 600_000, 120
_TOPIC = "results"


def measure(folder: Path, repeats: int, say: Callable[[str], None]) -> list[Point]:
    """Fill fresh brokers, in turns with ids and with groups, and look at their heaps on the way."""
    taken: dict[tuple[str, int], list[float]] = defaultdict(list)
    for number in range(repeats):
        for kind, make in (("ids", _id), ("groups", _group)):
            say(f"broker's heap by {kind}, repeat {number + 1} of {repeats}")
            with MeasuredKafka(folder / f"broker-{kind}-{number}") as kafka:
                kafka.create_topic(_TOPIC)
                options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": _TOPIC}
                with (
                    closing(Admin(KafkaOptions.parse(options))) as admin,
                    ThreadPoolExecutor(_THREADS) as pool,
                ):
                    make(admin, -1)  # Kafka makes its own topic for them
                    made = 0
                    for count in COUNTS:
                        list(
                            pool.map(
                                lambda slot, admin=admin, make=make: make(admin, slot), range(made, count)
                            )
                        )
                        made = count
                        taken[kind, count].append(live_bytes(kafka.pid or 0))
                kafka.kill()
    return [point(f"heap_{kind}_bytes", {kind: count}, values) for (kind, count), values in taken.items()]


def live_bytes(pid: int) -> float:
    """Return what all objects of a JVM take that are still reachable; jcmd collects before it counts."""
    done = subprocess.run(
        ["jcmd", str(pid), "GC.class_histogram"], capture_output=True, text=True, check=True, timeout=_JCMD_S
    )
    total = re.search(r"^Total\s+\d+\s+(\d+)", done.stdout, re.MULTILINE)
    if total is None:
        raise RuntimeError(f"jcmd gives no total: {done.stdout[-200:]}")
    return float(total[1])


def _id(admin: Admin, slot: int) -> None:
    fence(admin, f"onceonly.{samples.QUERY}.kafka.{samples.RUN}.{slot:012x}.0", _TIMEOUT_MS)


def _group(admin: Admin, slot: int) -> None:
    marker.read_or_seed(admin, marker.group_name("onceonly", samples.QUERY, "kafka", slot + 1), _TOPIC)
