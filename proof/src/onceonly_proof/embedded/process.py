"""Starts a server that cannot outlive the Python process that started it."""

from __future__ import annotations

import contextlib
import pwd
import subprocess
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

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
