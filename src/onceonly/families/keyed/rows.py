"""Rows with keys: the text of a key, which row of a key stays, and which rows no target can take. Executor."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from onceonly.errors import RecordRefusedError
from onceonly.families.changes import DELETE, OPS, PASS_OVER
from onceonly.families.keyed.options import PREFIX
from onceonly.families.readable import unreadable
from onceonly.ports import Refused
from onceonly.rows.arrow import in_utc

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    import pyarrow as pa

    from onceonly.families.keyed.options import Columns

KEY, DELETED = f"{PREFIX}key", f"{PREFIX}deleted"
SEPARATOR = ":"
_ESCAPES = (("%", "%25"), (SEPARATOR, "%3A"))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRows:
    """Some rows of one attempt, none of their keys twice.

    ``keys`` are the texts of their keys, ``deleted`` says which of these are to be removed, and ``rows`` are the
    query's columns without that of ``op``.
    """

    keys: list[str]
    deleted: list[bool]
    rows: pa.RecordBatch

    @classmethod
    def none(cls) -> KeyedRows:
        """Return no rows."""
        import pyarrow as pa

        return cls(keys=[], deleted=[], rows=pa.RecordBatch.from_pydict({}))

    def without(self, places: Collection[int]) -> KeyedRows:
        """Return those at other places."""
        if not places:
            return self
        return self.taken([row for row in range(len(self.keys)) if row not in places])

    def taken(self, places: Sequence[int]) -> KeyedRows:
        """Return those at these places."""
        return KeyedRows(
            keys=[self.keys[row] for row in places],
            deleted=[self.deleted[row] for row in places],
            rows=_taken(self.rows, places),
        )

    def too_long(self, most: int, what: str) -> Iterator[Refused]:
        """Yield the rows whose key has more than ``most`` bytes; ``what`` is a key in the words of the target."""
        for row, key in enumerate(self.keys):
            if len(key) * 4 > most and len(key.encode()) > most:
                why = f"its key has {len(key.encode())} bytes, and {what} has at most {most}"
                yield Refused(row=row, code="KEY_TOO_LONG", why=why)

    @classmethod
    def read(cls, staged: pa.RecordBatch) -> KeyedRows:
        """Return those of a staged batch."""
        own = (KEY, DELETED)
        return cls(
            keys=staged.column(KEY).to_pylist(),
            deleted=staged.column(DELETED).to_pylist(),
            rows=staged.select([name for name in staged.schema.names if name not in own]),
        )

    def staged(self, *, keys_only: bool = False) -> pa.RecordBatch:
        """Return a batch that holds them, or only their keys."""
        import pyarrow as pa

        own = {KEY: pa.array(self.keys, pa.string()), DELETED: pa.array(self.deleted, pa.bool_())}
        if keys_only:
            return pa.RecordBatch.from_pydict({KEY: own[KEY]})
        fields = [pa.field(name, array.type) for name, array in own.items()]
        schema = pa.schema([*fields, *self.rows.schema])
        return pa.RecordBatch.from_arrays([*own.values(), *self.rows.columns], schema=schema)


def larger(rows: pa.RecordBatch, most: int, first: int = 0) -> Iterator[tuple[int, int]]:
    """Yield the rows with more than ``most`` bytes in Arrow, by their places from ``first`` on, and how many these are.

    By halves: to ask each row alone takes longer than to write it.
    """
    if rows.nbytes <= most or not rows.num_rows:
        return
    if rows.num_rows == 1:
        yield first, rows.nbytes
        return
    middle = rows.num_rows // 2
    yield from larger(rows.slice(0, middle), most, first)
    yield from larger(rows.slice(middle), most, first + middle)


@dataclass(frozen=True, slots=True)
class Newer:
    """A key that has a greater version than the one given."""

    key: str
    version: int


@dataclass(slots=True)
class Choice:
    """Chooses the rows of one attempt that go to the target.

    Where ``columns`` has a sequence, the greatest of each key is remembered: when a later batch has a greater one, its
    row is written behind the one that was written before.
    """

    columns: Columns
    _best: dict[str, Any] = field(default_factory=dict)

    def choose(
        self, batch: pa.RecordBatch, unfit: Callable[[KeyedRows], Iterable[Refused]]
    ) -> tuple[KeyedRows, list[int], list[Refused]]:
        """Return the rows of a batch that are written, their places in it, and those that no target can take.

        ``unfit`` names those that the sink's own target will not. Raises ``RecordRefusedError`` where the sequence does
        not decide.
        """
        wrong = _unreadable(batch)
        if not wrong:
            return self._choose(batch, unfit)
        places = [row for row in range(batch.num_rows) if row not in wrong]
        rows, chosen, told = self._choose(_taken(batch, places), unfit)
        told = [*wrong.values(), *(replace(each, row=places[each.row]) for each in told)]
        return rows, [places[row] for row in chosen], sorted(told, key=lambda each: each.row)

    def _choose(
        self, batch: pa.RecordBatch, unfit: Callable[[KeyedRows], Iterable[Refused]]
    ) -> tuple[KeyedRows, list[int], list[Refused]]:
        columns = self.columns
        keys = key_texts(batch, columns.key)
        ops = None if columns.op is None else [str(op).lower() for op in batch.column(columns.op).to_pylist()]
        # In UTC: of two times of one zone, Python compares what clocks show, which go back once a year.
        numbers = None if columns.sequence is None else in_utc(batch.column(columns.sequence)).to_pylist()
        refused = {each.row: each for each in _refused(columns, keys, ops, numbers)}
        rows = KeyedRows(
            keys=[key or "" for key in keys],
            deleted=[False] * len(keys) if ops is None else [OPS.get(op) == DELETE for op in ops],
            rows=batch if columns.op is None else batch.drop_columns([columns.op]),
        )
        places = [
            row
            for row in range(len(keys))
            if row not in refused and (ops is None or OPS.get(ops[row]) != PASS_OVER)
        ]
        fit = rows if len(places) == len(keys) else rows.taken(places)
        for each in unfit(fit):  # a row may be unfit for several reasons
            refused.setdefault(places[each.row], replace(each, row=places[each.row]))
        places = [row for row in places if row not in refused]
        if numbers is not None:
            places = self._latest(places, rows.keys, numbers)
        return (
            rows if len(places) == len(keys) else rows.taken(places),
            places,
            [refused[row] for row in sorted(refused)],
        )

    def _latest(self, fit: Sequence[int], keys: Sequence[str], numbers: Sequence[Any]) -> list[int]:
        """Return the rows that have the greatest sequence of their key until now."""
        chosen: dict[str, int] = {}
        for row in fit:
            key, number = keys[row], numbers[row]
            best = self._best.get(key)
            if best is not None and number == best:
                raise RecordRefusedError(
                    f"the key {key} is there twice in an epoch, both times with {self.columns.sequence} = {number}, so "
                    "that nothing says which row stays",
                    next_step="let sequence name a column that is different in all rows of a key, as an offset is",
                )
            if best is None or number > best:
                self._best[key] = number
                chosen[key] = row
        return sorted(chosen.values())


def _taken(batch: pa.RecordBatch, places: Sequence[int]) -> pa.RecordBatch:
    import pyarrow as pa

    return batch.take(pa.array(places, pa.int64()))


def _unreadable(batch: pa.RecordBatch) -> dict[int, Refused]:
    """Return the rows with a value that nobody could read, by their places."""
    return {
        row: Refused(row=row, code=code, why=f"its {name} {why}")
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        for row, code, why in unreadable(column)
    }


def key_texts(batch: pa.RecordBatch, names: Sequence[str]) -> list[str | None]:
    """Return the texts of the keys, None where a column of it is null. Anywhere; pure.

    Of several columns, the texts have colons between them; colons and percent signs inside are escaped as in addresses.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    # In UTC, as a key must not change with the session's zone.
    columns = [pc.cast(in_utc(batch.column(name)), pa.string()) for name in names]
    if len(columns) > 1:
        for sign, escape in _ESCAPES:
            columns = [pc.replace_substring(each, sign, escape) for each in columns]
        joined = pc.binary_join_element_wise(*columns, SEPARATOR)
    else:
        joined = columns[0]
    texts: list[str | None] = joined.to_pylist()
    return texts


def _refused(
    columns: Columns, keys: Sequence[str | None], ops: Sequence[str] | None, numbers: Sequence[Any] | None
) -> Iterator[Refused]:
    for row, key in enumerate(keys):
        if ops is not None and OPS.get(ops[row]) == PASS_OVER:
            continue
        if not key:
            yield Refused(
                row=row,
                code="NO_KEY",
                why=f"its key, {', '.join(columns.key)}, is {'null' if key is None else 'an empty text'}",
                next_step="filter such rows out, or give them a key",
            )
        elif ops is not None and ops[row] not in OPS:
            yield Refused(
                row=row,
                code="NO_OP",
                why=f"its {columns.op} is {ops[row]!r}, which neither puts nor deletes",
                next_step=f"let {columns.op} be one of {', '.join(OPS)}",
            )
        elif numbers is not None and numbers[row] is None:
            yield Refused(
                row=row,
                code="NO_SEQUENCE",
                why=f"its {columns.sequence} is null, so that nothing says whether it is the newest of its key",
                next_step="filter such rows out, or give them one",
            )
