"""Reading during the faults: threads that look all the time, survive the death of what they read, and note times."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from onceonly.errors import OnceonlyError
from onceonly_proof.auditor import kafka

if TYPE_CHECKING:
    from types import TracebackType

    from confluent_kafka import Consumer

    from onceonly_proof.auditor.readers import Reader
    from onceonly_proof.auditor.world import Seen

_POLL_S = 0.02
_BATCH = 2_000
_JOIN_TIMEOUT_S = 30.0
SILENT_S = 10.0
"""For how long a client may hear nothing before another one is asked."""
# A reader that takes long must not take the whole machine: it rests for so many times what it took.
_REST = 2.0


class _Watch:
    """A thread that looks until it is closed. Whatever goes wrong is noted in ``trouble``, and it looks again."""

    def __init__(self, name: str) -> None:
        self.trouble = ""
        """The last thing that went wrong, for people; empty if nothing did."""
        self._seen: list[Seen] = []
        self._grown = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {name}", daemon=True)
        self._thread.start()

    def seen(self) -> list[Seen]:
        """Return what was got until now, each with the time when it was first seen. Any thread."""
        with self._grown:
            return list(self._seen)

    def wait_for(self, count: int, timeout_s: float) -> bool:
        """Wait until so many rows were seen; say whether they were before the time was over."""
        with self._grown:
            return self._grown.wait_for(lambda: len(self._seen) >= count, timeout_s)

    def close(self) -> None:
        """Stop looking; what was seen stays. Idempotent."""
        self._stop.set()
        self._thread.join(_JOIN_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _keep(self, rows: list[Seen]) -> None:
        if rows:
            with self._grown:
                self._seen += rows
                self._grown.notify_all()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._look()
            except Exception as error:  # noqa: BLE001  the world is being broken on purpose; what it shows counts
                self.trouble = f"{type(error).__name__}: {error}"
            self._stop.wait(_POLL_S)
        with suppress(Exception):
            self._let_go()

    def _look(self) -> None:
        """Look once, and keep what is new. Each kind of watcher has its own."""
        raise NotImplementedError  # this class is never made itself

    def _let_go(self) -> None:
        """Give back what the thread holds."""


class KafkaWatcher(_Watch):
    """Consumes a topic with ``read_committed`` from its beginning, through deaths and restarts of brokers.

    Fulfils ``Watcher``. The topic may be made later. After an error, and after a silence, it goes on behind the last
    record it got, so it sees each offset once.
    """

    def __init__(self, sink: str, servers: str, topic: str) -> None:
        self._sink = sink
        self._servers = servers
        self._topic = topic
        self._next: dict[int, int] = {}
        self._consumer: Consumer | None = None
        self._heard = 0.0
        super().__init__(f"topic {topic}")

    def _look(self) -> None:
        if self._consumer is None:
            self._consumer = kafka.plain_consumer(self._servers, self._topic, appear_s=0, starts=self._next)
            self._heard = time.monotonic()
        messages = self._consumer.consume(_BATCH, _POLL_S)
        now = time.time()
        if messages:
            self._heard = time.monotonic()
        elif time.monotonic() - self._heard > SILENT_S:
            # A client may hear nothing any more of a broker that came back, though others read there.
            self._let_go()
        rows: list[Seen] = []
        try:
            for message in messages:
                record = kafka.record_of(message, self._topic)
                if record is not None and record.offset >= self._next.get(record.partition, 0):
                    self._next[record.partition] = record.offset + 1
                    rows.append(kafka.seen(self._sink, self._topic, record, seen_s=now))
        except OnceonlyError:
            self._let_go()
            raise
        finally:
            self._keep(rows)

    def _let_go(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()


class PollingWatcher(_Watch):
    """Looks at any reader again and again, and notes when each row was there first. Fulfils ``Watcher``.

    A row is told from others by its place, its order and its value; all rows that are new in one look have its time.
    The reader is used by this thread alone, and closed with it. ``asked`` counts how often it was asked, ``looks`` how
    often it has answered.
    """

    def __init__(self, reader: Reader, *, poll_s: float = 0.05) -> None:
        self._reader = reader
        self._poll_s = poll_s
        self._known: set[tuple[str, int, bytes | None]] = set()
        self._before_s: float | None = None
        self.asked = self.looks = 0
        self._wanted = threading.Event()
        super().__init__(type(reader).__name__)

    def _look(self) -> None:
        began, began_s = time.monotonic(), time.time()
        fresh: list[Seen] = []
        self.asked += 1
        try:
            for row in self._reader.rows():
                name = row.place, row.order, row.value
                if name not in self._known:
                    self._known.add(name)
                    fresh.append(row)
        finally:
            now = time.time()
            self._keep([replace(row, seen_s=now, unseen_s=self._before_s) for row in fresh])
        self._before_s = began_s
        self.looks += 1
        self._wanted.wait(max(self._poll_s, _REST * (time.monotonic() - began)))
        self._wanted.clear()

    def look_now(self, timeout_s: float) -> bool:
        """Have it look without a rest; say whether a look that began after this call was answered in time.

        Any thread but its own.
        """
        now, deadline = time.time(), time.monotonic() + timeout_s
        while self._before_s is None or self._before_s <= now:
            if time.monotonic() > deadline:
                return False
            self._wanted.set()
            time.sleep(_POLL_S)
        return True

    def close(self) -> None:
        """Stop looking; what was seen stays. Idempotent."""
        self._stop.set()
        self._wanted.set()
        super().close()

    def _let_go(self) -> None:
        self._reader.close()
