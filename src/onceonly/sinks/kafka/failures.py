"""What became of rows that did not reach Kafka, told to the attempt whose rows they were. Executor."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a row did not reach Kafka: confluent-kafka's ``KafkaError``, and the bytes of the row if it is about one."""

    error: Any
    row_bytes: int | None = None


class Failures:
    """The first failure of each attempt: the cause; later ones are its followers.

    Any thread: a late attempt may share its client with the next one.
    """

    def __init__(self) -> None:
        self._marks = itertools.count(1)
        self._first: dict[int, Failure] = {}

    def begin(self) -> int:
        """Give an attempt the mark of its rows."""
        return next(self._marks)

    def first(self, mark: int) -> Failure | None:
        """Give what befell an attempt's rows first."""
        return self._first.get(mark)

    def note(self, mark: int, failure: Failure) -> None:
        """Keep it, if it is the first."""
        self._first.setdefault(mark, failure)
