"""A query's log through many epochs: the real coordinator, coordinator and log on a real disk; sinks that cost nothing.

Spark's part is played: its offsets before each epoch, its note after it, its report. Time is simulated, a second an
epoch, and nothing is synced, as a hundred thousand epochs would else take an hour.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar
from unittest.mock import patch

from benchmarks.scale import samples
from onceonly.coordinator.query import QueryCoordinator
from onceonly.executor.ballot import Ballot
from onceonly.log import folding
from onceonly.log.progress import OperatorReport, Progress, ProgressFiles, SourceReport
from onceonly.model import Capabilities, Committed, Guarantee, Handle, Mode, Outcome, Plan, Vote
from onceonly.ports import TwoPhaseCommitSink, WriteContext
from onceonly.settings.query import QuerySettings, SinkSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from onceonly.log.survey import Survey
    from onceonly.options import Option

SPARK_KEEPS = 100
"""Spark's ``spark.sql.streaming.minBatchesToRetain``."""
LIFE_EPOCHS = 500
"""So often is a driver killed."""


class FreeSink(TwoPhaseCommitSink[None]):
    """Says at once that all is committed, and keeps nothing. Its votes are made by the job."""

    name: ClassVar[str] = "free"
    capabilities: ClassVar[Capabilities] = Capabilities(guarantees=frozenset(Guarantee), recovers=True)
    declared: ClassVar[tuple[Option, ...]] = ()

    def identity(self) -> Mapping[str, str | int]:
        link = samples.link(0, sinks=1, slots=0)
        return link.settings[samples.sink_name(0)]

    def begin_transaction(self, context: WriteContext) -> None:
        raise NotImplementedError

    def write(self, transaction: None, batch: pa.RecordBatch) -> None:
        raise NotImplementedError

    def pre_commit(self, transaction: None) -> Handle | None:
        raise NotImplementedError

    def commit(self, handle: Handle) -> Outcome:  # noqa: ARG002  the contract's
        return Committed()

    def abort(self, handle: Handle) -> None:
        raise NotImplementedError


class SimulatedClock:
    """Stands still between the steps of ``simulated``'s caller."""

    now_s: ClassVar[float] = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        type(self).now_s += seconds


@contextmanager
def simulated() -> Iterator[None]:
    """Let time stand still, and syncs cost nothing, for what is made inside. One thread."""
    with (
        patch("onceonly.coordinator.coordinator.time", SimulatedClock()),
        patch.object(os, "fsync", lambda _descriptor: None),
    ):
        yield


@dataclass(slots=True)
class Folder:
    """What a folder holds at one moment: files, and their bytes."""

    files: int = 0
    size: int = 0

    @classmethod
    def look(cls, path: Path) -> Folder:
        """Count all files below a folder, those of a moment too."""
        found = cls()
        for place, _, names in os.walk(path):
            for name in names:
                with suppress(FileNotFoundError):  # a file of a moment that is gone by now
                    found.size += os.stat(os.path.join(place, name)).st_size  # noqa: PTH116, PTH118  quicker
                    found.files += 1
        return found


