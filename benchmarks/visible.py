"""Watches how far a ``read_committed`` reader could read, while a run runs: a question to the broker every few ms."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_EVERY_S = 0.02
_ANSWER_TIMEOUT_S = 10.0
_JOIN_TIMEOUT_S = 15.0


class Visible:
    """The last stable offsets of a topic's partitions over time. Harness; a thread of its own, ended by the block."""

    def __init__(self, admin: AdminClient, topic: str, partitions: int) -> None:
        self.times_s: list[float] = [time.monotonic()]
        """Moments, on the monotonic clock."""
        self.marks: list[tuple[int, ...]] = [(0,) * partitions]
        """The offsets at each moment, by partition. Only moments are kept at which something was new."""
        self._admin = admin
        self._asked = [TopicPartition(topic, number) for number in range(partitions)]
        self._moved = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"visible {topic}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(_JOIN_TIMEOUT_S)

    @property
    def reached(self) -> int:
        """The sum of the offsets now: at least as many as rows are visible."""
        return sum(self.marks[-1])

    def still_for_s(self) -> float:
        """Say for how long nothing new has become visible."""
        return time.monotonic() - self.times_s[-1]

    def wait_for(self, sum_of_offsets: int, timeout_s: float) -> bool:
        """Wait until the offsets sum up to so many; say whether they do."""
        with self._moved:
            return self._moved.wait_for(lambda: self.reached >= sum_of_offsets, timeout_s)

    def _watch(self) -> None:
        while not self._stop.is_set():
            asked = {each: OffsetSpec.latest() for each in self._asked}  # type: ignore[no-untyped-call]  # theirs
            try:
                answers = self._admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
                found = tuple(answers[each].result(_ANSWER_TIMEOUT_S).offset for each in self._asked)
            except KafkaException:  # asked again; a run that is never seen to end says so itself
                found = self.marks[-1]
            if found != self.marks[-1]:
                with self._moved:
                    self.times_s.append(time.monotonic())
                    self.marks.append(found)
                    self._moved.notify_all()
            self._stop.wait(_EVERY_S)
