"""One connection: lines on their way, and the proof that a reader has read them all. Executor, one thread.

TCP acknowledges to the machine, not to the reader. What a reader has read is known from how it closes: a process that
dies with bytes unread has its connection reset, and what comes after it has closed is never acknowledged. Only a reader
that says that it is done before it is (``shutdown``) misleads, and one that has to answer cannot.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
import time
from typing import TYPE_CHECKING

from onceonly.errors import UnavailableError, WriteFailedError

if TYPE_CHECKING:
    from collections.abc import Iterable

_AT_ONCE = 1 << 20
_POLL_S = 0.001


class Connection:
    """A connection of one attempt. Made by connecting."""

    def __init__(self, host: str, port: int, timeout_s: float, *, answers: bool = False) -> None:
        self.where = f"{host}:{port}"
        self._answers = answers
        self._timeout_s = timeout_s
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_s)
        except (OSError, UnicodeError) as error:  # the second: no name that DNS can have
            raise UnavailableError(
                f"nobody accepts a connection at {self.where}: {error}",
                next_step="see that the reader listens there, or correct the options host and port",
            ) from error

    def send(self, lines: Iterable[bytes]) -> None:
        """Send lines, each with its end. Raises ``WriteFailedError``."""
        waiting = bytearray()
        for line in lines:
            waiting += line
            waiting += b"\n"
            if len(waiting) >= _AT_ONCE:
                self._send(waiting)
                waiting = bytearray()
        self._send(waiting)

    def finish(self) -> None:
        """End the lines, and wait until the reader has read all of them and closes. Raises ``WriteFailedError``."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
            has_answered = False
            while self._socket.recv(4096):
                has_answered = True
            self._await_acknowledged()
        except TimeoutError as error:
            raise self._failure(
                f"has not closed within {self._timeout_s:g} s after the last line",
                "let it read to the end and close then; or raise the option timeout",
            ) from error
        except OSError as error:
            raise self._failure(f"did not read all lines: {error}") from error
        if self._answers and not has_answered:
            raise self._failure(
                "has closed without an answer", "let it answer when it has read all; or set acknowledge=close"
            )

    def close(self) -> None:
        """Close it. Idempotent."""
        self._socket.close()

    def _send(self, data: bytearray) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise self._failure(f"takes no more lines: {error}") from error

    def _await_acknowledged(self) -> None:
        """Wait until nothing that was sent, our end among it, lacks an acknowledgement. Raises ``OSError``."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            [left] = struct.unpack("i", fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(4)))
            error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, "it closed before the last line")
            if not left:
                return
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(_POLL_S)

    def _failure(
        self, what: str, next_step: str = "see to the reader; the query starts again"
    ) -> WriteFailedError:
        return WriteFailedError(f"the reader at {self.where} {what}", next_step=next_step)
