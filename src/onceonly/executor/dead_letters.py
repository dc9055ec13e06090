"""Dead letters: the rows that a sink's target will never take, on their way to another sink. Executor; needs pyarrow.

They are written in a transaction of their own, begun with the first of them, and voted for beside their sink: one link
decides both. Without a refused row nothing is begun.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from onceonly import failpoints
from onceonly.errors import ConfigurationError, OnceonlyError, RecordRefusedError
from onceonly.executor import diverted
from onceonly.model import Guarantee, Handle, Mode, letters_name, letters_of
from onceonly.rows.arrow import is_plain
from onceonly.rows.checksum import RowChecksum
from onceonly.rows.json_rows import json_rows, values
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa

    from onceonly.executor.ballot import Ballot
    from onceonly.model import Plan
    from onceonly.ports import Refused, Sink, WriteContext

_TYPES = {
    "code": "string",
    "why": "string",
    "row": "string",
    "query": "string",
    "sink": "string",
    "epoch": "bigint",
    "slot": "int",
    "number": "bigint",
    "topic": "string",
    "partition": "int",
    "key": "binary",
    "value": "string",
}
"""Each column of a letter, and Spark's name for its type."""

DOC = "onceonly.refused=deadletter, which gives such rows to another sink and lets the query go on"


def columns_of(sink: Sink) -> tuple[tuple[str, str], ...]:
    """Return the columns that a sink gets of letters, by name and Spark's type. Raises ``ConfigurationError``."""
    try:
        return tuple((name, _TYPES[name]) for name in sink.letter_columns)
    except KeyError as error:
        raise ConfigurationError(
            f"the sink class {type(sink).__name__} wants {error} of a dead letter, which has none such",
            next_step=f"its letter_columns are some of {', '.join(_TYPES)}: a defect of the sink",
        ) from None


def refuse_same_target(name: str, letters: Sink, of: str, main: Sink, *, is_checked: bool = True) -> None:
    """See that letters do not get among the rows of a sink: that which refused them, or another one. Driver.

    Before the letters' own check, which may change their target, as well as after it, which may make that.
    """
    if not isinstance(letters, type(main)):
        return
    try:
        is_same = main.overlaps(letters.identity())
    except OnceonlyError:
        if is_checked:
            raise
        return  # what is wrong with it, its check says
    if is_same:
        raise ConfigurationError(
            f"the dead letters of sink {letters_of(name)} would get among "
            f"{'its rows' if letters_of(name) == of else f'the rows of sink {of}'}: both have the same target",
            next_step="give the letters a target of their own by onceonly.deadletter.option.…",
        )


