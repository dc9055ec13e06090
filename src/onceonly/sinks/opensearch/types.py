"""How Spark's types become fields of an index: which takes every value of a column, and which is made for it. Pure.

A document that a field refuses is found when it is written, and then it is decided already. So a column goes only into
a field that takes all its values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_SCALAR = re.compile(r"[a-z_]+(?:\([^)]*\))?")
_WIDTHS = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
_INTEGERS = ("byte", "short", "integer", "long")
_REALS = {
    "half_float": {"tinyint", "smallint"},
    "float": {*_WIDTHS, "float"},
    "double": {*_WIDTHS, "float", "double", "decimal"},
    "scaled_float": {*_WIDTHS, "float", "double", "decimal"},
}
_TEXTS = ("text", "keyword", "match_only_text", "wildcard")
_TIMES = ("date", "date_nanos")
_TEXT = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}
KEYWORD_BYTES_MAX = 32_766
"""Lucene's longest term: a longer text in a keyword without ``ignore_above`` has its document refused."""
DELETED = {"properties": {"deleted": {"type": "boolean"}, "at": {"type": "date"}}}
"""The field ``onceonly`` of a deleted key."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A Spark type: a name, and what is inside an array or struct."""

    name: str
    inner: tuple[tuple[str, Kind], ...] = ()


def parse(text: str) -> Kind:
    """Read a Spark type as ``simpleString`` writes it; what cannot be read is a type by its own text."""
    kind, rest = _read(text)
    return kind if not rest else Kind(text)


def _read(text: str) -> tuple[Kind, str]:
    if text.startswith("array<"):
        inner, rest = _read(text.removeprefix("array<"))
        return Kind("array", (("", inner),)), rest.removeprefix(">")
    if text.startswith("struct<"):
        fields: list[tuple[str, Kind]] = []
        rest = text.removeprefix("struct<")
        while rest and not rest.startswith(">"):
            name, _, rest = rest.partition(":")
            inner, rest = _read(rest)
            fields.append((name, inner))
            rest = rest.removeprefix(",")
        return Kind("struct", tuple(fields)), rest.removeprefix(">")
    if text.startswith("map<"):
        depth, end = 1, len("map<")
        while depth and end < len(text):
            depth += {"<": 1, ">": -1}.get(text[end], 0)
            end += 1
        return Kind("map"), text[end:]
    found = _SCALAR.match(text)
    return (Kind(found[0]), text[found.end() :]) if found else (Kind(text), "")


def missing(columns: Iterable[tuple[str, str]], properties: Mapping[str, Any], who: str) -> dict[str, Any]:
    """Return the fields that an index lacks for these columns, as a mapping says it.

    Raises ``ConfigurationError`` that names the first column that its field may not take, or that has none.
    """
    wanted: dict[str, Any] = {}
    for name, text in columns:
        for path, kind, field in _leaves(name, parse(text), properties.get(name)):
            if field is None:
                continue
            why = _against(kind, field)
            if why:
                raise ConfigurationError(
                    f"The column {path} is {text if path == name else kind.name}, and its field in the index of {who} "
                    f"is {field.get('type', 'object')}: {why}.",
                    next_step="cast it in the query to a type that always fits, or write to an index whose field does",
                )
        lacking = _lacking(name, parse(text), properties.get(name), who)
        if lacking is not None:
            wanted[name] = lacking
    return wanted


def _leaves(path: str, kind: Kind, field: Mapping[str, Any] | None) -> Iterator[tuple[str, Kind, Any]]:
    while kind.name == "array":  # a field takes one value or many
        kind = kind.inner[0][1]
    if kind.name != "struct" or (field is not None and "properties" not in field and "type" in field):
        yield path, kind, field
        return
    inside = (field or {}).get("properties", {})
    for name, inner in kind.inner:
        yield from _leaves(f"{path}.{name}", inner, inside.get(name))


def _lacking(path: str, kind: Kind, field: Mapping[str, Any] | None, who: str) -> dict[str, Any] | None:
    """Return what a mapping must say of a column that it does not say; None where it says all."""
    while kind.name == "array":
        kind = kind.inner[0][1]
    if kind.name == "struct":
        inside = (field or {}).get("properties", {})
        found = {name: _lacking(f"{path}.{name}", inner, inside.get(name), who) for name, inner in kind.inner}
        wanted = {name: each for name, each in found.items() if each is not None}
        return {"properties": wanted} if wanted else None
    return None if field is not None else _field(path, kind, who)


def _field(path: str, kind: Kind, who: str) -> dict[str, Any]:
    """Return the field that is made for a column."""
    name = kind.name.partition("(")[0]
    if name in {"string", "char", "varchar"}:
        return _TEXT
    made = _WIDTHS.get(name) or {
        "boolean": "boolean", "float": "float", "double": "double", "decimal": "double", "date": "date",
        "timestamp": "date", "timestamp_ntz": "date", "binary": "binary",
    }.get(name)  # fmt: skip
    if made is None:
        raise ConfigurationError(
            f"The column {path} is {kind.name}, for which {who} knows no field.",
            next_step="leave it out, or cast it to a string or a struct in the query",
        )
    return {"type": made}


def _against(kind: Kind, field: Mapping[str, Any]) -> str:
    """Say why a field may refuse a value of a type; empty where it takes all."""
    name, held = kind.name.partition("(")[0], str(field.get("type", "object"))
    if held in _TEXTS:
        return "it is no single value" if name in {"struct", "map"} else ""
    if held in _INTEGERS and name in _WIDTHS:
        is_wide = _INTEGERS.index(held) >= _INTEGERS.index(_WIDTHS[name])
        return "" if is_wide else "larger numbers would be refused"
    if held in _REALS:
        is_taken = name in _REALS[held] and (name != "decimal" or field.get("coerce", True) is not False)
        return "" if is_taken else "larger numbers, or what is none, would be refused"
    if held in _TIMES:
        given = str(field.get("format", "strict_date_optional_time"))
        if name not in {"date", "timestamp", "timestamp_ntz"}:
            return "it takes times only"
        return "" if "date_optional_time" in given else f"its format is {given}, not that of ISO 8601"
    same = {"boolean": "boolean", "binary": "binary"}
    return "" if same.get(held) == name else "some values might not fit"


def limited(properties: Mapping[str, Any]) -> list[str]:
    """Name the fields that refuse texts beyond ``KEYWORD_BYTES_MAX``."""
    return [
        name
        for name, field in properties.items()
        if any(
            each.get("type") == "keyword"
            and "ignore_above" not in each
            and each.get("index", True) is not False
            for each in (field, *field.get("fields", {}).values())
        )
    ]
