"""A server that does to each connection what a script says: sends bytes, stalls, breaks off."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from typing import TYPE_CHECKING, Final, Self

from onceonly.sources.journal.feeds import TICK_S

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence
    from types import TracebackType

STALL: Final = "stall"
"""Send nothing more until the other side goes."""
RESET: Final = "reset"
"""Break the connection off."""
WAIT: Final = "wait"
"""Say nothing for longer than a feed waits for rows."""
GARBAGE: Final = "garbage"
"""Send bytes that are no record of TLS."""
OK: Final = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: "
LINES: Final = OK + b"application/x-ndjson\r\n\r\n"
EVENTS: Final = OK + b"text/event-stream; charset=utf-8\r\n\r\n"


class ScriptedServer:
    """A context. The last script is for all connections that follow."""

    def __init__(
        self, *scripts: Sequence[object], http: bool = False, tls: ssl.SSLContext | None = None
    ) -> None:
        self._scripts = scripts
        self._tls = tls
        self._http = http
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ended = threading.Event()
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        self.requests: list[str] = []
        """What was asked, in HTTP; a request in lower case."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._listener.close()

    def _serve(self) -> None:
        while not self._ended.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            script = self._scripts[min(self.connections, len(self._scripts) - 1)]
            self.connections += 1
            threading.Thread(target=self._run, args=(connection, script), daemon=True).start()

    def _run(self, connection: socket.socket, script: Sequence[object]) -> None:
        with connection, contextlib.suppress(OSError):
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            if self._http:
                request = b""
                while b"\r\n\r\n" not in request:
                    request += connection.recv(65536)
                self.requests.append(request.decode().lower())
            for step in script:
                if step == STALL:
                    connection.recv(1)
                elif step == WAIT:
                    self._ended.wait(2 * TICK_S)
                elif step == RESET:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                elif step == GARBAGE:
                    os.write(connection.fileno(), b"no record of TLS " * 9)
                elif isinstance(step, bytes):
                    connection.sendall(step)
