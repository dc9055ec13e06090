"""A client of kafka-python by its public names only, where the quick one does not know its private ones any more.

It does what ``client.Client`` does, one request after the other, in the thread that asks: slower for many commits, and
as safe. Driver and executors.
"""

from __future__ import annotations

import copy
import threading
import time
from typing import TYPE_CHECKING, Any

from onceonly import background
from onceonly.sinks.kafka.wire.answers import NotAnsweredError, judged, refuse_forbidden
from onceonly.sinks.kafka.wire.coordinators import Coordinators
from onceonly.sinks.kafka.wire.settings import CONNECT_S, REQUEST_S, settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from onceonly.sinks.kafka.options import KafkaOptions


class PlainClient(Coordinators):
    """As ``Client``. Thread-safe: one request at a time."""

    def __init__(self, options: KafkaOptions) -> None:
        from kafka.errors import KafkaError
        from kafka.net.compat import KafkaNetClient

        super().__init__()
        self._lock = threading.Lock()
        self._is_closed = False
        self._kafka = KafkaNetClient(**settings(options))
        try:
            self._kafka.check_version(timeout_ms=int(CONNECT_S * 1000))
        except (KafkaError, OSError) as error:
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

        with self._lock:
            began = time.monotonic()
            try:
                if node is None:
                    node = self._kafka.least_loaded_node(bootstrap_fallback=True)
                # A copy: the version of one broker is not kept for another, as in client.Client.
                answer = self._kafka.send_and_receive(
                    node, copy.copy(request), timeout_ms=int(timeout_s * 1000)
                )
            except (KafkaError, OSError, RuntimeError) as error:
                if self._silent_since is None:
                    self._silent_since = began
                raise judged(error) from error
            self._silent_since = None
            return answer
