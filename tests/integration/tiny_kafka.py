"""A peer that speaks just so much of Kafka that a client takes it for a broker, and falls silent when told. No Java."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any, Self

from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)

if TYPE_CHECKING:
    import ssl

NODE = 0
_VERSIONS = {ApiVersionsRequest: 3, MetadataRequest: 9}


class TinyKafka:
    """A context. ``leads_to`` is the port that its metadata name as the only broker's: its own, until it is changed."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._tls = tls
        self._spoken = threading.Event()
        self._spoken.set()
        self._open: set[socket.socket] = set()
        self.port: int = self._server.getsockname()[1]
        self.leads_to = self.port
        self.taken = 0
        """How many connections it has taken."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        self._spoken.set()
        self.cut_all()

    def silence(self) -> None:
        """Take connections from now on, and say nothing on them, nor on those that are open."""
        self._spoken.clear()

    def speak(self) -> None:
        """Answer again on new connections; those that are open are closed, as they may have lost what was asked."""
        self.cut_all()
        self._spoken.set()

    def cut_all(self) -> None:
        """Close all connections."""
        for each in list(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                taken, _ = self._server.accept()
                self.taken += 1
                self._open.add(taken)
                threading.Thread(target=self._serve, args=(taken,), daemon=True).start()

    def _serve(self, taken: socket.socket) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.callback(self._open.discard, taken)
            self._spoken.wait()
            peer = stack.enter_context(
                taken if self._tls is None else self._tls.wrap_socket(taken, server_side=True)
            )
            while head := _exactly(peer, 4):
                key, version, correlation = struct.unpack_from(
                    ">hhi", _exactly(peer, *struct.unpack(">i", head))
                )
                answer = self._answer(key)
                answer.API_VERSION = version
                answer.with_header(correlation)
                data = answer.encode(header=True, framed=True)
                self._spoken.wait()
                peer.sendall(data)

    def _answer(self, key: int) -> Any:  # noqa: ANN401  kafka-python is untyped
        if key == MetadataRequest.API_KEY:
            broker = MetadataResponse.MetadataResponseBroker(NODE, "127.0.0.1", self.leads_to, None)
            return MetadataResponse(brokers=[broker], cluster_id="tiny", controller_id=NODE, topics=[])
        known = [
            ApiVersionsResponse.ApiVersion(kind.API_KEY, 0, newest) for kind, newest in _VERSIONS.items()
        ]
        return ApiVersionsResponse(error_code=0, api_keys=known)


def _exactly(peer: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length and (part := peer.recv(length - len(parts))):
        parts += part
    return bytes(parts)
