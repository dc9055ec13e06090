"""One stream: records on their way to it, and what becomes of each. Executor, one thread."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeAlias

from onceonly.families.backoff import Backoff
from onceonly.families.kinesis import PASSING
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onceonly.families.kinesis import Stream
    from onceonly.ports import Clock

    Record: TypeAlias = dict[str, Any]

RECORDS_MAX = 500
"""Records of one call."""
CALL_BYTES_MAX = 5 << 20
"""Bytes of one call, keys among them; a larger record goes alone."""


class Records:
    """Records of one attempt that wait for a call, in their order."""

    def __init__(self, stream: Stream, clock: Clock | None = None) -> None:
        self._stream = stream
        self._clock: Clock = clock or time
        self._waiting: list[Record] = []
        self._bytes = 0

    def add(self, records: Iterable[tuple[str, bytes]]) -> None:
        """Take records by partition key and data; send as many as fill a call."""
        for key, data in records:
            size = size_of(key, data)
            if self._waiting and (len(self._waiting) == RECORDS_MAX or self._bytes + size > CALL_BYTES_MAX):
                self.send()
            self._waiting.append({"PartitionKey": key, "Data": data})
            self._bytes += size

    def send(self) -> None:
        """Send what waits, and again what was not taken, until all of it was. Raises a typed error.

        The service takes or leaves each record by itself, so one that is sent again stands behind those that followed
        it. The next call waits for this one: its records do not overtake these.
        """
        wait = Backoff(self._clock, self._stream.options.timeout_s)
        while self._waiting:
            answer = self._stream.ask("put_records", Records=self._waiting)
            told = answer["Records"]
            left = [each for each, found in zip(self._waiting, told, strict=True) if found.get("ErrorCode")]
            errors = [found for found in told if found.get("ErrorCode")]
            for found in errors:
                if found["ErrorCode"] not in PASSING:
                    raise self._stream.refusal(found["ErrorCode"], str(found.get("ErrorMessage", "")))
            if len(left) < len(self._waiting):
                wait.progress()
            self._waiting = left
            if left and not wait.again():
                first = errors[0]
                raise self._stream.unavailable(
                    f"{first['ErrorCode']}: {first.get('ErrorMessage', '')}, for {n(len(left), 'record')}"
                )
        self._bytes = 0


def size_of(key: str, data: bytes) -> int:
    """Return what a record counts, by the service's limits."""
    return len(key.encode()) + len(data)
