"""How Spark's types become fields of an index: which takes every value of a column, and which is made for it. Pure.

A document that a field refuses is found when it is written, and then it is decided already. So a column goes only into
a field that takes all its values.
"""

from __future__ import annotations

import base64
import datetime as dt
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError
from onceonly.families.columns import parse
from onceonly.families.readable import micros
from onceonly.ports import Refused
from onceonly.rows.arrow import in_utc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from onceonly.families.columns import Type

_WIDTHS = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
_INTEGERS = ("byte", "short", "integer", "long")
_REALS = {
    "half_float": {"tinyint", "smallint"},
    "float": {*_WIDTHS, "float"},
    "double": {*_WIDTHS, "float", "double", "decimal"},
    "scaled_float": {*_WIDTHS, "float", "double", "decimal"},
}
_KEYWORD, _NANOS = "keyword", "date_nanos"
_TEXTS = ("text", _KEYWORD, "match_only_text", "wildcard")
_TIMES = ("date", _NANOS)
_NANOS_MAX_MICROS = (2**63 - 1) // 1000
_TEXT = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}
KEYWORD_BYTES_MAX = 32_766
"""Lucene's longest term: a longer text in a keyword without ``ignore_above`` has its document refused."""
DELETED = {"properties": {"deleted": {"type": "boolean"}, "at": {"type": "date"}}}
"""The field ``onceonly`` of a deleted key."""


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
                    f"The column {path} is {text if path == name else kind.base}, and its field in the index of {who} "
                    f"is {field.get('type', 'object')}: {why}.",
                    next_step="cast it in the query to a type that always fits, or write to an index whose field does",
                )
        lacking = _lacking(name, parse(text), properties.get(name), who)
        if lacking is not None:
            wanted[name] = lacking
    return wanted


def _leaves(path: str, kind: Type, field: Mapping[str, Any] | None) -> Iterator[tuple[str, Type, Any]]:
    while kind.base == "array":  # a field takes one value or many
        kind = kind.parts[0][1]
    if kind.base != "struct" or (field is not None and "properties" not in field and "type" in field):
        yield path, kind, field
        return
    inside = (field or {}).get("properties", {})
    for name, inner in kind.parts:
        yield from _leaves(f"{path}.{name}", inner, inside.get(name))


def _lacking(path: str, kind: Type, field: Mapping[str, Any] | None, who: str) -> dict[str, Any] | None:
    """Return what a mapping must say of a column that it does not say; None where it says all."""
    while kind.base == "array":
        kind = kind.parts[0][1]
    if kind.base == "struct":
        inside = (field or {}).get("properties", {})
        found = {name: _lacking(f"{path}.{name}", inner, inside.get(name), who) for name, inner in kind.parts}
        wanted = {name: each for name, each in found.items() if each is not None}
        return {"properties": wanted} if wanted else None
    return None if field is not None else _field(path, kind, who)


def _field(path: str, kind: Type, who: str) -> dict[str, Any]:
    """Return the field that is made for a column."""
    name = kind.base.partition("(")[0]
    if name in {"string", "char", "varchar"}:
        return _TEXT
    made = _WIDTHS.get(name) or {
        "boolean": "boolean", "float": "float", "double": "double", "decimal": "double", "date": "date",
        "timestamp": "date", "timestamp_ntz": "date", "binary": "binary",
    }.get(name)  # fmt: skip
    if made is None:
        raise ConfigurationError(
            f"The column {path} is {kind.base}, for which {who} knows no field.",
            next_step="leave it out, or cast it to a string or a struct in the query",
        )
    return {"type": made}


def _against(kind: Type, field: Mapping[str, Any]) -> str:
    """Say why a field may refuse a value of a type; empty where it takes all."""
    name, held = kind.base.partition("(")[0], str(field.get("type", "object"))
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


