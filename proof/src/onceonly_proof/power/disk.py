"""A folder whose files are forgotten at a power cut unless they were synced: a mount, and the process behind it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from onceonly.errors import SetupError
from onceonly_proof.power.mounting import NEEDS, may_mount, unmount

if TYPE_CHECKING:
    from types import TracebackType

    from onceonly_proof.power.tree import Keep

__all__ = ["PowerDisk", "may_mount"]

_END_TIMEOUT_S = 10.0


class PowerDisk:
    """Serves a power-loss file system at a folder, as a context. Any process may use the folder; one owner, one thread.

    ``with`` raises ``SetupError`` where this machine or user may not mount.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._server: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        if not may_mount():
            raise SetupError(NEEDS, next_step="run it as root on a Linux machine, or install fusermount3")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._server = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "onceonly_proof.power.server", str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A strike kills whole sessions, and never this one.
            start_new_session=True,
        )
        self._answer()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        with contextlib.suppress(BrokenPipeError):
            if server.stdin is not None:
                server.stdin.close()
        try:
            server.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(_END_TIMEOUT_S)
        for stream in (server.stdout, server.stderr):
            if stream is not None:
                stream.close()
        unmount(self.folder)

    def count(self) -> int:
        """Return the number of operations since the disk was last cut, restored or cleared."""
        return int(self._tell(do="look")["count"])

    def is_off(self) -> bool:
        """Say whether a strike has turned the power off: until a cut, every change is refused with EIO."""
        return bool(self._tell(do="look")["off"])

    def save(self, path: Path | str) -> int:
        """Write all that happened since the last cut into a file, and return the number of operations."""
        return int(self._tell(do="save", path=str(path))["count"])

    def restore(self, path: Path | str, *, at: int, keep: Keep) -> None:
        """Put in what a cut after the first ``at`` operations of a saved recording leaves."""
        self._tell(do="restore", path=str(path), at=at, style=keep.style, seed=keep.seed)

    def cut(self, keep: Keep) -> None:
        """Cut the power now, and switch it on again."""
        self._tell(do="cut", style=keep.style, seed=keep.seed)

    def clear(self) -> None:
        """Start on an empty disk."""
        self._tell(do="clear")

    def strike(self, at: int, session: int) -> None:
        """Turn the power off before operation number ``at`` (from 0): kill all processes of that session first."""
        self._tell(do="strike", at=at, session=session)

    def _tell(self, **told: object) -> dict[str, Any]:
        server = self._server
        if server is None or server.stdin is None:
            raise RuntimeError("the disk is not mounted")
        server.stdin.write(json.dumps(told) + "\n")
        server.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        server = self._server
        line = server.stdout.readline() if server is not None and server.stdout is not None else ""
        if not line:
            last = (server.stderr.read() if server is not None and server.stderr is not None else "").strip()
            raise SetupError(
                f"the power-loss file system at {self.folder} has ended: {last.rpartition(chr(10))[2]}",
                next_step="run it as root on a Linux machine with /dev/fuse, or install fusermount3",
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"the power-loss file system did not do as told: {answer['error']}")
        return answer
