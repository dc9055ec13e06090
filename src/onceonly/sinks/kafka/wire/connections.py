"""Further connections to a broker, for many requests at a time. Driver; only in the thread of kafka-python.

A broker takes up a request of a connection when it has answered the one before. Meanwhile it hands it from thread to
thread, and waits for the replicas of its log: on three brokers, 64 commits take three times as long by one connection
to each, as kafka-python has (``benchmarks.replicas``; docs/adr/0013-commits-by-several-connections.md).
"""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Mapping

CONNECTIONS_MAX = 16
"""To one broker, with kafka-python's own."""

# A broker that refused one has a bound for them; it is not asked for more at each epoch.
_REFUSED_PAUSE_S = 60.0


class Connections:
    """To each broker of one of kafka-python's managers, which closes them with its own, when idle and at the end."""

    def __init__(self, manager: Any) -> None:  # noqa: ANN401  kafka-python is untyped
        self._manager = manager
        self._not_before: dict[int, float] = {}

    def send(self, node: int, requests: Mapping[str, Any]) -> dict[str, Any]:
        """Send all to a broker; return kafka-python's futures of their answers, by the same keys.

        Those of one connection are answered in their order.
        """
        from kafka.errors import KafkaError
        from kafka.future import Future

        try:
            connections = self._to(node, len(requests))
        except KafkaError as error:
            return {key: Future().failure(error) for key in requests}
        sent = {
            key: connections[place % len(connections)].send_request(request)
            for place, (key, request) in enumerate(requests.items())
        }
        for connection in connections:
            if connection.transport is not None:
                _join(connection.transport._write_buffer)  # noqa: SLF001  no public name
        return sent

    def is_held_back(self, node: int) -> bool:
        """Say whether a broker is there and takes nothing from us for now, by a quota."""
        own = self._manager._conns.get(node)  # noqa: SLF001  no public name
        return bool(own is not None and own.connected and own.paused)

    def _to(self, node: int, wanted: int) -> list[Any]:
        """Return at most so many connections to a broker; begin to make those that are missing.

        kafka-python's own comes first, and keeps what it is given until it is there. None of the others is waited for:
        they are for the next time. Raises what kafka-python raises where it has no connection.
        """
        own = self._manager.get_connection(node)
        found = [own]
        # A broker that is down is tried by its own connection only.
        for place in range(1, min(wanted, CONNECTIONS_MAX) if own.connected else 1):
            name = f"{node}/{place}"
            connection = self._manager._conns.get(name)  # noqa: SLF001  no public name
            if connection is None:
                self._begin(node, name)
            elif connection.connected and not connection.paused:
                found.append(connection)
        return found

    def _begin(self, node: int, name: str) -> None:
        from kafka.net.connection import KafkaConnection

        manager = self._manager
        broker = manager.cluster.broker_metadata(node)
        if broker is None or time.monotonic() < self._not_before.get(node, 0.0):
            return
        # What it notes of failures is noted by name: kafka-python's own connection shall not suffer by them.
        named = SimpleNamespace(node_id=name, host=broker.host, port=broker.port)
        connection = KafkaConnection(
            manager._net,  # noqa: SLF001  as above
            node_id=name,
            broker_version_data=manager.broker_version_data,
            **manager.config,
        )

        def refused(_error: BaseException) -> None:
            self._not_before[node] = time.monotonic() + _REFUSED_PAUSE_S

        def closed(_error: BaseException | None) -> None:
            manager._conns.pop(name, None)  # noqa: SLF001  as above

        connection.init_future.add_errback(refused)
        connection.close_future.add_both(closed)
        manager._conns[name] = connection  # noqa: SLF001  as above
        manager.watch(connection)
        seconds = manager.config["socket_connection_setup_timeout_ms"] / 1000
        manager._net.call_soon(  # noqa: SLF001  as above
            lambda: manager._connect(named, connection, timeout_at=time.monotonic() + seconds)  # noqa: SLF001  as above
        )


def _join(pieces: deque[bytes]) -> None:
    """Make one piece of those that are about to be sent: each is a system call, and wakes the broker for little."""
    if len(pieces) > 1:
        joined = b"".join(pieces)
        pieces.clear()
        pieces.append(joined)
