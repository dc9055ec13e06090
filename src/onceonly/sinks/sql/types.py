"""What Spark gives, what a table's column takes, and how the columns of a query meet those of a table. Pure.

A value is never made another one: a type that a column would round, cut or read anew is refused by name. What a column
takes of a type only in part (a number that is too large) is found row by row: ``refusals``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onceonly.durable.sealed import decoder
from onceonly.errors import ConfigurationError
from onceonly.families.columns import find, require_told_apart

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_SPARK = {
    "boolean": ("bool", 0), "tinyint": ("int", 8), "smallint": ("int", 16), "int": ("int", 32), "bigint": ("int", 64),
    "float": ("float", 32), "double": ("float", 64), "string": ("text", 0), "binary": ("binary", 0),
    "date": ("date", 0), "timestamp": ("instant", 0), "timestamp_ntz": ("local", 0),
}  # fmt: skip
_NAMES = {given: name for name, given in _SPARK.items()}
_MANTISSA = {32: 24, 64: 53}
SEQUENCES = ("int", "date", "instant", "local")
"""Kinds of which any two values say which is newer, as whole numbers."""


@dataclass(frozen=True, slots=True)
class Given:
    """A type of the query's. ``size`` are the bits of a number, or the digits of a decimal.

    ``kind`` is bool, int, float, decimal, text, binary, date, instant (a time with a zone), local (one without) or
    nested; or the name of a type that no column takes.
    """

    kind: str
    size: int = 0
    scale: int = 0

    def __str__(self) -> str:
        if self.kind == "decimal":
            return f"decimal({self.size},{self.scale})"
        return _NAMES.get((self.kind, self.size), self.kind)


def of_spark(name: str) -> Given:
    """Read a type's name as Spark writes it (``simpleString``)."""
    if match := _DECIMAL.fullmatch(name):
        return Given("decimal", int(match[1]), int(match[2]))
    if name.startswith(("array<", "map<", "struct<")):
        return Given("nested")
    if name.startswith(("varchar(", "char(", "string ")):
        return Given("text")
    return Given(*_SPARK.get(name, (name, 0)))


def of_arrow(kind: pa.DataType) -> Given:
    """Read a type of Arrow's, as rows come with it."""
    import pyarrow as pa

    types = pa.types
    if types.is_decimal(kind):
        return Given("decimal", kind.precision, kind.scale)
    if types.is_timestamp(kind):
        return Given("instant" if kind.tz else "local")
    if types.is_signed_integer(kind) or types.is_float32(kind) or types.is_float64(kind):
        return Given("int" if types.is_integer(kind) else "float", kind.bit_width)
    plain = {
        "bool": types.is_boolean, "text": lambda kind: types.is_string(kind) or types.is_large_string(kind),
        "binary": lambda kind: types.is_binary(kind) or types.is_large_binary(kind), "date": types.is_date32,
        "nested": types.is_nested,
    }  # fmt: skip
    return Given(next((name for name, is_it in plain.items() if is_it(kind)), str(kind)))


UUID: Final[dict[str, Any]] = {
    "takes": ("text",), "form": "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$", "alike": "[A-F]",
}  # fmt: skip
"""What a column of that type takes, as fields of a ``Column``: one in capitals is the same as in small letters."""


