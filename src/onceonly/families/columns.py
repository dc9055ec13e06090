"""Columns by Spark's names of their types (``simpleString``), read for the sinks that have to know them. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from onceonly.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

_FLAT = (
    r"boolean|tinyint|smallint|int|bigint|float|double|decimal\(\d+, ?\d+\)|string|string collate \w+"
    r"|char\(\d+\)|varchar\(\d+\)|date|timestamp|timestamp_ntz"
)
_OTHER = r"binary|void|variant|time\(\d\)|interval [a-z ]+|geometry\(.*\)|geography\(.*\)|udt"
_KNOWN = re.compile(f"{_FLAT}|{_OTHER}")
FLAT_TYPE = re.compile(_FLAT)
"""Plain types that files of every kind keep."""
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
_TEXT = re.compile(r"string|string collate \w+|(var)?char\(\d+\)")
_OPEN, _CLOSE = "<(", ">)"


class Type(NamedTuple):
    """A type of Spark's: ``base`` is struct, array, map, or the text of a plain type."""

    base: str
    parts: tuple[tuple[str, Type], ...] = ()

    @property
    def ddl(self) -> str:
        """Write the type so that Spark parses it, whatever the names of nested fields are."""
        if self.base == "struct":
            return "struct<" + ", ".join(f"{quote(name)}: {part.ddl}" for name, part in self.parts) + ">"
        if self.parts:
            return f"{self.base}<{', '.join(part.ddl for _, part in self.parts)}>"
        return self.base

    def walk(self) -> Iterator[Type]:
        """Yield this type and all in it."""
        yield self
        for _, part in self.parts:
            yield from part.walk()


def quote(name: str) -> str:
    """Quote a name for DDL."""
    return "`" + name.replace("`", "``") + "`"


def require_told_apart(names: Iterable[str], who: str) -> None:
    """See that no two columns have one name, where they are known by it. Raises ``ConfigurationError``."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ConfigurationError(
                f"Two columns of the query are named {name}, and {who} knows columns by their names.",
                next_step="drop or rename one of them; a join leaves both",
            )
        seen.add(name)


def names(text: str) -> tuple[str, ...]:
    """Read names separated by commas; backquotes around a name keep a comma in it. Raises ``ValueError``."""
    found, name, quoted = [], "", False
    for letter in text:
        if letter == "`":
            quoted = not quoted
        elif letter == "," and not quoted:
            found.append(name.strip())
            name = ""
        else:
            name += letter
    found.append(name.strip())
    # Columns are found whatever their case, and no two differ in it only.
    if quoted or (text.strip() and not all(found)) or len({each.lower() for each in found}) < len(found):
        raise ValueError(text)
    return tuple(found) if text.strip() else ()


def ddl(columns: Sequence[tuple[str, str]]) -> str:
    """Write columns as a schema that Spark parses."""
    return ", ".join(f"{quote(name)} {parse(kind).ddl}" for name, kind in columns)


def parse(text: str) -> Type:
    """Read a ``simpleString``. What is not known comes back as a plain type of that name."""
    for base in ("struct", "array", "map"):
        if text.startswith(f"{base}<") and text.endswith(">"):
            return Type(base, tuple(_parts(base, text[len(base) + 1 : -1])))
    return Type(text)


def arrow_of(kind: Type) -> pa.DataType | None:
    """Return Arrow's type as Spark hands it over; None for what Arrow has no plain type for."""
    import pyarrow as pa

    if kind.parts:
        parts = [(name, arrow_of(part)) for name, part in kind.parts]
        if any(part is None for _, part in parts):
            return None
        if kind.base == "struct":
            return pa.struct(parts)
        return pa.list_(parts[0][1]) if kind.base == "array" else pa.map_(parts[0][1], parts[1][1])
    decimal = _DECIMAL.fullmatch(kind.base)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if _TEXT.fullmatch(kind.base):
        return pa.string()
    plain = {
        "boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(),
        "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(), "binary": pa.binary(),
        "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
    }  # fmt: skip
    return plain.get(kind.base)


def _parts(base: str, body: str) -> Iterator[tuple[str, Type]]:
    if base == "array":
        yield "element", parse(body)
        return
    pieces = _split(body)
    if base == "map":
        yield from zip(("key", "value"), map(parse, pieces), strict=False)
        return
    piece = ""
    for more in pieces:
        # Names of fields are not quoted: one with a comma or a colon is told by what makes a type of the rest.
        piece = f"{piece},{more}" if piece else more
        colons = [match.start() for match in re.finditer(":", piece)]
        at = next((colon for colon in colons if _is_known(parse(piece[colon + 1 :]))), None)
        if at is not None:
            yield piece[:at], parse(piece[at + 1 :])
            piece = ""
    if piece:
        name, _, rest = piece.partition(":")
        yield name, parse(rest)


def _split(body: str) -> list[str]:
    depth, pieces = 0, [""]
    for letter in body:
        depth += (letter in _OPEN) - (letter in _CLOSE)
        if letter == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += letter
    return pieces if body else []


def _is_known(kind: Type) -> bool:
    if kind.base in {"struct", "array", "map"}:
        return bool(kind.parts) and all(_is_known(part) for _, part in kind.parts)
    return _KNOWN.fullmatch(kind.base) is not None


def find(name: str, names: Sequence[str]) -> str | None:
    """Find a column as Spark does by default: exactly, else the only one that differs in case."""
    if name in names:
        return name
    near = [each for each in names if each.lower() == name.lower()]
    return near[0] if len(near) == 1 else None
