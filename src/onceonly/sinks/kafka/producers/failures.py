"""What became of rows that did not reach Kafka, told to the attempt whose rows they were. Executor."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a row did not reach Kafka: confluent-kafka's ``KafkaError``, and the bytes of the row if it is about one.

    ``is_alone`` says that no other row was in its batch.
    """

    error: Any
    row_bytes: int | None = None
    is_alone: bool = False


class Failures:
    """The first failure of an attempt, which is the cause; later ones follow from it."""

    def __init__(self) -> None:
        self.first: Failure | None = None
        self._heard: tuple[float, str] | None = None

    def note(self, failure: Failure) -> None:
        """Keep it, if it is the first."""
        self.first = self.first or failure

    def hear(self, trouble: str) -> None:
        """Keep what the client says of a broker that it does not reach, or that puts it off; the last word stays."""
        self._heard = time.monotonic(), trouble

    def trouble(self) -> str:
        """Return what was heard last, and how long ago; empty where nothing was."""
        if self._heard is None:
            return ""
        heard, text = self._heard
        return f"{text} ({time.monotonic() - heard:.0f} s ago)"
