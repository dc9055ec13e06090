"""A client of kafka-python by its public names only, where the quick one does not know its private ones any more.

It does what ``client.Client`` does, one request after the other, in the thread that asks: slower for many commits, and
as safe. Driver and executors.

kafka-python's own start waits for ever for a TLS handshake; it is not called. Each connection is waited for here, and
closed where it does not come up, so that no later request waits for the same one.
"""

from __future__ import annotations

import copy
import random
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from onceonly import background
from onceonly.sinks.kafka.wire.answers import NotAnsweredError, judged, refuse_forbidden
from onceonly.sinks.kafka.wire.coordinators import ANSWER_S_MIN, Coordinators
from onceonly.sinks.kafka.wire.settings import CONNECT_S, REQUEST_S, limits, settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from onceonly.sinks.kafka.options import KafkaOptions

_PAUSE_S = 0.05
# How often an address that drops what comes is tried again (Linux): it has 3 s at most, then comes the next one.
_SYNCNT = 1


class PlainClient(Coordinators):
    """As ``Client``. Thread-safe: one request at a time."""

    def __init__(self, options: KafkaOptions) -> None:
        from kafka.errors import KafkaError
        from kafka.net.compat import KafkaNetClient

        super().__init__()
        self._lock = threading.Lock()
        self._is_closed = False
        bounds = limits(options)
        self._setup_s = bounds["socket_connection_setup_timeout_ms"] / 1000
        if hasattr(socket, "TCP_SYNCNT"):
            bounds["socket_options"].append((socket.IPPROTO_TCP, socket.TCP_SYNCNT, _SYNCNT))
        self._kafka = KafkaNetClient(**settings(options), **bounds)
        try:
            self._begin()
        except (KafkaError, OSError, RuntimeError) as error:
            self._kafka.close()
            raise judged(error) from error

    def is_usable(self) -> bool:
        """Say whether to go on with it."""
        return not self._is_closed and not self._is_lost()

    def cluster_id(self) -> str | None:
        """Name the cluster that answered first."""
        found: str | None = self._kafka.cluster.cluster_id
        return found

    def send(self, request: Any, node: int | None) -> Any:  # noqa: ANN401  kafka-python is untyped
        """Send one request, to any broker where none is named, and return its response."""
        return self._ask(request, node, REQUEST_S)

    def post(self, request: Any, node: int, timeout_ms: float | None = None) -> Future[Any]:  # noqa: ANN401
        """Send one request; its response, or ``NotAnsweredError``, comes later."""
        timeout_s = REQUEST_S if timeout_ms is None else timeout_ms / 1000
        return background.begin("onceonly-plain", self._ask, request, node, timeout_s)

    def send_all(self, kind: int, requests: Mapping[str, Any]) -> dict[str, Any | NotAnsweredError]:
        """Send each request to the coordinator of its key, one after the other, and return the answers."""
        answers: dict[str, Any | NotAnsweredError] = {}
        for key, request in requests.items():
            try:
                answers[key] = self.send(request, self.coordinator(kind, key))
            except NotAnsweredError as error:
                answers[key] = error
        return answers

    def coordinator(self, kind: int, key: str) -> int:
        """Return the broker that coordinates a group or transactional id."""
        from kafka.errors import KafkaError
        from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        answer = self.send(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key], min_version=4), None)
        found = answer.coordinators[0]
        refuse_forbidden(found.error_code, key)
        try:
            node: int = self._kafka.cluster.add_coordinator(
                found, CoordinatorType(kind), key, synthesize_node_id=False
            )
        except KafkaError as error:
            raise judged(error) from error
        self._coordinators[kind, key] = node
        return node

    def close(self) -> None:
        """Close its connections."""
        self._is_closed = True
        with self._lock:
            self._kafka.close()

    def _ask(self, request: Any, node: int | None, timeout_s: float) -> Any:  # noqa: ANN401
        from kafka.errors import KafkaError

        asked = time.monotonic()
        until = min(asked + timeout_s, self._waited_until(asked))
        if not self._lock.acquire(timeout=until - asked):
            raise NotAnsweredError("no answer: others wait for theirs")
        try:
            began = time.monotonic()
            until = max(until, began + ANSWER_S_MIN)
            try:
                if node is None or self._kafka.cluster.broker_metadata(node) is None:
                    some = self._kafka.least_loaded_node(bootstrap_fallback=True)
                    if node is not None:  # it has joined since the start
                        self._learn(some, until)
                    node = some if node is None else node
                # A copy: the version of one broker is not kept for another, as in client.Client.
                answer = self._reach(node, copy.copy(request), until)
            except (KafkaError, OSError, RuntimeError) as error:
                if self._silent_since is None:
                    self._silent_since = began
                raise judged(error) from error
            self._silent_since = None
            return answer
        finally:
            self._lock.release()

    def _reach(self, node: Any, request: Any, until: float) -> Any:  # noqa: ANN401
        """Send a request, once there is a connection; one that is not there in time is given up."""
        from kafka.errors import KafkaError

        try:
            setup_s = min(self._setup_s, max(until - time.monotonic(), 0))
            self._kafka.await_ready(node, timeout_ms=int(setup_s * 1000))
            left_s = max(until - time.monotonic(), 0)
            return self._kafka.send_and_receive(node, request, timeout_ms=int(left_s * 1000))
        except (KafkaError, OSError, RuntimeError):
            self._kafka.close(node)
            raise

    def _learn(self, node: Any, until: float) -> None:  # noqa: ANN401
        """Ask a broker for all of them."""
        cluster = self._kafka.cluster
        cluster.update_metadata(self._reach(node, cluster.metadata_request(), until))

    def _begin(self) -> None:
        """Find a broker among the bootstrap servers, and ask it for the others."""
        from kafka.errors import KafkaError

        until = time.monotonic() + CONNECT_S
        found: Exception | None = None
        while found is None or time.monotonic() < until:
            nodes = [each.node_id for each in self._kafka.cluster.bootstrap_brokers()]
            for node in random.sample(nodes, len(nodes)):
                try:
                    self._learn(node, until)
                except (KafkaError, OSError, RuntimeError) as error:
                    found = error
                else:
                    # As kafka-python's own start: the broker has a name of its own by now.
                    self._kafka.close(node)
                    return
            time.sleep(_PAUSE_S)
        raise found
