"""A network that misbehaves: a proxy between clients and one Kafka broker on loopback, which knows requests.

It cuts the connection before a request arrives, drops the answer after the broker has acted, holds an answer
back, sends a request twice, sends a request of long ago again, and refuses rows as a broker does that has just ceased
to lead their partition. Plain text only; where TLS is spoken, it passes bytes on and knows no requests (``is_opaque``).

It also falls silent: ``silence`` leaves all connections open, and answers nothing on them and on new ones. ``after``
tells how many of the broker's bytes still pass on each new one: 0 is a peer that takes a connection and says nothing,
1 is a TLS handshake or a login that stops half way.

::

    with KafkaProxy() as proxy:
        kafka = EmbeddedKafka(properties=proxy.properties)
        proxy.forward_to(kafka)
        with kafka:
            proxy.arm(Api.END_TXN, Fault.DROP_ANSWER)
            ...  # clients use proxy.address
            assert proxy.done[Api.END_TXN, Fault.DROP_ANSWER] == 1
"""

from __future__ import annotations

import contextlib
import enum
import socket
import struct
import threading
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly_proof.embedded.kafka import EmbeddedKafka

_CONNECT_TIMEOUT_S = 10.0
_FRAME_BYTES_MAX = 200 * 2**20
# Time for a client to send what it sends without waiting for an answer.
_REFUSE_AFTER_S = 0.3
_NOT_LEADER = 6
_FLEXIBLE_PRODUCE = 9


class Api(enum.IntEnum):
    """Requests that faults are for, by their ``api_key`` (https://kafka.apache.org/protocol#protocol_api_keys)."""

    PRODUCE = 0
    METADATA = 3
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    LIST_TRANSACTIONS = 66


class Fault(enum.Enum):
    """What happens to one request."""

    CUT = "cut"
    """The connection is closed before the request reaches the broker."""
    DROP_ANSWER = "drop answer"
    """The broker acts; the connection is closed in place of its answer."""
    HOLD_ANSWER = "hold answer"
    """The broker acts; its answer waits for ``KafkaProxy.let_go``."""
    TWICE = "twice"
    """The broker gets the request once more, on a connection of its own."""
    REFUSE = "refuse"
    """A PRODUCE does not reach the broker. When the next one is on its way, or after a moment, it is answered that
    another broker leads the partition; the next one does reach the broker."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it was on the wire, without its length."""

    api: int
    version: int
    correlation: int
    body: bytes


@dataclass(slots=True)
class _Link:
    """A client's connection and ours to the broker."""

    client: socket.socket
    broker: socket.socket
    pending: dict[int, tuple[Api, Fault]] = field(default_factory=dict)
    refused: deque[Request] = field(default_factory=deque)
    writing: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, body: bytes) -> None:
        with self.writing:
            _put(self.client, body)


