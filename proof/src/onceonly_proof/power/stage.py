"""What the pipelines of one invocation share: a disk, a broker where one is needed, jobs that are kept warm."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from onceonly_proof.embedded.kafka import EmbeddedKafka
from onceonly_proof.power.disk import PowerDisk
from onceonly_proof.power.inputs import produce, write_file
from onceonly_proof.power.lives import Life
from onceonly_proof.power.task import Task

if TYPE_CHECKING:
    from types import TracebackType

    from onceonly_proof.power.task import Pipeline

# A job's JVM holds on to some memory of each query that it ever ran.
_TASKS_MAX = 120


class Stage:
    """A context. Campaign's process, its main thread."""

    def __init__(self, *, broker: bool) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="onceonly-power-"))
        self._stack = ExitStack()
        self._with_broker = broker
        self._lives: list[Life] = []
        self._life: Life | None = None
        self._tasks = 0
        self._worlds = 0
        self._kafka: EmbeddedKafka | None = None
        self.disk = PowerDisk(self._folder / "disk")

    def __enter__(self) -> Self:
        self._stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
        try:
            self._stack.enter_context(self.disk)
            self._stack.callback(self._end_lives)
            if self._with_broker:
                self._kafka = self._stack.enter_context(EmbeddedKafka())
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def recording(self) -> Path:
        """Where the recording of a pipeline is kept."""
        return self._folder / "recording"

    @property
    def recovery(self) -> Path:
        """Where the recording of a recovery is kept."""
        return self._folder / "recovery"

    def life(self, pipeline: Pipeline) -> Life:
        """Return the job that waits for a task, or will soon; a new one, where the old one is dead or has run many."""
        self._tasks += 1
        with_sums = pipeline.needs_sums
        kept = self._life
        if kept is None or not kept.is_alive() or self._tasks > _TASKS_MAX or kept.with_sums != with_sums:
            if kept is not None:
                kept.end()
            self._tasks = 0
            kept = self._life = Life(self._folder / f"life-{len(self._lives)}", with_sums=with_sums)
            self._lives.append(kept)
        return kept

    def world(self, pipeline: Pipeline) -> World:
        """Return a new, empty world for a pipeline, on an empty disk."""
        self._worlds += 1
        self.disk.clear()
        return World(
            pipeline, self._folder / f"input-{self._worlds}", self.disk.folder, self._kafka, self._worlds
        )

    def _end_lives(self) -> None:
        for life in self._lives:
            life.end()


class World:
    """One query's input and where its checkpoint and target lie."""

    def __init__(
        self, pipeline: Pipeline, folder: Path, disk: Path, kafka: EmbeddedKafka | None, number: int
    ) -> None:
        self.pipeline = pipeline
        self.values: list[str] = []
        self._folder = folder
        self._disk = disk
        self._count = 0
        self._servers = kafka.bootstrap_servers if kafka is not None else ""
        self._input, self._target = str(folder), str(disk / "target")
        folder.mkdir()
        if pipeline.source == "kafka" and kafka is not None:
            self._input = f"in-{number}"
            kafka.create_topic(self._input, partitions=2)
        if pipeline.sink == "kafka" and kafka is not None:
            self._target = f"out-{number}"
            kafka.create_topic(self._target, partitions=2)

    def feed(self, count: int, *, early: bool = False) -> None:
        """Put more input in; ``early`` files say that they are older than what is there."""
        again = self.pipeline.state != "none"
        for _ in range(count):
            if self.pipeline.source == "files":
                self.values += write_file(self._folder, self._count, again=again, early=early)
            elif self.pipeline.source == "kafka":
                self.values += produce(self._servers, self._input, self._count, again=again)
            self._count += 1

    def task(self, *, files: int = 1, epochs: int = 4, rescale: int = 0) -> Task:
        """Return the task to run the query over what is there, ``files`` of it in each epoch."""
        per_file = 6 if self.pipeline.state == "none" else 9
        return Task(
            pipeline=self.pipeline,
            checkpoint=str(self._disk / "checkpoint"),
            input=self._input,
            target=self._target,
            servers=self._servers,
            per_epoch=files * per_file if self.pipeline.source == "kafka" else files,
            epochs=epochs,
            rescale=rescale,
        )
