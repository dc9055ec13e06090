"""kafka-python's connections, with a deadline on each state of theirs. Imported when kafka-python is sure to be there.

kafka-python waits for ever for a peer that does not answer a TLS handshake, gives all its time to the first address of
a name, looks names up in the thread that serves all brokers, and asks addresses of long ago for new ones. Everything
here runs in that thread, but what looks names up.
"""

from __future__ import annotations

import errno
import random
import socket
import ssl
import time
from typing import TYPE_CHECKING, Any

from kafka.errors import KafkaConnectionError, KafkaError
from kafka.future import Future
from kafka.net.manager import KafkaConnectionManager
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from onceonly import background
from onceonly.sinks.kafka.wire.answers import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    # Family, type, protocol, canonical name, address: as socket.getaddrinfo gives them.
    Address = tuple[int, int, int, str, Any]

# Over what a connection may take, until it is closed whatever it waits for.
_GRACE_S = 0.5
_FAILED_MAX = 1000
_BEGUN = frozenset({errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EALREADY})


class Tls(KafkaSSLTransport):  # type: ignore[misc]  # kafka-python is untyped
    """A transport whose handshake has a deadline."""

    async def shake(self, timeout_at: float) -> None:
        """Shake hands; raises ``KafkaError`` when time is over, ``OSError`` where it is refused."""
        while True:
            try:
                self._sock.do_handshake()
            except ssl.SSLWantReadError:
                await self._net.wait_read(self._sock, timeout_at=timeout_at)
            except ssl.SSLWantWriteError:
                await self._net.wait_write(self._sock, timeout_at=timeout_at)
            else:
                return


