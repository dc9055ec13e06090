"""Which columns a format can write, by Spark's names of types (``simpleString``). Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from onceonly.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FLAT = (
    r"boolean|tinyint|smallint|int|bigint|float|double|decimal\(\d+, ?\d+\)|string|string collate \w+"
    r"|char\(\d+\)|varchar\(\d+\)|date|timestamp|timestamp_ntz"
)
_OTHER = r"binary|void|variant|time\(\d\)|interval [a-z ]+|geometry\(.*\)|geography\(.*\)|udt"
_KNOWN = re.compile(f"{_FLAT}|{_OTHER}")
_FLAT_TYPE = re.compile(_FLAT)
_PARTITION_TYPE = re.compile(
    r"boolean|tinyint|smallint|int|bigint|float|double|decimal\(\d+, ?\d+\)|string|char\(\d+\)|varchar\(\d+\)"
    r"|date|timestamp|timestamp_ntz"
)
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


def ddl(columns: Sequence[tuple[str, str]]) -> str:
    """Write columns as a schema that Spark parses."""
    return ", ".join(f"{quote(name)} {parse(kind).ddl}" for name, kind in columns)


def parse(text: str) -> Type:
    """Read a ``simpleString``. What is not known comes back as a plain type of that name."""
    for base in ("struct", "array", "map"):
        if text.startswith(f"{base}<") and text.endswith(">"):
            return Type(base, tuple(_parts(base, text[len(base) + 1 : -1])))
    return Type(text)


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


def check(columns: Sequence[tuple[str, str]], *, form: str, partition_by: Sequence[str]) -> None:
    """Refuse columns that the format cannot write. Raises ``ConfigurationError`` that names column and type."""
    if not columns:
        return  # not known here
    names = [name for name, _ in columns]
    _check_names(names)
    partitions = [_partition_column(name, columns) for name in partition_by]
    data = [(name, parse(kind)) for name, kind in columns if name not in partitions]
    if not data:
        raise ConfigurationError(
            f"All columns ({', '.join(names)}) are in partitionBy, so nothing is left to write into the files.",
            next_step="leave one of them out of partitionBy",
        )
    if form == "text":
        _check_text(data)
    for name, kind in data:
        wrong = next((each for each in kind.walk() if not _writes(form, each)), None)
        if wrong is not None:
            inside = "" if wrong == kind else f", which has {wrong.ddl} in it"
            raise ConfigurationError(
                f"The column {name} is of type {kind.ddl}{inside}, and {form} files cannot hold that.",
                next_step="cast or drop it, for example by to_json or cast('string'), or take another format",
            )


def _check_names(names: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        twin = seen.setdefault(name.lower(), name)
        if twin is not name:
            raise ConfigurationError(
                f"Two columns are named {twin} and {name}: readers of files do not tell them apart.",
                next_step="rename one of them",
            )


def _partition_column(name: str, columns: Sequence[tuple[str, str]]) -> str:
    names = [each for each, _ in columns]
    found = find(name, names)
    if found is None:
        raise ConfigurationError(
            f"The column {name} of partitionBy is not among the columns {', '.join(names)}.",
            next_step="correct partitionBy",
        )
    kind = dict(columns)[found]
    if not _PARTITION_TYPE.fullmatch(kind):
        raise ConfigurationError(
            f"The column {found} is of type {kind}, and no folder can be named by that.",
            next_step="partition by a column of a plain type, or cast it to string",
        )
    if found.startswith("."):
        raise ConfigurationError(
            f"The column {found} of partitionBy begins with a dot, and Spark does not read such folders.",
            next_step="rename it",
        )
    return found


def _check_text(data: Sequence[tuple[str, Type]]) -> None:
    if len(data) != 1 or not re.fullmatch(r"string( collate \w+)?|(var)?char\(\d+\)", data[0][1].base):
        shown = ", ".join(f"{name} {kind.ddl}" for name, kind in data)
        raise ConfigurationError(
            f"Text files hold exactly one string column besides the partition columns, not {shown}.",
            next_step="select one, for example by to_json(struct('*')), or take another format",
        )


def _writes(form: str, kind: Type) -> bool:
    if form == "orc" and kind.base == "timestamp_ntz":
        return False  # Spark writes it as times of a zone with a note beside; pyarrow writes no such note
    if _FLAT_TYPE.fullmatch(kind.base):
        return True
    if form not in {"parquet", "orc", "json"}:
        return False
    if kind.base == "map" and form == "json":
        # A key in JSON is a string, and Spark reads no other.
        return _FLAT_TYPE.fullmatch(kind.parts[0][1].base) is not None and kind.parts[0][1].base.startswith(
            "string"
        )
    # A struct without fields is a group without columns, which parquet does not have.
    return kind.base == "binary" or bool(kind.parts)
