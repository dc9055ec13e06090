"""The campaign's jobs: each a process tree of its own that carries out tasks until it is killed."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import msgspec

from onceonly import failpoints
from onceonly_proof.campaign.task import READY
from onceonly_proof.handover import until
from onceonly_proof.power.task import Done, Task
from onceonly_proof.process import JobProcess

if TYPE_CHECKING:
    from pathlib import Path

_GRACE_S = 60.0
_POLL_S = 0.01


class Life:
    """One job. Campaign's process, its main thread."""

    def __init__(self, folder: Path, *, with_sums: bool = False) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.with_sums = with_sums
        """Whether Hadoop keeps checksums beside Spark's files."""
        self._tasks = 0
        self._deaths = 0
        self._armed, self._fired = folder / "armed", folder / "fired"
        self._fired.mkdir()
        failpoints.arm(self._armed, ())
        command = [sys.executable, "-W", "ignore", "-m", "onceonly_proof.power.job", str(folder)]
        command += ["--with-sums"] if with_sums else []
        env = {
            "ONCEONLY_FAILPOINTS": f"@{self._armed}",
            "ONCEONLY_FAILPOINTS_DIR": str(self._fired),
        }
        self.process = JobProcess.start(command, log=folder / "job.log", env=env, cwd=folder)

    @property
    def session(self) -> int:
        """The id of the session that all of its processes are in."""
        return self.process.root.pid

    def wait_ready(self) -> None:
        """Wait until it waits for a task. Raises ``SetupError`` where Spark did not come up."""
        self.process.come_up(self.folder / READY)

    def give(self, task: Task) -> None:
        """Give it the next task."""
        self.wait_ready()
        task.give(self.folder, self._tasks)
        self._tasks += 1

    def let_die(self, death: str) -> None:
        """Have a worker of Spark's die in what it runs next, in the place of one that has not died yet."""
        self._deaths += 1
        failpoints.arm(self._armed, (f"{death}#{self._deaths}",))

    def spare(self) -> None:
        """Let no worker die from now on."""
        failpoints.arm(self._armed, ())

    def deaths(self) -> int:
        """Count the workers that have died so."""
        return len(failpoints.fired(self._fired))

    def done(self) -> Done | None:
        """Return the answer to the task given last, None where it is at work."""
        path = self.folder / f"done-{self._tasks - 1}.json"
        return msgspec.json.decode(path.read_bytes(), type=Done) if path.exists() else None

    def is_alive(self) -> bool:
        """Say whether its first process runs."""
        return self.process.exit_code is None

    def run(self, task: Task) -> Done:
        """Give it a task, and wait for the end of it."""
        self.give(task)
        until(lambda: self.done() or not self.is_alive(), task.limit_s + _GRACE_S, poll_s=_POLL_S)
        done = self.done()
        if done is None:
            what = f"the job hangs or has died; the last lines of its log:\n{self.process.last_lines()}"
            return Done(ok=False, code="DEAD", what=what)
        return done

    def end(self) -> None:
        """Kill it, and remove what it has left on disk. Idempotent."""
        self.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