class Column(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A column of a table, as its dialect describes it.

    ``declared`` is its type as the server writes it, ``takes`` are the kinds that it holds as they are. What else it
    says narrows these: whole numbers from ``low`` to ``high``, or times by their microseconds, so many bits of a
    ``mantissa``, ``digits`` before the point and ``scale`` after it (of a second, too), a ``length`` in letters or
    bytes, ``octets`` of a text, texts of a ``form``.
    ``required`` takes no null, ``filled`` has a default, ``computed`` is written by nobody. ``doubt`` says why a value
    that fits may be refused all the same; of one that is ``indexed``, a long one may, and where texts are kept by a
    ``charset`` that does not have all letters, one with any beyond ASCII. A text in which ``alike`` is found may be one
    with another text. ``beneath`` is the type that its own narrows, as a domain does, where that may be known.
    """

    name: str
    declared: str
    takes: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None
    mantissa: int | None = None
    digits: int | None = None
    scale: int | None = None
    length: int | None = None
    octets: int | None = None
    form: str = ""
    no_nul: bool = False
    no_nan: bool = False
    no_infinity: bool = False
    required: bool = False
    filled: bool = False
    computed: bool = False
    doubt: str = ""
    indexed: bool = False
    charset: str = ""
    alike: str = ""
    beneath: str = ""

    def against(self, given: Given) -> str:
        """Say why it takes nothing of a type; empty where it takes all or a part of it."""
        if self.computed:
            return "the table computes it"
        if given.kind not in self.takes:
            return f"it takes no {given}"
        bits = _MANTISSA.get(given.size, 0) if given.kind == "float" else given.size - 1
        if self.mantissa is not None and given.kind in {"int", "float"} and bits > self.mantissa:
            return f"it would lose digits of a {given}"
        if given.kind == "decimal" and self.scale is not None and given.scale > self.scale:
            return f"it keeps {self.scale} digits after the point"
        return ""


def whole(digits: int | None) -> dict[str, int | None]:
    """Return the bounds of whole numbers with so many digits, as fields of a ``Column``."""
    return {} if digits is None else {"low": 1 - 10**digits, "high": 10**digits - 1}


def bits(count: int, *, signed: bool = True) -> dict[str, int | None]:
    """Return the bounds of whole numbers of so many bits, as fields of a ``Column``."""
    return {
        "low": -(2 ** (count - 1)) if signed else 0,
        "high": 2 ** (count - 1 if signed else count) - 1,
    }


class Table(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table, as its dialect describes it. ``keys`` are the sets of plain columns that are unique together.

    ``doubts`` are what could refuse a row whose values fit, and ``passing`` what could pass it over, or take it for
    another, without an error; ``wrong`` says why it can be no target. ``streams`` is
    false where rows cannot be loaded into it at once, as the user may not see all of it. ``id`` tells it from one that
    is made anew under its name; empty where nothing does. Of texts and bytes with more than ``large`` in a row, the
    server may refuse some whatever the columns take.
    """

    name: str
    columns: tuple[Column, ...]
    keys: tuple[tuple[str, ...], ...] = ()
    doubts: tuple[str, ...] = ()
    passing: tuple[str, ...] = ()
    wrong: str = ""
    streams: bool = True
    id: str = ""
    large: int = 1 << 27

    def dumps(self) -> str:
        """Return it as a text that travels to executors."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def loads(cls, text: str) -> Table:
        """Read what ``dumps`` gave."""
        return decoder(cls).decode(text)


@dataclass(frozen=True, slots=True)
class Fit:
    """A column of the query and the one of the table that takes it."""

    source: str
    given: Given
    column: Column


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """How the rows of a query become rows of a table. ``key``, ``op`` and ``sequence`` are columns of the query."""

    table: Table
    fits: tuple[Fit, ...]
    key: tuple[str, ...] = ()
    op: str = ""
    sequence: str = ""

    @property
    def keys(self) -> list[str]:
        """The key's columns, as the table names them."""
        return [fit.column.name for each in self.key for fit in self.fits if fit.source == each]

    @property
    def columns(self) -> list[str]:
        """The columns that are written, as the table names them."""
        return [fit.column.name for fit in self.fits]

    @property
    def indexed(self) -> list[str]:
        """The query's columns of which a long value may be refused."""
        return [
            fit.source for fit in self.fits if fit.column.indexed and fit.given.kind in {"text", "binary"}
        ]

    @property
    def lettered(self) -> list[str]:
        """The query's columns of which letters beyond ASCII may be refused."""
        return [fit.source for fit in self.fits if fit.column.charset and fit.given.kind == "text"]

    @property
    def alike(self) -> list[tuple[str, str]]:
        """The query's columns of the key of which two texts may be one to the table, and what such a text has."""
        return [
            (fit.source, fit.column.alike)
            for fit in self.fits
            if fit.source in self.key and fit.column.alike and fit.given.kind == "text"
        ]

    @property
    def doubts(self) -> list[str]:
        """What could refuse a row whose values fit: then an epoch is tried before it is decided."""
        found = [*self.table.doubts, *(fit.column.doubt for fit in self.fits if fit.column.doubt)]
        own = set(self.keys)
        found += [f"the unique columns {', '.join(key)}" for key in self.table.keys if set(key) != own]
        found += [
            f"the key {fit.source}, a {fit.given}"
            for fit in self.fits
            if fit.source in self.key and fit.given.kind == "float"
        ]
        return found


def match(
    columns: Iterable[tuple[str, Given]],
    table: Table,
    *,
    key: Sequence[str] = (),
    op: str = "",
    sequence: str = "",
) -> Match:
    """Match a query's columns with a table's, by name. Raises ``ConfigurationError`` that names what does not fit."""
    columns = list(columns)
    require_told_apart((name for name, _ in columns), table.name)
    given = dict(columns)
    if table.wrong:
        raise ConfigurationError(f"{table.name} {table.wrong}", next_step="name another table")
    _refuse_options(given, key, op, sequence)
    theirs = {column.name: column for column in table.columns}
    names, fits = list(theirs), []
    for name, kind in given.items():
        column = theirs.get(find(name, names) or "")
        if name == op or (column is None and name == sequence):
            continue
        if column is None:
            raise ConfigurationError(
                f"{table.name} has no column {name}",
                next_step=f"add it, or leave it out of the query (drop, select); it has {', '.join(theirs)}",
            )
        if why := column.against(kind):
            raise ConfigurationError(
                f"{table.name}: its column {column.name} is {column.declared}, the query's {name} is {kind}: {why}",
                next_step=_advice(kind, column),
            )
        fits.append(Fit(name, kind, column))
    _refuse_missing(table, fits)
    found = Match(table=table, fits=tuple(fits), key=tuple(key), op=op, sequence=sequence)
    _require_key(found)
    return found


def _refuse_options(given: Mapping[str, Given], key: Sequence[str], op: str, sequence: str) -> None:
    """See that the columns are there that options name, and are of use for that."""
    named = (
        [("key", name) for name in key] + [("op", op)] * bool(op) + [("sequence", sequence)] * bool(sequence)
    )
    for option, name in named:
        if name not in given:
            raise ConfigurationError(
                f"the option {option} names the column {name}, which the query does not have",
                next_step=f"it has {', '.join(given)}",
            )
    if op and given[op].kind != "text":
        raise ConfigurationError(
            f"the column {op}, which says what becomes of a row, is {given[op]}",
            next_step="cast it to string",
        )
    if sequence and given[sequence].kind not in SEQUENCES:
        raise ConfigurationError(
            f"the column {sequence}, which says what is newer, is {given[sequence]}",
            next_step="cast it to a whole number, a date or a time",
        )


def _refuse_missing(table: Table, fits: Sequence[Fit]) -> None:
    written = [fit.column.name for fit in fits]
    for column in table.columns:
        if written.count(column.name) > 1:
            raise ConfigurationError(
                f"two columns of the query would go into {column.name} of {table.name}",
                next_step="rename one",
            )
        if column.required and not (column.filled or column.computed) and column.name not in written:
            raise ConfigurationError(
                f"{table.name} takes no row without {column.name}, which the query does not have",
                next_step="give the column a default, or let it be null; or add it to the query",
            )


def _require_key(found: Match) -> None:
    """See that the table keeps the key unique: by nothing else can rows be replaced in one statement."""
    if found.key and not any(set(key) == set(found.keys) for key in found.table.keys):
        raise ConfigurationError(
            f"{found.table.name} has no primary key and no unique index of {', '.join(found.keys)} and nothing else",
            next_step="make one, of plain columns and for all rows, or name its columns as the key",
        )


def _advice(given: Given, column: Column) -> str:
    if given.kind == "instant" and "local" in column.takes:
        return "cast it to timestamp_ntz, which takes the session's zone; or let the column keep a zone"
    if given.kind == "local" and "instant" in column.takes:
        return "cast it to timestamp, which takes the session's zone; or let the column keep none"
    if given.kind == "nested":
        return "write its fields as columns, or to_json(…) into a text; or make the column json"
    return "cast it in the query (cast, round), or change the column"


def columns_of(schema: pa.Schema) -> list[tuple[str, Given]]:
    """Return the columns of rows as they come."""
    return [(field.name, of_arrow(field.type)) for field in schema]