class KafkaProxy:
    """Forwards to one broker. Made and used by one thread; each connection has two threads of its own."""

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0, is_opaque: bool = False) -> None:
        self.host = host
        self._is_opaque = is_opaque
        self._silent: int | None = None
        self._spoken = threading.Event()
        self._spoken.set()
        self.done: Counter[tuple[Api, Fault]] = Counter()
        self._server = socket.create_server((host, port))
        self._broker: EmbeddedKafka | None = None
        self._armed: dict[Api, deque[Fault]] = {}
        self._kept: dict[int, list[Request]] = {}
        self._lock = threading.Lock()
        self._go = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._closed = threading.Event()

    @property
    def address(self) -> str:
        """``host:port`` for ``bootstrap.servers``."""
        return f"{self.host}:{self.port}"

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.getsockname()[1])

    @property
    def properties(self) -> Mapping[str, str]:
        """What the broker must be told, so that clients come back to the proxy."""
        return {"advertised.listeners": f"BROKER://{self.address}"}

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self.let_go()
        self._spoken.set()
        # A thread that waits in accept() is woken by a connection, not by close().
        with contextlib.suppress(OSError), socket.create_connection(self._server.getsockname(), 1):
            pass
        self._server.close()
        self.cut_all()
        for thread in self._threads:
            thread.join(_CONNECT_TIMEOUT_S)

    def forward_to(self, broker: EmbeddedKafka) -> None:
        """Name the broker, before it starts: who waits for it is sent to the proxy by its first answer.

        Until it listens, connections are refused by closing them.
        """
        self._broker = broker

    def arm(self, api: Api, *faults: Fault) -> None:
        """Do this to the next requests of a kind, one fault each."""
        with self._lock:
            self._armed.setdefault(api, deque()).extend(faults)

    def disarm(self) -> None:
        """Do nothing more to any request."""
        with self._lock:
            self._armed.clear()

    def let_go(self) -> None:
        """Deliver the answers that are held back, and hold back no more."""
        self._go.set()

    def silence(self, after: int = 0) -> None:
        """Answer nothing from now on; connections stay open, and new ones are taken: ``after`` bytes pass on those."""
        self._silent = after
        self._spoken.clear()

    def speak(self) -> None:
        """Answer again on new connections; those that fell silent are closed."""
        self._silent = None
        self._spoken.set()

    def cut_all(self) -> None:
        """Close every connection, as a switch does that restarts."""
        with self._lock:
            sockets = list(self._sockets)
        for each in sockets:
            _shut(each)

    def requests(self, api: Api) -> list[Request]:
        """Return the requests of a kind that came so far."""
        with self._lock:
            return list(self._kept.get(api, ()))

    def send_again(self, request: Request) -> bytes:
        """Deliver a request of before once more, late; give the answer's body after its correlation id."""
        with self._connect() as broker:
            _put(broker, request.body)
            answer = _take(broker)
        return answer[4:] if answer else b""

    # --- the threads ---------------------------------------------------------------------------------------

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True, name="kafka-proxy")  # type: ignore[arg-type]  # a bound method
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            if self._closed.is_set():
                client.close()
                continue
            try:
                broker = self._connect()
            except (OSError, RuntimeError):  # it is down, or was not started yet
                client.close()
                continue
            broker.settimeout(None)
            for each in (client, broker):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets |= {client, broker}
            link = _Link(client, broker)
            silent = self._silent
            if self._is_opaque or silent is not None:
                self._start(self._pass, client, broker, None)
                self._start(self._pass, broker, client, silent)
                continue
            self._start(self._requests, link)
            self._start(self._answers, link)

    def _connect(self) -> socket.socket:
        if self._broker is None:
            raise ConnectionRefusedError("KafkaProxy.forward_to was not called yet")
        host, _, port = self._broker.bootstrap_servers.rpartition(":")
        return socket.create_connection((host, int(port)), _CONNECT_TIMEOUT_S)

    def _pass(self, source: socket.socket, target: socket.socket, after: int | None) -> None:
        """Pass bytes on, of a connection that was silent when it began only so many."""
        with contextlib.suppress(OSError):
            while part := source.recv(1 << 16):
                if after is not None:
                    part = part[:after]
                    after -= len(part)
                target.sendall(part)
                if after == 0:
                    self._spoken.wait()
                    break
                if after is None and not self._spoken.is_set():
                    self._spoken.wait()
                    break
        self._end(source, target)

    def _requests(self, link: _Link) -> None:
        client, broker = link.client, link.broker
        with contextlib.suppress(OSError):
            while body := _take(client):
                api_key, version, correlation = struct.unpack_from(">hhi", body)
                request = Request(api_key, version, correlation, body)
                fault = self._fault(request)
                # A broker answers the requests of a connection in their order.
                self._refuse(link)
                if fault is not None:
                    api = Api(request.api)
                    if fault is Fault.CUT:
                        self._note(api, fault)
                        break
                    if fault is Fault.REFUSE:
                        link.refused.append(request)
                        self._start(self._refuse_later, link)
                        continue
                    if fault is Fault.TWICE:
                        self.send_again(request)
                        self._note(api, fault)
                    else:
                        link.pending[request.correlation] = (api, fault)
                _put(broker, body)
        self._end(client, broker)

    def _answers(self, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while body := _take(link.broker):
                if not self._spoken.is_set():
                    self._spoken.wait()
                    break
                armed = link.pending.pop(struct.unpack_from(">i", body)[0], None)
                if armed is not None:
                    self._note(*armed)
                    if armed[1] is Fault.DROP_ANSWER:
                        break
                    self._go.wait()
                link.answer(body)
        self._end(link.client, link.broker)

    def _refuse_later(self, link: _Link) -> None:
        self._closed.wait(_REFUSE_AFTER_S)
        self._refuse(link)

    def _refuse(self, link: _Link) -> None:
        with contextlib.suppress(OSError, IndexError):
            link.answer(refusal(link.refused.popleft()))
            self._note(Api.PRODUCE, Fault.REFUSE)

    def _fault(self, request: Request) -> Fault | None:
        with self._lock:
            self._kept.setdefault(request.api, []).append(request)
            if request.api not in set(Api):
                return None
            waiting = self._armed.get(Api(request.api))
            return waiting.popleft() if waiting else None

    def _note(self, api: Api, fault: Fault) -> None:
        with self._lock:
            self.done[api, fault] += 1

    def _end(self, *sockets: socket.socket) -> None:
        for each in sockets:
            _shut(each)
            with self._lock:
                self._sockets.discard(each)


def refusal(request: Request) -> bytes:
    """Return the answer to a PRODUCE whose first partition has another leader. Pure.

    Layouts: https://kafka.apache.org/protocol#The_Messages_Produce, versions from 9 on, one partition a request, as
    librdkafka sends them.
    """
    if request.api != Api.PRODUCE or request.version < _FLEXIBLE_PRODUCE:
        raise ValueError(f"only PRODUCE of version {_FLEXIBLE_PRODUCE} or newer can be refused")
    body = request.body
    (client_id,) = struct.unpack_from(">h", body, 8)
    at = 10 + max(client_id, 0) + 1  # and no tagged fields
    transactional_id, at = _varint(body, at)
    at += max(transactional_id - 1, 0) + 2 + 4  # acks, time-out
    topics, at = _varint(body, at)
    length, at = _varint(body, at)
    topic = body[at : at + length - 1]
    partitions, at = _varint(body, at + length - 1)
    if (topics, partitions) != (2, 2):
        raise ValueError("only a PRODUCE for one partition can be refused")
    (partition,) = struct.unpack_from(">i", body, at)
    return b"".join((
        struct.pack(">ib", request.correlation, 0),
        bytes((2, len(topic) + 1)), topic,
        bytes((2,)), struct.pack(">ihqqq", partition, _NOT_LEADER, -1, -1, -1),
        bytes((1, 0, 0)),  # no record errors, no message, no tagged fields
        bytes((0,)), struct.pack(">ib", 0, 0),
    ))  # fmt: skip


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned variable-length number; give it and the place behind it."""
    value = shift = 0
    while True:
        byte = body[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:  # the last byte has its highest bit clear
            return value, at


def _take(source: socket.socket) -> bytes:
    """Read one message; empty at the end of the stream."""
    head = _exactly(source, 4)
    if not head:
        return b""
    (length,) = struct.unpack(">i", head)
    if not 0 < length < _FRAME_BYTES_MAX:
        return b""
    return _exactly(source, length)


def _exactly(source: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        part = source.recv(min(length - len(parts), 1 << 16))
        if not part:
            return b""
        parts += part
    return bytes(parts)


def _put(target: socket.socket, body: bytes) -> None:
    target.sendall(struct.pack(">i", len(body)) + body)


def _shut(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
