"""PyFlink, exactly once and at least once, in an environment of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import settings
from benchmarks.contenders import flink_environment as environment
from benchmarks.contenders.base import common_order, prefixed, write_session

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.contenders.base import Place
    from benchmarks.values import Work


class Flink:
    """Fulfils ``Contender``."""

    is_tuned = True

    def __init__(self, name: str, guarantee: str) -> None:
        self.name = name
        self._guarantee = guarantee

    def prepare(self) -> None:
        environment.ensure()

    def command(self) -> list[str]:
        return [str(environment.python()), "-W", "ignore", "-m", "benchmarks.jobs.flink"]

    def write_session(self, folder: Path, cores: int, *, few_rows: bool) -> None:
        conf = {
            **settings.FLINK,
            "parallelism.default": str(cores),
            "taskmanager.numberOfTaskSlots": str(cores),
            "io.tmp.dirs": str(folder / "tmp"),
        }
        write_session(folder, {"conf": conf, "java": settings.JAVA_FEW_ROWS if few_rows else ""})

    def order(self, work: Work, place: Place) -> dict[str, object]:
        return {
            **common_order(work, place),
            "sink": {**self._sink(), "properties.compression.type": work.compression},
            "source_options": prefixed(settings.FLINK_SOURCE, "properties."),
        }

    def settings(self) -> Mapping[str, str]:
        return {
            **settings.FLINK,
            "JVM_ARGS": f"-Xmx{settings.MEMORY}",
            f"{settings.MARK_FEW_ROWS}JVM_ARGS": settings.JAVA_FEW_ROWS,
            **prefixed(settings.FLINK_SOURCE, "source: properties."),
            **prefixed(self._sink(), "sink: "),
        }

    def versions(self) -> Mapping[str, str]:
        return environment.versions()

    def _sink(self) -> dict[str, str]:
        own = settings.FLINK_EXACTLY_ONCE if self._guarantee == "exactly-once" else {}
        producer = prefixed({**settings.PRODUCER, **own}, "properties.")
        return {"sink.delivery-guarantee": self._guarantee, **producer}
