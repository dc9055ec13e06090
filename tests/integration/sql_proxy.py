"""A connection between a sink and its server that can be cut around a COMMIT: before it arrives, or its answer."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

POSTGRES, MYSQL = b"COMMIT\0", b"\x03COMMIT"
"""How a client says it."""


class CommitProxy:
    """Listens on a port of its own, and passes on all but what it is told to cut, once."""

    def __init__(self, port: int, word: bytes = POSTGRES) -> None:
        self._to = port
        self._word = word
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._cut = ""
        self._then: Callable[[], None] = lambda: None
        self.cuts = 0
        self._ending = threading.RLock()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def arm(self, when: str, then: Callable[[], None] = lambda: None) -> None:
        """Cut the next COMMIT: ``before`` the server gets it, or ``after`` it has answered; ``then`` is called."""
        self._cut, self._then = when, then

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for pair in self._pairs:
            _close(*pair)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._to))
                except OSError:
                    client.close()
                    continue
                self._pairs.append((client, server))
                threading.Thread(target=self._up, args=(client, server), daemon=True).start()
                threading.Thread(target=self._down, args=(client, server), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                if self._cut == "before" and self._word in data:
                    self._end(client, server)
                    return
                if self._cut == "after" and self._word in data:
                    self._cut = "answer"
                server.sendall(data)
        with self._ending:
            _close(client, server)

    def _down(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if self._cut == "answer":
                    self._end(client, server)
                    return
                client.sendall(data)
        with self._ending:
            _close(client, server)

    def _end(self, client: socket.socket, server: socket.socket) -> None:
        with self._ending:  # whatever ends the server, the client hears of it when that is over
            self._cut = ""
            self.cuts += 1
            self._then()
            _close(client, server)


def _close(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
