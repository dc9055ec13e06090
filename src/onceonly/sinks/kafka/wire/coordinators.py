"""What both clients of kafka-python keep of a cluster: who coordinates what, and whether anybody answers."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# After so long without any answer, the addresses that are known may be those of long ago.
_LOST_S = 5.0
# To look somebody up, to connect and to be answered; a broker that holds us back has REQUEST_S of it. Nobody waits
# longer for a client that falls silent, whatever it is at, so that another one is there within 15 s: one of the
# addresses that it looks for a broker at may take SETUP_S in vain.
_ANSWER_S = 10.5
ANSWER_S_MIN = 1.0


class Coordinators(ABC):
    """One for each client; ``leaders`` are those of the partitions of ``__transaction_state``, where they are known."""

    def __init__(self) -> None:
        self.leaders: list[int] = []
        self._coordinators: dict[tuple[int, str], int] = {}
        self._silent_since: float | None = None

    @abstractmethod
    def send(self, request: Any, node: int | None) -> Any:  # noqa: ANN401  kafka-python is untyped
        """Send one request, to any broker where none is named, and return its response."""

    def remember(self, kind: int, key: str, node: int) -> None:
        """Take a broker for the coordinator of a key."""
        self._coordinators[kind, key] = node

    def forget(self, kind: int, key: str) -> None:
        """Look it up next time."""
        self._coordinators.pop((kind, key), None)

    def features(self) -> Mapping[str, int]:
        """Ask any broker for the levels of the features that the cluster has finalised."""
        from kafka.protocol.metadata import ApiVersionsRequest

        answer = self.send(
            ApiVersionsRequest(client_software_name="onceonly", client_software_version="0"), None
        )
        return {each.name: each.max_version_level for each in answer.finalized_features or ()}

    def _waited_until(self, asked: float) -> float:
        """Return until when an answer is waited for.

        Who asks after others were not answered does not begin to wait anew: all silence is of one length.
        """
        since = asked if self._silent_since is None else self._silent_since
        return max(since + _ANSWER_S, asked + ANSWER_S_MIN)

    def _is_lost(self) -> bool:
        """Say whether nobody has answered for so long that all addresses may be those of long ago."""
        return self._silent_since is not None and time.monotonic() - self._silent_since >= _LOST_S
