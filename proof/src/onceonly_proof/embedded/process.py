"""Starts a server that cannot outlive the Python process that started it."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from onceonly.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

_NOT_ROOT = "nobody"

# The pipe's other end is held by the parent alone. A line in it dismisses the watchdog; where it
# closes without one, the parent died, and the watchdog kills the shell's process, which by then
# *is* the server (exec keeps the number).
# A parent-death signal would not do: it fires when the *thread* that started the server ends.
_GUARD = 'exec 3<&0 </dev/null; (read line <&3 || kill -9 $$) & exec "$@" 3<&-'


class Embedded(ABC):
    """A server for the length of a ``with``: started, and closed whatever happens, an interrupt of its start too."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:  # an interrupt, too: nobody calls __exit__ then
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def start(self) -> None:
        """Start it, and wait until it answers. Idempotent while it runs."""

    @abstractmethod
    def close(self) -> None:
        """End it, and remove what is its own. Idempotent."""


class GuardedProcess:
    """A child process that is killed when this process ends, however it ends.

    Made by starting it. Not shared between threads. The process's group and session are its own,
    so that a Ctrl-C at the terminal reaches only the parent, which stops its servers in order.
    """

    def __init__(self, command: Sequence[str], log_file: Path, *, user: int | None = None) -> None:
        """Start ``command``, as another ``user`` where one is given; append what it writes to ``log_file``."""
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=user,
                group=user if user is None else pwd.getpwuid(user).pw_gid,
                extra_groups=user if user is None else [],
            )

    @property
    def pid(self) -> int:
        """The server's own process id."""
        return self._process.pid

    def has_ended(self, within_s: float = 0) -> bool:
        """Tell whether the process has ended, waiting for that at most ``within_s``."""
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        self._release()
        return True

    def kill(self) -> None:
        """Send SIGKILL and wait for the end. Idempotent."""
        self._process.kill()
        self._process.wait()
        self._release()

    def stop(self, within_s: float) -> None:
        """Send SIGTERM, and SIGKILL if that did not end it ``within_s``. Idempotent."""
        self._process.terminate()
        if not self.has_ended(within_s):
            self.kill()

    def _release(self) -> None:
        # The number is free for other processes now, so the watchdog must not use it.
        pipe = self._process.stdin
        if pipe and not pipe.closed:
            with contextlib.suppress(BrokenPipeError), pipe:
                pipe.write(b"\n")


class EmbeddedServer(Embedded):
    """A server that is one process with a folder, which is removed with it unless it was given.

    Started by root, one that refuses root runs as the user nobody, and needs a folder that this one can reach: by
    default one in memory.
    """

    title: ClassVar[str]
    """The server as errors name it."""
    refuses_root: ClassVar[bool] = False
    lines_shown: ClassVar[int] = 3
    usual: ClassVar[str] = "a full disk and too little memory"
    """What usually keeps it from coming up."""

    def __init__(self, directory: Path | None, *, prefix: str) -> None:
        self._is_temporary = directory is None
        self._user = pwd.getpwnam(_NOT_ROOT) if self.refuses_root and os.geteuid() == 0 else None
        # What pytest gives is its user's alone.
        memory = Path("/dev/shm")  # noqa: S108  made by mkdtemp below it
        in_memory = memory if self._user is not None and memory.is_dir() else None
        self.directory = directory or Path(tempfile.mkdtemp(prefix=f"onceonly-{prefix}-", dir=in_memory))
        self._process: GuardedProcess | None = None

    def kill(self) -> None:
        """End it with SIGKILL; its data stay. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def close(self) -> None:
        """End it, and remove its folder, unless that was given. Idempotent."""
        self.kill()
        if self._is_temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def own(self, path: Path) -> None:
        """Give a file or a folder with all in it to the user that the server runs as."""
        if self._user is not None:
            for each in (path, *path.rglob("*")):
                os.chown(each, self._user.pw_uid, self._user.pw_gid)

    def _launch(self, command: Sequence[str]) -> GuardedProcess:
        return GuardedProcess(command, self._log, user=self._user and self._user.pw_uid)

    def _await(self, answers: Callable[[], bool], *, within_s: float, poll_s: float) -> None:
        """Wait until what was launched answers. Raises ``SetupError`` where it ends or does not in time."""
        deadline = time.monotonic() + within_s
        while not answers():
            if self._process is None or self._process.has_ended(poll_s) or time.monotonic() > deadline:
                self.kill()
                raise self._failure()

    @property
    def _log(self) -> Path:
        return self.directory / "server.log"

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return " ".join(lines[-self.lines_shown :]) or "it said nothing"

    def _failure(self, what: str = "did not come up") -> SetupError:
        return SetupError(
            f"{self.title} in {self.directory} {what}: {self._last_words()}",
            next_step=f"read its log there; usual are {self.usual}",
        )