def documents(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return what JSON is made of, a document for each row.

    Times are in UTC: by the zone of a session some are of no year of Python's, and JSON has no seconds in a zone, as
    those before 1900 have.
    """
    import pyarrow as pa

    columns = [in_utc(column) for column in rows.columns]
    found: list[dict[str, Any]] = pa.RecordBatch.from_arrays(columns, rows.schema.names).to_pylist()
    return found


def back(_name: str, kind: Type, arrow: pa.DataType, given: Sequence[Any]) -> pa.Array:
    """Return what documents have as a column of Spark's. Raises ``ValueError`` or ``TypeError`` for what none has."""
    import pyarrow as pa

    return pa.array([_back(kind, each) for each in given], arrow)


def _back(kind: Type, value: Any) -> Any:  # noqa: ANN401  JSON
    name = kind.base.partition("(")[0].partition(" ")[0]
    if value is None:
        return None
    wanted: type[Any] = _JSON.get(name, str)
    if type(value) is not wanted:
        message = f"{value!r} is no {wanted.__name__}"
        raise TypeError(message)
    if name == "array":
        return [_back(kind.parts[0][1], each) for each in value]
    if name == "struct":
        return {inner: _back(part, value.get(inner)) for inner, part in kind.parts}
    own = _OWN.get(name)
    return value if own is None else own(value)


_JSON: Mapping[str, type] = {
    "array": list, "struct": dict, "boolean": bool, "float": float, "double": float, **dict.fromkeys(_WIDTHS, int),
}  # fmt: skip
_OWN: Mapping[str, Callable[[str], Any]] = {
    "decimal": Decimal,
    "date": dt.date.fromisoformat,
    "timestamp": dt.datetime.fromisoformat,
    "timestamp_ntz": dt.datetime.fromisoformat,
    "binary": partial(base64.b64decode, validate=True),
}


def limits(columns: Iterable[tuple[str, str]], properties: Mapping[str, Any]) -> dict[str, str]:
    """Return, by the paths of columns, those types of their fields that refuse some of the values which they take."""
    return {
        path: limit
        for name, text in columns
        for path, _, field in _leaves(name, parse(text), properties.get(name))
        if field is not None and (limit := _limit(field))
    }


def _limit(field: Mapping[str, Any]) -> str:
    if field.get("type") == _NANOS:
        return _NANOS
    for each in (field, *field.get("fields", {}).values()):
        if each.get("type") == _KEYWORD and "ignore_above" not in each:
            is_kept = each.get("index", True) is not False or each.get("doc_values", True) is not False
            return _KEYWORD if is_kept else ""
    return ""


def gaps(name: str, column: pa.Array, limits: Mapping[str, str]) -> Iterator[Refused]:
    """Yield the rows with a value, also inside of others, that no document, or not this field, can hold."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    for path, values, rows in _parts(name, column, pa.array(range(len(column)), pa.int64())):
        for wrong, code, why, next_step in _wrong(values, limits.get(path, "")):
            for place in np.flatnonzero(pc.fill_null(wrong, False)).tolist():  # noqa: FBT003
                yield Refused(
                    row=rows[place].as_py(), code=code, why=f"its {path} {why}", next_step=next_step
                )


def _parts(path: str, column: pa.Array, rows: pa.Array) -> Iterator[tuple[str, pa.Array, pa.Array]]:
    """Yield what is in a column by its path, and of which row each value is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _parts(path, pc.list_flatten(column), rows.take(pc.list_parent_indices(column)))
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _parts(f"{path}.{field.name}", pc.struct_field(column, field.name), rows)
    else:
        yield path, column, rows


def _wrong(values: pa.Array, limit: str) -> Iterator[tuple[pa.Array, str, str, str]]:
    """Yield which values are wrong, with one word for it, what is wrong with them, and what helps."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if pa.types.is_floating(kind):
        why = "is a number that JSON has not: nan or infinite"
        yield pc.invert(pc.is_finite(values)), "NOT_FINITE", why, "make it null in the query"
    elif limit == _KEYWORD and (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        most = KEYWORD_BYTES_MAX if pa.types.is_string(kind) else KEYWORD_BYTES_MAX // 4 * 3  # it is base64
        why = f"has more than {most} bytes, the most that a keyword has"
        too_long = pc.greater(pc.binary_length(values), most)
        yield too_long, "TOO_LONG", why, "cut it, or give the field ignore_above"
    elif limit == _NANOS and (pa.types.is_timestamp(kind) or pa.types.is_date32(kind)):
        times = micros(values.cast(pa.timestamp("us")) if pa.types.is_date32(kind) else values)
        outside = pc.or_(pc.less(times, 0), pc.greater(times, _NANOS_MAX_MICROS))
        why = "is not between the years 1970 and 2262, which date_nanos has"
        yield outside, "OUT_OF_RANGE", why, "make it null in the query, or let the field be a date"
