"""Which rows a query of the suite writes, and how rows are compared. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

Row: TypeAlias = tuple[Any, ...]

BATCHES, BATCH_ROWS = 2, 2
SLOT_ROWS = BATCHES * BATCH_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Rows by number, dealt to the slots of each epoch. With several slots, the last one is empty in odd epochs."""

    epochs: int = 2
    slots: int = 1

    def batches(self, epoch: int, slot: int) -> list[list[int]]:
        """Return the numbers of a slot's rows, a list for each batch."""
        if self.slots > 1 and slot == self.slots - 1 and epoch % 2:
            return []
        first = (epoch * self.slots + slot) * SLOT_ROWS
        return [
            list(range(first + batch * BATCH_ROWS, first + (batch + 1) * BATCH_ROWS))
            for batch in range(BATCHES)
        ]

    def numbers(self, epochs: Iterable[int] | None = None) -> list[int]:
        """Return the numbers of all rows of these epochs, of all epochs by default."""
        return [
            number
            for epoch in (range(self.epochs) if epochs is None else epochs)
            for slot in range(self.slots)
            for batch in self.batches(epoch, slot)
            for number in batch
        ]


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    """Return the rows of a batch as they are to be read: values in the order of the columns."""
    return [frozen(tuple(row.values())) for row in batch.to_pylist()]


def frozen(value: Any) -> Any:  # noqa: ANN401  any value of a row
    """Make a value comparable and countable: what is a list or a dict in it becomes a tuple."""
    if isinstance(value, Mapping):
        return tuple((key, frozen(each)) for key, each in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return tuple(frozen(each) for each in value)
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def read_rows(found: Iterable[Any]) -> Counter[Row]:
    """Count the rows that a reader gives: each a tuple (or a dict), values in the order of the columns."""
    return Counter(frozen(tuple(row.values()) if isinstance(row, Mapping) else tuple(row)) for row in found)


def difference(seen: Counter[Row], wanted: Counter[Row]) -> str:
    """Say in words how the rows seen differ from those wanted; empty where they do not."""
    parts = []
    missing, extra = wanted - seen, seen - wanted
    foreign = Counter({row: count for row, count in extra.items() if row not in wanted})
    twice = extra - foreign
    if missing:
        parts.append(f"{missing.total()} missing, e.g. {next(iter(missing))}")
    if twice:
        parts.append(f"{twice.total()} too often, e.g. {next(iter(twice))}")
    if foreign:
        parts.append(f"{foreign.total()} that must not be there, e.g. {next(iter(foreign))}")
    return "; ".join(parts)
