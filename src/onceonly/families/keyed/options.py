"""The options of every keyed sink, and whether a query's columns fit them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError
from onceonly.families import behind
from onceonly.options import Option, span, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEYS = re.compile(
    r"string|(?:var)?char\(\d+\)|tinyint|smallint|int|bigint|boolean|date|decimal\(.*\)|timestamp(?:_ntz)?"
)
_SEQUENCES = re.compile(r"string|tinyint|smallint|int|bigint|date|decimal\(.*\)|timestamp(?:_ntz)?")
_TEXTS = re.compile(r"string|(?:var)?char\(\d+\)")
PREFIX = "onceonly."
"""Columns of ours that rows carry while they are staged begin so."""


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise ValueError(text)
    return names


DECLARED = (
    Option(
        name="key",
        doc="the columns that name a row, separated by commas; a row replaces what its key had",
        required=True,
        read=_names,
        form="names of columns, separated by commas, none twice",
    ),
    Option(
        name="sequence",
        doc="the column whose greatest value decides between rows of one key in an epoch; without it, a key that is "
        "there twice stops the query",
    ),
    Option(
        name="op",
        doc="the column that says what becomes of a row: insert, update or delete, or a word of a change feed's; it is "
        "not written. Without it, every row is put",
    ),
    Option(
        name="tombstones",
        doc="how long a deleted key keeps its version, so that a writer who wakes up after it is refused",
        default="7 days",
        read=span,
    ),
    Option(
        name="threads",
        doc="how many slots of an epoch the driver applies at a time",
        default="2",
        read=whole,
        choices=range(1, 65),  # more would wait for the server only
    ),
    Option(name=behind.OPTION, doc=behind.DOC, default=behind.STOP, choices=(behind.STOP, behind.GO_ON)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which of a query's columns mean what."""

    key: tuple[str, ...]
    sequence: str | None = None
    op: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any], who: str) -> Columns:
        """Read them. Raises ``ConfigurationError`` where one has two meanings that exclude each other."""
        key, sequence, op = options["key"], options["sequence"], options["op"]
        twice = {op} & {*key, sequence} - {None}
        if twice:
            raise ConfigurationError(
                f"The option op of {who} is {op!r}, which is its key or sequence, too.",
                next_step="name a column of its own, or leave op out",
            )
        return cls(key=key, sequence=sequence, op=op)

    def check(self, columns: Mapping[str, str], who: str) -> None:
        """See that the query has them, with types that can mean it. Raises ``ConfigurationError``."""
        ours = next((name for name in columns if name.startswith(PREFIX)), None)
        if ours is not None:
            raise ConfigurationError(
                f"The column {ours} of {who} begins with {PREFIX}, as what it notes itself does.",
                next_step="rename it",
            )
        for option, name, fit, what in (
            *(("key", name, _KEYS, "a key") for name in self.key),
            ("sequence", self.sequence, _SEQUENCES, "a sequence"),
            ("op", self.op, _TEXTS, "an op"),
        ):
            if name is None:
                continue
            if name not in columns:
                raise ConfigurationError(
                    f"The option {option} of {who} is {name!r}, and the query has no such column: it has "
                    f"{', '.join(columns)}.",
                    next_step="name one of these, as it is spelled there",
                )
            if not fit.fullmatch(columns[name]):
                raise ConfigurationError(
                    f"The column {name} is {columns[name]}, which cannot be {what} of {who}: its values have no one "
                    "text or order.",
                    next_step=f"cast it in the query, as in df.withColumn({name!r}, col({name!r}).cast('string'))",
                )