class Letters:
    """The dead letters of one attempt at one slot. ``limit`` bounds those of an epoch.

    A slot that is beyond it alone writes no more of them, and counts on, so that the driver can say how many they are.
    ``slot`` is where those of diverted rows are voted for, None where they are of the attempt's own.
    """

    def __init__(
        self, sink: Sink, plan: Plan, context: WriteContext, *, limit: int, slot: int | None = None
    ) -> None:
        name = letters_name(context.sink)
        self.first = ""
        """What is wrong with the first of them, for people."""
        self.handle: Handle | None = None
        self.beyond = False
        """Whether there are more than an epoch may have: they are only counted then, and nothing may be decided."""
        self.checksum = RowChecksum()
        self.numbers: list[int] = []
        """Which rows of the slot they are; not of those that are only counted."""
        self.context = replace(
            context,
            sink=name,
            slot=context.slot if slot is None else slot,
            facts=plan.facts.get(name, {}),
            gives_back=False,
            early=False,
        )
        self._sink = sink
        self._plan = plan
        self._of = context
        self._diverted: bytes | None = None if slot is None else b""
        # What is repaired was decided already, by the limit of that time.
        self._limit = None if plan.mode is Mode.TENTATIVE else limit
        self._transaction: Any = None
        self._begun = False

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.checksum.rows

    def again(self, slot: int) -> Letters:
        """Return those of rows of this attempt that were diverted before, and were voted for in this slot."""
        return Letters(self._sink, self._plan, self._of, limit=0, slot=slot)

    def take(self, batch: pa.RecordBatch, refused: Sequence[Refused], numbers: Sequence[int]) -> None:
        """Write the refused rows of a batch; ``numbers`` say which rows of the slot these are.

        Raises ``RecordRefusedError`` where the letters' sink refuses one, too.
        """
        import pyarrow as pa

        self.first = self.first or f"row {numbers[0]} of slot {self._of.slot}: {refused[0].why}"
        rows = batch.take(pa.array([each.row for each in refused]))
        self.beyond = self.beyond or (self._limit is not None and self.rows + len(refused) > self._limit)
        if self.beyond:
            self.checksum.add(rows)
            return
        self.numbers += numbers
        if self._diverted is not None:
            self._diverted += diverted.told(rows)
        letters = self._letters(rows, refused, numbers).select(list(self._sink.letter_columns))
        try:
            if not self._begun:
                failpoints.hit("letters.before_begin")
                self._transaction = self._sink.begin_transaction(self.context)
                self._begun = True
            again = self._sink.write(self._transaction, letters)
        except RecordRefusedError as error:
            raise self._both(refused, error.what, error.next_step) from error
        if again:
            raise self._both(refused[again[0].row :], again[0].why, again[0].next_step)
        self.checksum.add(rows)

    def prepare(self) -> None:
        """Make them durable and invisible; nothing where there are none."""
        if not self._begun:
            return
        failpoints.hit("letters.before_prepare")
        try:
            self.handle = self._sink.pre_commit(self._transaction)
        except RecordRefusedError as error:
            raise self._both((), error.what, error.next_step) from error
        if self.handle is None and self.context.guarantee is not Guarantee.AT_LEAST_ONCE:
            raise ConfigurationError(
                f"Sink {self.context.sink} gave no handle for {n(self.rows, 'row')}, but promises "
                f"{self.context.guarantee}.",
                next_step="Let its pre_commit return a Handle: a defect of the sink.",
            )
        if self._diverted is not None:
            self.handle = diverted.marked(self.handle, self._diverted, self._of.slot)
        failpoints.hit("letters.after_prepare")

    def discard(self) -> None:
        """Drop them, best effort."""
        if self._begun:
            self._sink.discard(self._transaction)

    def _letters(
        self, rows: pa.RecordBatch, refused: Sequence[Refused], numbers: Sequence[int]
    ) -> pa.RecordBatch:
        import pyarrow as pa

        count, context = len(refused), self._of
        columns: dict[str, list[Any]] = {
            "code": [each.code for each in refused],
            "why": [each.why for each in refused],
            "row": json_rows(rows),
            "query": [context.query] * count,
            "sink": [context.sink] * count,
            "epoch": [context.epoch] * count,
            "slot": [context.slot] * count,
            "number": list(numbers),
            "topic": _texts(rows, "topic"),
            "partition": _numbers(rows, "partition"),
        }
        value = [
            msgspec.json.encode(
                {name: entry for name, entry in zip(columns, row, strict=True) if entry is not None}
            )
            for row in zip(*columns.values(), strict=True)
        ]
        columns |= {"key": _binaries(rows, "key"), "value": [text.decode() for text in value]}
        kinds = {"string": pa.string(), "bigint": pa.int64(), "int": pa.int32(), "binary": pa.binary()}
        return pa.record_batch({name: pa.array(columns[name], kinds[kind]) for name, kind in _TYPES.items()})

    def _both(self, refused: Sequence[Refused], why: str, next_step: str) -> RecordRefusedError:
        first = refused[0].why if refused else self.first
        return RecordRefusedError(
            f"Query {self._of.query}, chk-{self._of.epoch}, slot {self._of.slot}: sink {self._of.sink} refused "
            f"a row ({first}), and the sink of its dead letters refused the letter ({why}). Nothing of this epoch is "
            "decided",
            next_step=f"give the letters a target that takes them, such as files: {next_step}",
        )


def require_few(query: str, epoch: int, sink: str, ballots: Collection[Ballot], *, limit: int | None) -> None:
    """See that the slots together have not refused more rows than an epoch may have letters. Driver, once a decision.

    ``limit`` is None where any number may be. Raises ``RecordRefusedError``, which says how many there are.
    """
    some = [each for each in ballots if each.letters and each.letters.sink == letters_name(sink)]
    count = sum(each.letters.rows for each in some if each.letters)
    if any(each.beyond for each in some) or (some and limit is not None and count > limit):
        raise too_many(query, epoch, sink, count, limit, some[0].refused)


def too_many(
    query: str, epoch: int, sink: str, count: int, limit: int | None, first: str, *, or_more: bool = False
) -> RecordRefusedError:
    """Make the error for more refused rows than an epoch may have letters; with ``or_more``, nobody counted on."""
    least = "at least " if or_more else ""
    return RecordRefusedError(
        f"Query {query}, chk-{epoch}: sink {sink} refused {least}{n(count, 'row')} of this epoch, more than "
        f"onceonly.deadletter.limit, {limit}; the first: {first}. Nothing of it is decided",
        next_step="see why so many are refused; then mend rows or target, or start the query with "
        f"onceonly.deadletter.limit={count}{' or more' if or_more else ''}: the epoch runs anew, and once it is "
        "committed you may lower the limit again",
    )


def _texts(rows: pa.RecordBatch, name: str) -> list[str | None]:
    found = _column(rows, name)
    return [each if isinstance(each, str) else None for each in found]


def _numbers(rows: pa.RecordBatch, name: str) -> list[int | None]:
    found = _column(rows, name)
    return [each if isinstance(each, int) and abs(each) < 1 << 31 else None for each in found]


def _binaries(rows: pa.RecordBatch, name: str) -> list[bytes | None]:
    import pyarrow as pa

    index = rows.schema.get_field_index(name)
    if index >= 0 and is_plain(rows.column(index).type):
        # Texts go as they are, whatever bytes they have.
        return list(rows.column(index).cast(pa.large_binary()).to_pylist())
    return [None] * rows.num_rows


def _column(rows: pa.RecordBatch, name: str) -> Sequence[Any]:
    index = rows.schema.get_field_index(name)
    return [None] * rows.num_rows if index < 0 else values(rows.column(index))
