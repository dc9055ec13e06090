"""Ours, exactly once and at least once: the same job as Spark's own sink at our settings, with another format."""

from __future__ import annotations

from benchmarks.contenders.spark import Spark


class Onceonly(Spark):
    """Fulfils ``Contender``."""

    format = "onceonly.kafka"
    register = True

    def __init__(self, name: str, guarantee: str) -> None:
        super().__init__(name, tuned=True)
        self._guarantee = guarantee

    def _sink(self) -> dict[str, str]:
        return {**super()._sink(), "onceonly.guarantee": self._guarantee}
