"""The lives of a campaign's job: each a process tree of its own, the next one kept warm."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import psutil

from onceonly_proof.campaign.classes import jars
from onceonly_proof.campaign.task import CONF, ERROR, READY, STOP, Task
from onceonly_proof.handover import put, until
from onceonly_proof.process import JobProcess

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly_proof.campaign.classes import ClassArchive

_STOP_TIMEOUT_S = 60.0
_DAEMON, _EXECUTOR = "pyspark.daemon", "CoarseGrainedExecutorBackend"
_WARM = Path(__file__).with_name("warm")


@dataclass(slots=True)
class Life:
    """One process tree of the job. Campaign's process, its main thread."""

    folder: Path
    process: JobProcess
    classes: ClassArchive

    @property
    def events(self) -> Path:
        """Where it writes the event log."""
        return self.folder / "events"

    def workers(self) -> list[int]:
        """Return the pids of its Python workers, oldest first: those that Spark's daemons have forked."""
        found: list[tuple[float, int]] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.process.root.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    parent = process.parent()
                    if parent is not None and all(
                        _DAEMON in " ".join(p.cmdline()) for p in (process, parent)
                    ):
                        found.append((process.create_time(), process.pid))
        return [pid for _, pid in sorted(found)]

    def kill_executor(self, worker: int) -> bool:
        """SIGKILL the executor that a worker belongs to, with all that it has started; say whether there was one."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(worker).parents():
                if _EXECUTOR in " ".join(process.cmdline()):
                    for each in (process, *process.children(recursive=True)):
                        with contextlib.suppress(psutil.NoSuchProcess):
                            each.kill()
                    return True
        return False

    def error(self) -> str:
        """Say why it ended by itself."""
        with contextlib.suppress(OSError):
            failure = json.loads((self.folder / ERROR).read_text(encoding="utf-8"))
            return f"{failure['code']}: {failure['what']}"
        return self.process.last_lines()

    def kill(self, *, spared: int | None = None) -> None:
        """SIGKILL the whole tree, but for a process that is spared. Idempotent."""
        self.process.kill(spared=spared)

    def stop(self) -> bool:
        """Let the query end in order; kill what is still there then. Say whether it did."""
        (self.folder / STOP).touch()
        until(lambda: self.process.exit_code is not None, _STOP_TIMEOUT_S)
        ended = self.process.exit_code == 0
        if ended:
            self.classes.finish(self.process, self.folder)
        self.process.kill()
        return ended


@dataclass(slots=True)
class Lives:
    """Starts lives, and keeps one warm beside the one that runs, so that a driver's death costs a query's start alone.

    Campaign's process, its main thread: a child dies with the thread that has started it.
    """

    folder: Path
    env: Mapping[str, str]
    classes: ClassArchive
    conf: Mapping[str, str] = field(default_factory=dict)
    """What its session is told beside what all are."""
    executors: int = 0
    """How many executors each has in processes of their own; none for threads of the driver."""
    speculation: bool = False
    """Whether each of these has a host of its own, and Spark starts second attempts of slow tasks."""
    early: bool = True
    """Whether Spark's daemons import what workers need before they fork the first."""
    count: int = 0
    _spare: Life | None = None
    _running: list[Life] = field(default_factory=list)

    def warm(self) -> None:
        """Start the life after this one, if that is not done. Not while the machine is busy with a recovery."""
        if self._spare is None:
            self._spare = self._start()

    def next(self, task: Task) -> Life:
        """Return a life that has the task.

        Raises:
            SetupError: Spark did not come up.
        """
        life = self._spare or self._start()
        self._spare = None
        life.process.come_up(life.folder / READY)
        task.give(life.folder)
        return life

    def forget(self, life: Life) -> None:
        """Remove what a life has left on disk."""
        life.kill()
        self._running.remove(life)
        shutil.rmtree(life.folder, ignore_errors=True)

    def close(self) -> None:
        """Kill all of them. Idempotent."""
        for life in self._running:
            life.kill()

    def _start(self) -> Life:
        self.count += 1
        folder = self.folder / f"life-{self.count}"
        (folder / "events").mkdir(parents=True)
        # Java takes no archive of classes where the jars lie elsewhere.
        java = "" if self.executors else self.classes.option(folder)
        put(folder / CONF, msgspec.json.encode(self.conf))
        command = [sys.executable, "-W", "ignore", "-m", "onceonly_proof.campaign.job", str(folder)]
        process = JobProcess.start(
            [
                *(*command, f"--java={java}", f"--executors={self.executors}"),
                *(["--speculation"] if self.speculation else []),
            ],
            log=folder / "job.log",
            env={
                **self.env,
                "ONCEONLY_EVENTS": str(folder / "events"),
                **({"SPARK_HOME": str(_spark_home(folder))} if self.executors else {}),
                **({"PYTHONPATH": _python_path()} if self.early else {}),
            },
            cwd=folder,
        )
        life = Life(folder, process, self.classes)
        self._running.append(life)
        return life


def _spark_home(life: Path) -> Path:
    """Make a home of Spark for a life, in which its executors work: they would do so beside Spark's own files."""
    home, work = life / "home", life / "work"
    home.mkdir()
    work.mkdir()
    for path in jars().parent.iterdir():
        if path.name != work.name:
            (home / path.name).symlink_to(path)
    (home / work.name).symlink_to(work)
    return home


def _python_path() -> str:
    """Put the folder first that makes Spark's daemons import early."""
    return os.pathsep.join(filter(None, (str(_WARM), os.environ.get("PYTHONPATH"))))
