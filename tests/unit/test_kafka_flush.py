"""How a flush waits, where librdkafka wakes nobody up."""

from __future__ import annotations

from typing import Any, cast

import pytest

from onceonly.sinks.kafka.producers import librdkafka
from onceonly.sinks.kafka.producers.batch_producer import BatchProducer


class Library:
    """Acknowledges all rows once ``needs_ms`` have been waited for, by a clock of its own."""

    def __init__(self, needs_ms: float, patch: pytest.MonkeyPatch) -> None:
        self.now_ms, self.waits, self._needs_ms = 0, list[int](), needs_ms
        patch.setattr(
            "onceonly.sinks.kafka.producers.batch_producer.time.monotonic", lambda: self.now_ms / 1000
        )

    def flush(self, _client: int, timeout_ms: int) -> int:
        self.waits.append(timeout_ms)
        self.now_ms += max(timeout_ms, 1)
        return librdkafka.NO_ERROR if self.now_ms >= self._needs_ms else librdkafka.TIMED_OUT

    def outq_len(self, _client: int) -> int:
        return 7


def producer(library: Library) -> BatchProducer:
    made = BatchProducer.__new__(BatchProducer)
    made._library, made._handle, made._pid = cast("Any", library), 1, -1
    return made


@pytest.mark.parametrize("needs_ms", [1, 3, 12, 100, 2_000])
def test_a_flush_ends_soon_after_the_last_row_is_acknowledged(
    needs_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library(needs_ms, monkeypatch)
    assert producer(library).flush(30.0) == 0
    assert library.now_ms <= needs_ms * 1.1 + 1
    assert len(library.waits) < 100


@pytest.mark.parametrize("timeout_s", [0.0, 0.0005, 0.1, 5.0])
def test_a_flush_gives_up_in_time_and_says_how_many_rows_are_left(
    timeout_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library(float("inf"), monkeypatch)
    assert producer(library).flush(timeout_s) == 7
    assert timeout_s * 1000 - 1 <= library.now_ms <= timeout_s * 1000 + 2
