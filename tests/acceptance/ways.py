"""What the tests of the two ways share: one Spark session, and one query of each way."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import ledger_sink
import pytest
from pyspark.sql import SparkSession

import onceonly
from onceonly import events, failpoints
from onceonly.jars.locked import spark_jars
from onceonly.spark.processes.start import FOLDER
from onceonly_proof.local_session import SHORT_LIVED_JAVA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    Change: TypeAlias = Callable[[DataFrame], DataFrame]

HERE = str(Path(__file__).parent)
WAIT_S = 300
_NOW: dict[str, Any] = {"availableNow": True}
ROWS = [(n, f"app{n % 3}") for n in range(60)]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("ways")
        .config("spark.ui.enabled", "false")
        # For some only; but of the files that a process runs, the first one starts Java, which takes jars no more.
        .config("spark.jars", spark_jars())
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.executorEnv.PYTHONPATH", f"{HERE}{os.pathsep}{FOLDER}")
        .config("spark.driver.extraJavaOptions", SHORT_LIVED_JAVA)
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    onceonly.register(session, ledger_sink.LedgerSink)
    yield session
    session.stop()


@dataclass
class Way:
    """One query in a folder of its own. ``kind`` is format or foreach."""

    spark: SparkSession
    folder: Path
    kind: str
    patch: pytest.MonkeyPatch

    def arm(self, spec: str) -> Path:
        """Arm crash points in the driver and in all Python workers of later queries; give their folder."""
        fired = self.folder / f"fired{len(list(self.folder.glob('fired*')))}"
        fired.mkdir()
        # This process has counted the passes of the tests before.
        failpoints._counts.clear()
        self._set("ONCEONLY_FAILPOINTS", spec)
        self._set("ONCEONLY_FAILPOINTS_DIR", str(fired))
        onceonly.register(self.spark, ledger_sink.LedgerSink)
        return fired

    def record(self) -> None:
        """Record what all processes of later queries do, for ``seen``."""
        self._set("ONCEONLY_EVENTS", str(self.folder / "events"))
        # This process has a file open in the folder of another test.
        self.patch.setattr(events, "_writer", None)

    def seen(self, kind: str) -> list[dict[str, Any]]:
        """Return the recorded events of a kind, oldest first."""
        return [event for event in events.read(self.folder / "events") if event["kind"] == kind]

    def disarm(self) -> None:
        """Let later queries run as ever."""
        self.arm("")
        self._set("ONCEONLY_EVENTS", "")

    def _set(self, name: str, value: str) -> None:
        self.patch.setenv(name, value)
        # What PySpark hands to its workers with each function.
        self.spark.sparkContext.environment[name] = value

    def source(self, rows: int = len(ROWS), **options: Any) -> DataFrame:  # noqa: ANN401
        settings = {"rows_per_epoch": 10, "partitions": 2, **options}
        return onceonly.collection(self.spark, ROWS[:rows], "id long, app string", **settings)

    def start(
        self,
        df: DataFrame,
        *,
        name: str = "q",
        mode: str = "append",
        trigger: dict[str, str] | None = None,
        **options: str,
    ) -> StreamingQuery:
        """Start the query ``name``: its checkpoint and its output lie below folders of this name."""
        given = {
            "checkpointLocation": str(self.folder / name / "checkpoint"),
            "folder": str(self.folder / name / "out"),
            **options,
        }
        writer = df.writeStream.outputMode(mode).trigger(**(trigger or _NOW))
        if self.kind == "format":
            return writer.format("onceonly.ledger").options(**given).start()
        writer = writer.option("checkpointLocation", given["checkpointLocation"])
        return writer.foreachBatch(onceonly.sink("onceonly.ledger", **given)).start()

    def run(self, df: DataFrame, **settings: Any) -> None:  # noqa: ANN401
        assert self.start(df, **settings).awaitTermination(WAIT_S)

    def out(self, name: str = "q") -> Path:
        return self.folder / name / "out"

    def ids(self, name: str = "q") -> list[int]:
        return sorted(int(str(row["id"])) for row in ledger_sink.committed(self.out(name)))

    def exactly(self, rows: int = len(ROWS), name: str = "q") -> bool:
        """Every row once, and nothing left open."""
        return self.ids(name) == list(range(rows)) and ledger_sink.staged(self.out(name)) == []


BY_FORMAT_FIRST = pytest.mark.parametrize(
    "way", ["format", pytest.param("foreach", marks=pytest.mark.long)], indirect=True
)
"""Of a test that takes long: by foreachBatch it runs on demand."""


@pytest.fixture(params=["format", "foreach"])
def way(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Way]:
    made = Way(spark, tmp_path, request.param, monkeypatch)
    yield made
    for query in spark.streams.active:
        query.stop()
    made.disarm()


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, f"waited {WAIT_S} s for {what}"
        time.sleep(0.05)


def hit(folder: Path, name: str) -> Callable[[], bool]:
    return lambda: name in failpoints.fired(folder)