class Manager(KafkaConnectionManager):  # type: ignore[misc]  # kafka-python is untyped
    """Connections that come up within ``socket_connection_setup_timeout_ms``, or are given up.

    ``family`` is that of addresses: ``socket.AF_UNSPEC``, or one only.
    """

    def __init__(self, net: Any, *, family: int, **configs: Any) -> None:  # noqa: ANN401
        super().__init__(net, **configs)
        self._family = family
        self.was_let_in = False
        """Whether any peer has taken a connection of ours, also one that it closed again."""
        self.trouble = ""
        """Why a connection did not come up or was lost last: kafka-python only logs that."""
        self._setup_s = self.config["socket_connection_setup_timeout_ms"] / 1000
        # How often a node was tried in vain since it was there, and when an address was.
        self._tried: dict[Any, int] = {}
        self._failed: dict[Any, float] = {}
        # Which one each node has come to.
        self._at: dict[Any, Any] = {}
        self._looking: dict[str, Any] = {}
        bootstrap_brokers: Callable[[], list[Any]] = self.cluster.bootstrap_brokers

        def least_tried() -> list[Any]:
            """Return those that kafka-python chooses from: not again one in vain while another was not tried."""
            found = bootstrap_brokers()
            least = min(self._tried.get(each.node_id, 0) for each in found)
            return [each for each in found if self._tried.get(each.node_id, 0) == least]

        self.cluster.bootstrap_brokers = least_tried

    def get_connection(self, node_id: Any, timeout_ms: float | None = None, **more: Any) -> Any:  # noqa: ANN401
        """As in the class before, and none stays in the making beyond its time."""
        setup_ms = self._setup_s * 1000
        setup_ms = setup_ms if timeout_ms is None else min(timeout_ms, setup_ms)
        connection = super().get_connection(node_id, timeout_ms=setup_ms, **more)
        if connection.initializing:
            self.watch(connection)
        return connection

    def watch(self, connection: Any) -> None:  # noqa: ANN401  kafka-python is untyped
        """Close a connection that is not there in time, whatever it waits for. Idempotent."""
        if getattr(connection, "is_watched", False):
            return
        connection.is_watched = True
        over_s = self._setup_s + _GRACE_S
        task = self._net.call_later(over_s, lambda: self._end(connection))

        def is_there(_answer: Any) -> None:  # noqa: ANN401
            if not connection.is_over:
                self._net.cancel(task)

        connection.is_over = False
        connection.init_future.add_both(is_there)

    def _end(self, connection: Any) -> None:  # noqa: ANN401
        connection.is_over = True
        if connection.initializing:
            connection.close(KafkaConnectionError(f"no connection within {self._setup_s:g} s"))

    def update_backoff(self, node_id: Any) -> float:  # noqa: ANN401
        """Note that a node was tried in vain."""
        self._tried[node_id] = self._tried.get(node_id, 0) + 1
        backoff_ms: float = super().update_backoff(node_id)
        return backoff_ms

    def reset_backoff(self, node_id: Any) -> None:  # noqa: ANN401
        """Note that a node is there."""
        self._tried.pop(node_id, None)
        super().reset_backoff(node_id)

    def least_loaded_node(self) -> Any:  # noqa: ANN401
        """As in the class before, but none that was tried in vain where another one is known."""
        found = super().least_loaded_node()
        if not self._tried.get(found):
            return found
        known = [each.node_id for each in self.cluster.brokers()]
        hopeful = [each for each in known if not self._tried.get(each) and not self.connection_delay(each)]
        return random.choice(hopeful) if hopeful else found  # noqa: S311  to spread load

    async def _connect(self, node: Any, conn: Any, **more: Any) -> None:  # noqa: ANN401
        def lost(error: BaseException) -> None:
            self.trouble = f"{node.host}:{node.port}: {reason(error)}"

        conn.close_future.add_errback(lost)
        await super()._connect(node, conn, **more)
        address = self._at.pop(node.node_id, None)
        if not conn.connected:
            # Its address let us in and was silent then: another one of the name is tried first, and not at once.
            self._blame(address)
            self.update_backoff(node.node_id)

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:  # noqa: ANN401
        """Connect to the first address of a name that takes us, each in its share of the time."""
        timeout_at = time.monotonic() + self._setup_s if timeout_at is None else timeout_at
        found = await self._addresses(node.host, node.port, timeout_at)
        # What failed longest ago, or never, comes first.
        found = sorted(found, key=lambda each: self._failed.get(each[4], 0.0))
        error: Exception = KafkaConnectionError(f"{node.host} has no address of the family that is wanted")
        for place, address in enumerate(found):
            now = time.monotonic()
            until = now + (timeout_at - now) / (len(found) - place)
            try:
                transport = await self._transport(node.host, address, until)
            except (KafkaError, OSError) as failed:
                error = KafkaConnectionError(
                    f"{node.host}, {address[4][0]}: {type(failed).__name__}: {failed}"
                )
                self._blame(address[4])
            else:
                self._failed.pop(address[4], None)
                self.was_let_in = True
                self._at[node.node_id] = address[4]
                return transport
        raise error

    async def _transport(self, host: str, address: Address, until: float) -> Any:  # noqa: ANN401
        family, kind, protocol, _, place = address
        sock = socket.socket(family, kind, protocol)
        transport: Any = None
        try:
            sock.settimeout(0)
            for option in self.config["socket_options"]:
                sock.setsockopt(*option)
            code = sock.connect_ex(place)
            if code in _BEGUN:
                await self._net.wait_write(sock, timeout_at=until)
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, errno.errorcode.get(code, "unknown"))  # noqa: TRY301  closed below, as all others
            if not self.ssl_enabled:
                return KafkaTCPTransport(self._net, sock, host=host)
            transport = Tls(self._net, sock, ssl_context=self.config["ssl_context"], host=host)
            await transport.shake(until)
        except BaseException:
            if transport is None:
                sock.close()
            else:
                transport.abort()
            raise
        return transport

    def _blame(self, address: Any) -> None:  # noqa: ANN401
        if len(self._failed) >= _FAILED_MAX:
            self._failed.clear()
        if address is not None:
            self._failed[address] = time.monotonic()

    async def _addresses(self, host: str, port: int, timeout_at: float) -> Sequence[Address]:
        """Look a name up. Its servers may take half a minute to answer, and the other brokers shall not wait."""
        try:
            return socket.getaddrinfo(host, port, self._family, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST)
        except socket.gaierror:
            pass  # it is a name
        looking = self._looking.get(host)
        if looking is None:
            looking = Future()
            background.begin("onceonly-names", self._look_up, host, port, looking)
            # Once there is somebody who ends it.
            self._looking[host] = looking
            looking.add_both(lambda _: self._looking.pop(host, None))
        left_ms = max(timeout_at - time.monotonic(), 0) * 1000
        found: Sequence[Address] = await self.wait_for(looking, left_ms)
        return [(*each[:4], (each[4][0], port, *each[4][2:])) for each in found]

    def _look_up(self, host: str, port: int, looking: Any) -> None:  # noqa: ANN401
        """In a thread of its own; the answer is taken in kafka-python's."""
        try:
            found = socket.getaddrinfo(host, port, self._family, socket.SOCK_STREAM)
        except Exception as error:  # noqa: BLE001  whatever it is, who waits is told
            failed = KafkaConnectionError(f"the name {host} is not found: {error}")
            self._net.call_soon_threadsafe(lambda: looking.failure(failed))
        else:
            self._net.call_soon_threadsafe(lambda: looking.success(found))
