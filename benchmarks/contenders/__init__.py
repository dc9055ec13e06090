"""Who is compared: how each is started, what it is told, and with which settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.contenders.flink import Flink
from benchmarks.contenders.onceonly import Onceonly
from benchmarks.contenders.spark import Spark
from benchmarks.values import FLINK_ALO, FLINK_EO, ONCEONLY_ALO, ONCEONLY_EO, SPARK_DEFAULT, SPARK_TUNED

if TYPE_CHECKING:
    from benchmarks.contenders.base import Contender


def contenders() -> dict[str, Contender]:
    """Return all of them by name."""
    every: tuple[Contender, ...] = (
        Onceonly(ONCEONLY_EO, "exactly-once"),
        Onceonly(ONCEONLY_ALO, "at-least-once"),
        Spark(SPARK_DEFAULT, tuned=False),
        Spark(SPARK_TUNED, tuned=True),
        Flink(FLINK_EO, "exactly-once"),
        Flink(FLINK_ALO, "at-least-once"),
    )
    return {each.name: each for each in every}
