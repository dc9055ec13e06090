"""Proxies between a sink and its server: one passes all on, one can cut the connection once a commit is answered."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_HOST: Final = "127.0.0.1"
_CHUNK: Final = 1 << 16


class Proxy:
    """Listens on a port of its own and passes all on. Any thread; a connection has two of its own.

    ``goes_up`` and ``goes_down`` are told of what comes from a client and from the server, and say whether it goes on;
    where it does not, the connection ends. While somebody holds ``lock``, no end of one is heard of.
    """

    def __init__(self, port: int) -> None:
        self.lock = threading.RLock()
        self._to = port
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server((_HOST, 0))
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    @property
    def port(self) -> int:
        """Where clients come to."""
        port: int = self._listener.getsockname()[1]
        return port

    def goes_up(self, data: bytes, server: socket.socket) -> bool:  # noqa: ARG002  for others
        return True

    def goes_down(self, data: bytes, server: socket.socket) -> bool:  # noqa: ARG002  for others
        return True

    def close(self) -> None:
        """Let go of all connections. Idempotent."""
        _end(self._listener)
        with self.lock:
            left = list(self._open)
        for each in left:
            _end(each)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # it was closed
                return
            try:
                server = socket.create_connection((_HOST, self._to))
            except OSError:
                _end(client)  # as the server would, which is down
                continue
            with self.lock:
                self._open |= {client, server}
            for way in (self._up, self._down):
                threading.Thread(target=self._pass, args=(way, client, server), daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> bool:
        while data := client.recv(_CHUNK):
            if not self.goes_up(data, server):
                return True
            server.sendall(data)
        server.shutdown(socket.SHUT_WR)  # the client has said all, and may still listen
        return False

    def _down(self, client: socket.socket, server: socket.socket) -> bool:
        while (data := server.recv(_CHUNK)) and self.goes_down(data, server):
            client.sendall(data)
        return True

    def _pass(
        self,
        way: Callable[[socket.socket, socket.socket], bool],
        client: socket.socket,
        server: socket.socket,
    ) -> None:
        """Pass on what goes one way, and end both unless it says that the other way goes on."""
        with contextlib.suppress(OSError):
            if not way(client, server):
                return
        with self.lock:
            for each in (client, server):
                _end(each)
                self._open.discard(each)


class CuttingProxy(Proxy):
    """``commit`` is what a client says when it commits. What is cut was carried out, and its answer is lost."""

    def __init__(self, port: int, commit: bytes) -> None:
        self.cut_at: float | None = None
        """When the connection was cut, in seconds since 1970."""
        self._commit = commit
        self._is_armed = False
        self._doomed: socket.socket | None = None
        super().__init__(port)

    def cut_next(self) -> None:
        """Cut the connection of the next commit."""
        with self.lock:
            self.cut_at, self._is_armed, self._doomed = None, True, None

    def spare(self) -> None:
        """Cut nothing after all; what was cut stays so."""
        with self.lock:
            self._is_armed, self._doomed = False, None

    def goes_up(self, data: bytes, server: socket.socket) -> bool:
        if self._is_armed and self._commit in data:
            with self.lock:
                if self._is_armed:
                    self._is_armed, self._doomed = False, server
        return True

    def goes_down(self, data: bytes, server: socket.socket) -> bool:  # noqa: ARG002  whatever it answers
        with self.lock:
            if self._doomed is not server:
                return True
            self._doomed, self.cut_at = None, time.time()
            return False


def _end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
