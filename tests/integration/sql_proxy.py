"""A connection between a sink and its server that can be cut around a COMMIT: before it arrives, or its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from onceonly_proof.campaign.cutting import Proxy

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

POSTGRES, MYSQL = b"COMMIT\0", b"\x03COMMIT"
"""How a client says it."""


class CommitProxy(Proxy):
    """Passes on all but what it is told to cut, once."""

    def __init__(self, port: int, word: bytes = POSTGRES) -> None:
        self._word = word
        self._cut = ""
        self._then: Callable[[], None] = lambda: None
        self.cuts = 0
        super().__init__(port)

    def arm(self, when: str, then: Callable[[], None] = lambda: None) -> None:
        """Cut the next COMMIT: ``before`` the server gets it, or ``after`` it has answered; ``then`` is called."""
        self._cut, self._then = when, then

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def goes_up(self, data: bytes, server: socket.socket) -> bool:
        if self._cut == "before" and self._word in data:
            return self._strike()
        if self._cut == "after" and self._word in data:
            self._cut = "answer"
        return True

    def goes_down(self, data: bytes, server: socket.socket) -> bool:
        return self._strike() if self._cut == "answer" else True

    def _strike(self) -> bool:
        with self.lock:  # whatever ends the server, the client hears of it when that is over
            self._cut = ""
            self.cuts += 1
            self._then()
        return False
