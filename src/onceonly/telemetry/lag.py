"""How far a query is behind its sources, by what Spark reports of each epoch. Pure.

Spark tells of Kafka where its epoch has ended and where the source ended when the epoch began; streams of RabbitMQ say
in their offsets how much more there was. Of other sources, whose offsets count no rows, nothing is said.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from onceonly.offsets import BEHIND_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_COUNTS_ROWS: Final = "KafkaV2"
_POINTS_MAX = 1000
"""Of a source that falls behind for more epochs than that, the seconds are a lower bound."""


@dataclass(frozen=True, slots=True)
class Position:
    """A source in one report: rows up to where the epoch has ended, and up to where the source ended."""

    read: int
    there: int


def positions(report: Mapping[str, Any]) -> dict[str, Position]:
    """Return where each source of a report stands, by its number in the query; those that count rows."""
    return {
        str(number): position
        for number, source in enumerate(report.get("sources") or ())
        if (position := _of_source(source)) is not None
    }


def _of_source(source: Mapping[str, Any]) -> Position | None:
    end = _value(source.get("endOffset"))
    if str(source.get("description") or "").startswith(_COUNTS_ROWS):
        return _position(end, source.get("latestOffset"))
    more = end.get(BEHIND_ROWS) if isinstance(end, dict) else None
    if not isinstance(more, dict):
        return None
    leaves = {name.removeprefix("/"): offset for name, offset in _leaves(end)}
    read = sum(leaves.get(name, 0) for name in more)
    return Position(read=read, there=read + sum(more.values()))


def _position(end: object, latest: object) -> Position | None:
    read, there = dict(_leaves(_value(end))), dict(_leaves(_value(latest)))
    if not there:
        return None
    # A partition that is new has nothing read of it yet; none is ahead of itself.
    return Position(
        read=sum(read.get(name, 0) for name in there),
        there=sum(max(offset, read.get(name, 0)) for name, offset in there.items()),
    )


def _value(offset: object) -> object:
    if not isinstance(offset, str):
        return offset
    try:
        return json.loads(offset)
    except ValueError:
        return None


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, int]]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _leaves(each, f"{path}/{name}")
    elif isinstance(value, int) and not isinstance(value, bool):
        yield path, value


class Lag:
    """The lag of one source over the reports of a run. One thread at a time.

    Its seconds are the age of the oldest row that was not read: since when the source has had more than was read, by
    the reports before, and in a straight line between two of them.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._points: deque[tuple[float, int]] = deque(maxlen=_POINTS_MAX)
        self._since: float | None = None

    def report(self, at: float, position: Position) -> None:
        """Take a report; ``at`` is when its epoch began, in seconds since 1970."""
        self.rows = position.there - position.read
        self._points.append((at, position.there))
        while len(self._points) > 1 and self._points[1][1] <= position.read:
            self._points.popleft()
        self._since = self._overtaken(position.read) if self.rows else None

    def seconds(self, now: float) -> float:
        """Return for how long the oldest unread row has been there."""
        return 0.0 if self._since is None else max(0.0, now - self._since)

    def _overtaken(self, read: int) -> float:
        """Say when the source ended where the query has come to; at the latest, where no report is as old."""
        at, there = self._points[0]
        if there > read or len(self._points) == 1:
            return at
        later, more = self._points[1]
        return at + (later - at) * (read - there) / (more - there)