@dataclass(slots=True, kw_only=True)
class Job:
    """One query on one checkpoint, with the lives of its driver one after another."""

    checkpoint: Path
    sinks: int = 1
    slots: int = 3
    history: int = 100
    epoch: int = -1
    """The newest that Spark has noted as complete."""
    lives: int = 0
    _coordinator: QueryCoordinator | None = None
    _progress: ProgressFiles = field(init=False)

    def __post_init__(self) -> None:
        for folder in ("offsets", "commits"):
            (self.checkpoint / folder).mkdir(parents=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": samples.QUERY}), encoding="utf-8")

    @property
    def log(self) -> Path:
        """The folder of the decision log."""
        return self.checkpoint / "onceonly"

    def start(self) -> QueryCoordinator:
        """Begin another life of the driver: another application, nothing remembered."""
        self.close()
        self.lives += 1
        settings = QuerySettings(checkpoint=str(self.checkpoint), history=self.history)
        self._coordinator = QueryCoordinator(settings, actor="driver", application=f"local-{self.lives:013d}")
        for number in range(self.sinks):
            self._coordinator.enlist(SinkSettings(name=samples.sink_name(number)), FreeSink, ())
        self._progress = ProgressFiles(self.checkpoint)
        return self._coordinator

    def live(self, epochs: int) -> None:
        """Go on until there are so many epochs. The last one of each life is decided, and runs again in the next."""
        while self.epoch < epochs - 1:
            if (self.epoch + 2) % LIFE_EPOCHS == 0:
                self.step(noted=False)
            self.step()

    def step(self, *, noted: bool = True) -> None:
        """Run the next epoch; without ``noted`` the driver dies before Spark has noted it."""
        SimulatedClock.now_s += 1
        self.announce()
        coordinator, epoch = self._coordinator or self.start(), self.epoch + 1
        plan = coordinator.plan(epoch, run=self._run)
        coordinator.decide(plan, [Ballot(vote=vote) for vote in self._votes(plan)])
        self._progress.put(_report(epoch))
        if not noted:
            self.close()
            return
        (self.checkpoint / "commits" / str(epoch)).write_text(
            'v1\n{"nextBatchWatermarkMs":0}', encoding="utf-8"
        )
        self.epoch = epoch
        for folder in ("offsets", "commits"):
            (self.checkpoint / folder / str(epoch - SPARK_KEEPS)).unlink(missing_ok=True)

    def announce(self) -> None:
        """Write the next epoch's barrier, as Spark does before it plans it."""
        text = f"v1\n{{}}\n{samples.barrier(self.epoch + 1)}"
        (self.checkpoint / "offsets" / str(self.epoch + 1)).write_text(text, encoding="utf-8")

    def start_up_s(self) -> float:
        """Time a fresh start, synced as ever: open the log, claim the next epoch, plan it."""
        self.close()
        self.announce()
        began = time.perf_counter()
        self.start().plan(self.epoch + 1, run=self._run)
        return time.perf_counter() - began

    def close(self) -> None:
        """End this life. Idempotent."""
        if self._coordinator is not None:
            self._coordinator.close()
            self._coordinator = None

    @property
    def _run(self) -> str:
        return f"{samples.RUN[:-6]}{self.lives:06d}"

    def _votes(self, plan: Plan) -> list[Vote]:
        found = samples.votes(plan.epoch, sinks=self.sinks, slots=self.slots, plan=plan.id, run=self._run)
        # A replay writes nothing.
        return [replace(vote, handle=None) for vote in found] if plan.mode is Mode.DRAIN else found


@contextmanager
def watched(folder: Path) -> Iterator[Folder]:
    """Note the most that a log's folder holds: just when a fold has put all that is new, and removed nothing yet."""
    most = Folder()
    clear = folding.Fold._clear  # noqa: SLF001  no other moment is the greatest

    def look_and_clear(self: folding.Fold, found: Survey) -> bool:
        now = Folder.look(folder)
        most.files, most.size = max(most.files, now.files), max(most.size, now.size)
        return clear(self, found)

    with patch.object(folding.Fold, "_clear", look_and_clear):
        yield most


def _report(epoch: int) -> Progress:
    """Return a report of Spark with one source and one stateful operator."""
    return Progress(
        epoch=epoch,
        run=samples.RUN,
        timestamp="2026-11-21T15:53:23.042Z",
        rows=3_000,
        duration_ms=dict.fromkeys(
            (
                "addBatch",
                "commitOffsets",
                "getBatch",
                "latestOffset",
                "queryPlanning",
                "triggerExecution",
                "walCommit",
            ),
            123,
        ),
        sources=(
            SourceReport(
                name="KafkaV2",
                start=samples.barrier(max(epoch - 1, 0)),
                end=samples.barrier(epoch),
                rows=3_000,
            ),
        ),
        operators=(
            OperatorReport(
                name="stateStoreSave",
                rows_total=700,
                rows_updated=60,
                memory_bytes=333_600,
                custom={f"rocksdbMetricNumber{number:02d}": 1_712 for number in range(20)},
            ),
        ),
    )
