"""A server that reads lines over TCP, keeps them in a file, and answers when it has all of a connection.

::

    with EmbeddedLines(folder) as lines:
        ...  # lines.port
        lines.kill()  # SIGKILL: what it had kept stays
        lines.start()  # at the same address
        lines.kept()

It is a process of its own: ``python -m onceonly_proof.embedded.lines PORT FOLDER``.
"""

from __future__ import annotations

import socketserver
import sys
import threading
from pathlib import Path

from onceonly_proof.embedded.own import OwnServer

_KEPT = "lines"


class EmbeddedLines(OwnServer):
    """A reader of lines. Not shared between threads."""

    title = "the reader of lines"

    def __init__(self, directory: Path | None = None) -> None:
        super().__init__(directory, prefix="lines")

    def _module(self) -> list[str]:
        return [__name__, str(self.port), str(self.directory)]

    def kept(self) -> list[bytes]:
        """Return the lines that it has read, in their order; a line whose end never came is none."""
        path = self.directory / _KEPT
        return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


class _Reader(socketserver.StreamRequestHandler):
    """One connection."""

    def handle(self) -> None:
        """Keep each line as it comes, and answer behind the last one."""
        server = self.server
        assert isinstance(server, _Server)  # noqa: S101  for mypy: it is made by this module alone
        for line in self.rfile:
            if line.endswith(b"\n"):
                server.keep(line)
        self.wfile.write(b"read\n")


class _Server(socketserver.ThreadingTCPServer):
    """Takes any number of connections at a time."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, folder: Path) -> None:
        super().__init__(("127.0.0.1", port), _Reader)
        self._one = threading.Lock()
        self._file = (folder / _KEPT).open("ab", buffering=0)

    def keep(self, line: bytes) -> None:
        """Append a line as a whole."""
        with self._one:
            self._file.write(line)


if __name__ == "__main__":
    _folder = Path(sys.argv[2])
    with _Server(int(sys.argv[1]), _folder) as _server:
        (_folder / "ready").touch()
        _server.serve_forever()
