"""Watches, with a plain ``read_committed`` consumer, how many records are visible at which moment."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from onceonly import events
from onceonly_proof.auditor.kafka import plain_consumer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from confluent_kafka import Consumer

_POLL_S = 0.03
_BATCH = 5_000
_JOIN_TIMEOUT_S = 10.0


class Watch:
    """A thread that notes visible records in the event log (kind ``visible``) while it is entered.

    Only for the picture and the progress display: the audit reads everything again, from the beginning.
    """

    def __init__(self, servers: str, topics: Sequence[str]) -> None:
        self._servers = servers
        self._topics = topics
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._consumers: list[tuple[str, Consumer]] = []
        self._close = ExitStack()
        self.seen: Counter[str] = Counter()

    def __enter__(self) -> Self:
        with ExitStack() as on_error:
            for topic in self._topics:
                consumer = plain_consumer(self._servers, topic)
                on_error.callback(consumer.close)
                self._consumers.append((topic, consumer))
            self._close = on_error.pop_all()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(_JOIN_TIMEOUT_S)
        self._close.close()

    def wait_for(self, topic: str, count: int, timeout_s: float) -> None:
        """Wait until so many records of a topic were seen, or the time is over."""
        deadline = time.monotonic() + timeout_s
        while self.seen[topic] < count and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            for topic, consumer in self._consumers:
                self._look(topic, consumer)

    def _look(self, topic: str, consumer: Consumer) -> None:
        messages = consumer.consume(_BATCH, _POLL_S)
        found = sum(1 for message in messages if message.error() is None)
        if found:
            self.seen[topic] += found
            events.record("visible", actor="watch", sink=topic, count=self.seen[topic])
