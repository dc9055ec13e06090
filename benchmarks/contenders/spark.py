"""Spark's own Kafka sink, at least once: with Spark's defaults, and with the settings that ours has."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from benchmarks import settings
from benchmarks.contenders.base import common_order, prefixed, write_session
from onceonly.jars.locked import connector_jars, spark_jars

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.contenders.base import Place
    from benchmarks.values import Work


class Spark:
    """Fulfils ``Contender``; what any contender on Spark has in common, ours too."""

    format = "kafka"
    register = False

    def __init__(self, name: str, *, tuned: bool) -> None:
        self.name = name
        self.is_tuned = tuned

    def prepare(self) -> None:
        connector_jars()

    def command(self) -> list[str]:
        return [sys.executable, "-W", "ignore", "-m", "benchmarks.jobs.spark"]

    def write_session(self, folder: Path, cores: int, *, few_rows: bool) -> None:
        temporary = folder / "tmp"
        conf = {
            **settings.BASE,
            **(settings.SESSION if self.is_tuned else {}),
            **(settings.FEW_ROWS if few_rows else {}),
            "spark.jars": spark_jars(),
            "spark.pyspark.python": sys.executable,
            "spark.sql.shuffle.partitions": str(cores),
            "spark.sql.warehouse.dir": str(temporary / "warehouse"),
            "spark.local.dir": str(temporary),
        }
        master = f"local[{cores}]"
        write_session(folder, {"conf": conf, "master": master, "register": self.register})

    def order(self, work: Work, place: Place) -> dict[str, object]:
        sink = {
            "kafka.bootstrap.servers": place.tls_servers or place.servers,
            "topic": place.target,
            "kafka.compression.type": work.compression,
            **self._sink(),
            **(self._security(place.certificate) if place.certificate else {}),
        }
        source = prefixed(settings.SOURCE, "kafka.") if self.is_tuned else {}
        return {
            **common_order(work, place),
            "format": self.format,
            "sink": sink,
            "source_options": source,
        }

    def settings(self) -> Mapping[str, str]:
        tuned = {
            **settings.SESSION,
            **prefixed(settings.FEW_ROWS, settings.MARK_FEW_ROWS),
            **prefixed(settings.SOURCE, "source: kafka."),
        }
        return {**settings.BASE, **(tuned if self.is_tuned else {}), **prefixed(self._sink(), "sink: ")}

    def versions(self) -> Mapping[str, str]:
        return {}

    def _security(self, certificate: Path) -> dict[str, str]:
        return {
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(certificate),
        }

    def _sink(self) -> dict[str, str]:
        return prefixed(settings.PRODUCER, "kafka.") if self.is_tuned else {}
