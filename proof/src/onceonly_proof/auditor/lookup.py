"""Looking up what an audit needs again and again: the input of a value, the epoch of an input, what is due. Pure."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError
from onceonly_proof.auditor.anomalies import Anomaly

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onceonly_proof.auditor.world import Decision, Input, World

_EXAMPLES = 4
"""How many examples of each anomaly are kept, for people."""


def unknown_sink(name: str, known: Iterable[str]) -> ConfigurationError:
    """Make the error for rows or votes of a sink that nobody gave."""
    return ConfigurationError(
        f"there are rows of the sink {name!r}, and the audit was given {', '.join(map(repr, known)) or 'none'}",
        next_step="give every sink of the query under the name that its decisions use",
    )


class Findings:
    """Counts anomalies and keeps the first few of each as readable examples."""

    def __init__(self) -> None:
        self.counts: dict[Anomaly, int] = dict.fromkeys(Anomaly, 0)
        self._examples: dict[Anomaly, list[str]] = {anomaly: [] for anomaly in Anomaly}

    def add(self, anomaly: Anomaly, *what: object) -> None:
        """Count one; ``what`` is put together only if it is kept."""
        self.counts[anomaly] += 1
        if len(self._examples[anomaly]) < _EXAMPLES:
            self._examples[anomaly].append(f"{anomaly.value}: {' '.join(map(str, what))}")

    @property
    def examples(self) -> tuple[str, ...]:
        return tuple(example for kept in self._examples.values() for example in kept)


class Facts:
    """What went in and what was decided, indexed. Made once for a world."""

    def __init__(self, world: World) -> None:
        self.by_value: dict[bytes, Input] = {each.value: each for each in world.inputs}
        if not len(self.by_value) == len({each.id for each in world.inputs}) == len(world.inputs):
            raise ConfigurationError(
                "two inputs have the same value or id, so that a row cannot be told from a copy of it",
                next_step="put a number of its own into each input's value",
            )
        self.decisions: list[Decision] = sorted(world.decisions or (), key=lambda each: each.epoch)
        ranges = [each.ranges for each in self.decisions if each.is_commit]
        self.tells_epochs = world.decisions is not None and (not ranges or any(ranges))
        """Whether it is known of every input if it was decided: not without a log, nor without positions in it."""
        self._starts: dict[str, list[int]] = {}
        self._found: dict[str, list[tuple[int, int]]] = {}
        for index, decision in enumerate(self.decisions):
            for partition, (first, end) in decision.ranges.items():
                self._starts.setdefault(partition, []).append(first)
                self._found.setdefault(partition, []).append((end, index))
        self._epochs = {each.value: self._index_of(each) for each in world.inputs}
        self.due = self._due(world)

    def index_of(self, row: Input) -> int | None:
        """Return the place in ``decisions`` of the row's epoch, None where no barrier covers it."""
        return self._epochs[row.value]

    def where(self, row: Input) -> str:
        """Name an input for people."""
        index = self.index_of(row)
        epoch = f", {self.decisions[index].name}" if index is not None else ""
        return f"id {row.id} ({row.partition} at {row.position}{epoch})"

    def by_epoch(self, rows: Iterable[Input]) -> dict[int, set[int]]:
        """Return the ids of rows by their place in ``decisions``; rows without an epoch are left out."""
        found: dict[int, set[int]] = {}
        for row in rows:
            index = self._epochs[row.value]
            if index is not None:
                found.setdefault(index, set()).add(row.id)
        return found

    def _index_of(self, row: Input) -> int | None:
        starts = self._starts.get(row.partition)
        if starts is None:
            return None
        place = bisect_right(starts, row.position) - 1
        # An empty range begins where the next one does, and bisect_right takes the last of them.
        if place < 0:
            return None
        end, index = self._found[row.partition][place]
        return index if row.position < end else None

    def _due(self, world: World) -> list[Input]:
        if world.drained or not self.tells_epochs:
            return [row for row in world.inputs if not self._is_skipped(row)]
        ends: dict[str, int] = {}
        for decision in self.decisions:
            if decision.is_commit and decision.receipt:
                for partition, (_, end) in decision.ranges.items():
                    ends[partition] = max(end, ends.get(partition, 0))
        return [
            row
            for row in world.inputs
            if row.position < ends.get(row.partition, 0) and not self._is_skipped(row)
        ]

    def _is_skipped(self, row: Input) -> bool:
        index = self._epochs[row.value]
        return index is not None and self.decisions[index].is_skipped
