"""Whoever listens: keeps the lines of each connection, reads to its end, and closes."""

from __future__ import annotations

import socketserver
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable


class LineReader:
    """A TCP server on a free port of loopback. ``serve`` says what is done with a connection."""

    def __init__(self, serve: Callable[[socketserver.StreamRequestHandler], object] | None = None) -> None:
        self.lines: list[bytes] = []
        self.halves: list[bytes] = []
        """What stood behind the last end of a line: of a writer that has died."""
        served = serve or self.read

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                served(self)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            allow_reuse_address = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def options(self) -> dict[str, str]:
        return {"host": "127.0.0.1", "port": str(self.port)}

    def read(self, handler: socketserver.StreamRequestHandler) -> None:
        """Read a connection to its end."""
        try:
            for line in handler.rfile:
                (self.lines if line.endswith(b"\n") else self.halves).append(line.rstrip(b"\n"))
        except ConnectionResetError:
            pass  # the writer was killed

    def close(self) -> None:
        """End it. Idempotent."""
        self._server.shutdown()
        self._server.server_close()
