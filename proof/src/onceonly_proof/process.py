"""One life of a job: a process tree that is started, watched, and killed as a whole. Needs psutil."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from onceonly.errors import SetupError
from onceonly_proof.handover import until
from onceonly_proof.parent import PARENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_READY_TIMEOUT_S = 240.0
_END_TIMEOUT_S = 20.0
_LINES_SHOWN = 15
_PREFIX = "onceonly-job-"
# A socket's path has 107 bytes, of which Spark's names and ours take 72.
_TMP_BYTES_MAX = 35


@dataclass(slots=True)
class JobProcess:
    """The job's process and everything it starts. Parent process; not shared between threads."""

    root: subprocess.Popen[bytes]
    log: Path
    temporary: tempfile.TemporaryDirectory[str]
    """Of the job and its JVMs: who is killed leaves what it has there."""

    @classmethod
    def start(cls, command: Sequence[str], *, log: Path, env: Mapping[str, str], cwd: Path) -> JobProcess:
        """Start the job in a session of its own; append what it says to ``log``."""
        folder = _short_folder()
        for left in of_the_dead(folder, _PREFIX):
            shutil.rmtree(left, ignore_errors=True)
        temporary = tempfile.TemporaryDirectory(
            prefix=f"{_PREFIX}{os.getpid()}-", dir=folder, ignore_cleanup_errors=True
        )
        spark = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -Djava.io.tmpdir={temporary.name}".lstrip()
        with log.open("ab") as out:
            root = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    PARENT: str(os.getpid()),
                    "TMPDIR": temporary.name,
                    "SPARK_SUBMIT_OPTS": spark,
                    **env,
                },
                cwd=cwd,
                start_new_session=True,
            )
        return cls(root, log, temporary)

    @property
    def exit_code(self) -> int | None:
        """The exit status, or None while it runs."""
        return self.root.poll()

    def come_up(self, ready: Path) -> None:
        """Wait for the file by which it says that it has started.

        Raises:
            SetupError: it has ended, or takes too long.
        """
        until(lambda: ready.exists() or self.exit_code is not None, _READY_TIMEOUT_S)
        if not ready.exists():
            raise SetupError(
                f"the campaign's job did not come up; the last lines of its log:\n{self.last_lines()}",
                next_step="see whether Java and PySpark work here, and whether memory is short",
            )

    def kill(self, *, spared: int | None = None) -> int:
        """SIGKILL the whole tree, remove its temporary files, and return the number of processes killed. Idempotent.

        Processes of it that are left when a parent has died are found by the job's session. One may be ``spared``.
        """
        killed = kill_session(self.root.pid, spared=spared)
        self.root.wait(_END_TIMEOUT_S)
        psutil.wait_procs(killed, timeout=_END_TIMEOUT_S)
        self.temporary.cleanup()
        return len(killed)

    def last_lines(self) -> str:
        """Return the end of the log, for an error message."""
        with contextlib.suppress(OSError):
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
            return "\n".join(lines[-_LINES_SHOWN:])
        return ""

    def members(self) -> list[psutil.Process]:
        """List the tree, and what is left of it where a parent has died."""
        return members(self.root.pid)


def kill_session(session: int, *, spared: int | None = None) -> list[psutil.Process]:
    """SIGKILL all processes of a session and all that they have started, but for one that is spared; return them.

    Every process is stopped before the first one is killed, parents first: so none can start another
    that would be overlooked, and none can do anything on the death of another.
    """
    frozen: dict[int, psutil.Process] = {}
    while fresh := [process for process in members(session) if process.pid not in {*frozen, spared}]:
        for process in fresh:
            frozen[process.pid] = process
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
    for process in frozen.values():
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return list(frozen.values())


def members(session: int) -> list[psutil.Process]:
    """List the processes of a session, and all that they have started, parents first."""
    every = list(psutil.process_iter(["ppid"]))
    found: dict[int, psutil.Process] = {}
    for process in every:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getsid(process.pid) == session:
                found[process.pid] = process
    while more := {each.pid: each for each in every if each.info["ppid"] in found and each.pid not in found}:
        found |= more
    return [each for each in found.values() if is_alive(each.pid)]


def of_the_dead(folder: Path, prefix: str) -> Iterator[Path]:
    """Yield what processes that are gone have left in a folder, named by ``prefix``, their pid and a dash."""
    for path in folder.glob(f"{prefix}*-*"):
        owner = path.name.removeprefix(prefix).partition("-")[0]
        if owner.isdecimal() and not psutil.pid_exists(int(owner)):
            yield path


def _short_folder() -> Path:
    """Return the folder for temporary files; a shorter one, where Spark's sockets would not fit into it."""
    usual = tempfile.gettempdir()
    short = usual if len(os.fsencode(usual)) <= _TMP_BYTES_MAX else "/tmp"  # noqa: S108  made in it, by a random name
    return Path(short)


def is_alive(pid: int) -> bool:
    """Say whether a process runs: one that has ended, and that nobody has waited for yet, does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
