"""Barriers as Spark writes them, cut into partitions. Pure; knows no source in particular.

A source's offset is one JSON text: ``{"events":{"0":123,"1":45}}``, ``{"logOffset":3}``, ``17``. Whatever it is,
each leaf is one partition, named by the way to it. Sources of ours say in their offsets how far they were behind, by
the names of partitions.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.offsets import BEHIND_MS, BEHIND_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition of one source between two barriers; ``end`` is the barrier. None where it has no such offset.

    ``latest`` is how far the source was when the epoch ended, by Spark's report; ``told`` how many rows more there
    were, by the source's own word. ``behind_ms`` is by how much the place where the epoch begins to read was older
    than the newest record, when it was planned; None where the source does not say.
    """

    partition: str
    start: Any = None
    end: Any = None
    latest: Any = None
    told: int | None = None
    behind_ms: int | None = None

    @property
    def span(self) -> int | None:
        """The difference of two numbers; None where they are none."""
        if _is_number(self.start) and _is_number(self.end):
            return int(self.end) - int(self.start)
        return None

    @property
    def behind(self) -> int | None:
        """How much was still to be read then; None where offsets are no numbers, or the source did not say."""
        if _is_number(self.latest) and _is_number(self.end):
            return max(0, int(self.latest) - int(self.end))
        return self.told

    @property
    def lag(self) -> str:
        """How far it was behind, for people: in rows, or in the time of its records; empty where nobody says."""
        if self.behind_ms is not None:
            return f"{self.behind_ms} ms"
        return "" if self.behind is None else str(self.behind)


def partitions(start: str | None, end: str, latest: str | None = None) -> list[Partition]:
    """Put the barrier of a source beside the barrier before it, and beside how far the source was."""
    (before, _), (after, told), (now, _) = (_read(each) for each in (start, end, latest))
    order = list(after) + [name for name in before if name not in after]
    rows, ms = told.get(BEHIND_ROWS, {}), told.get(BEHIND_MS, {})
    return [
        Partition(
            partition=name,
            start=before.get(name),
            end=after.get(name),
            latest=now.get(name),
            told=rows.get(name),
            behind_ms=ms.get(name),
        )
        for name in order
    ]


def sources(starts: Sequence[str], ends: Sequence[str], latest: Sequence[str] = ()) -> list[list[Partition]]:
    """Put two barriers beside each other, source by source. A first epoch has no start."""

    def at(found: Sequence[str], number: int) -> str | None:
        return found[number] if number < len(found) else None

    return [partitions(at(starts, number), end, at(latest, number)) for number, end in enumerate(ends)]


def _read(text: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the leaves of an offset, and what it says of how far it is behind."""
    value, told = _parse(text or ""), {}
    if isinstance(value, dict):
        told = {name: value.pop(name) for name in (BEHIND_ROWS, BEHIND_MS) if name in value}
    return dict(_leaves(value)), told


def _parse(text: str) -> Any:  # noqa: ANN401  any JSON
    if not text or text == "-":  # Spark's sign for a source that had nothing
        return {}
    try:
        return json.loads(text)
    except ValueError:
        return text


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    if isinstance(value, dict):
        for name in sorted(value, key=_natural):
            yield from _leaves(value[name], (*path, str(name)))
    else:
        yield "/".join(path), value


def _natural(name: str) -> tuple[int, int, str]:
    """Sort 10 after 9."""
    return (0, int(name), "") if name.isdecimal() else (1, 0, name)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
