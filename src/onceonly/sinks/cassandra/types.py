"""Which type of a table takes a column of Spark's, how values become its own, and which values it has not. Pure.

A row that the table refuses would be found when it is written, and then it is decided already. So a column goes only
into a type that takes all its values, or whose gaps are found before; and a type that a repeated write would change is
refused.
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from onceonly.families.readable import micros
from onceonly.ports import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from onceonly.families.columns import Type

_INTEGERS = ("tinyint", "smallint", "int", "bigint", "varint")
_TAKEN = {
    **{name: set(_INTEGERS[place:]) for place, name in enumerate(_INTEGERS[:-1])},
    "float": {"float", "double"},
    "double": {"double"},
    "boolean": {"boolean"},
    "binary": {"blob"},
    "date": {"date"},
    "timestamp": {"timestamp"},
    "string": {"text", "varchar", "ascii", "uuid", "timeuuid"},
}
_DAYS = 2**31
"""The day 1970-01-01 as a date of Cassandra's."""
_MICROS = 1000
_EPOCH, _MILLI = dt.datetime(1970, 1, 1), dt.timedelta(milliseconds=1)  # noqa: DTZ001  the driver's have no zone
_TIME_BASED = 1
FROZEN = "frozen<"
KEY_BYTES_MAX = 65_535
"""The longest key; also of all its columns together."""


def against(kind: Type, cql: str) -> str:
    """Say why a type of a table may not take a column of Spark's; empty where it may."""
    return _against(kind, cql, is_inside=False)


def _against(kind: Type, cql: str, *, is_inside: bool) -> str:
    is_frozen, bare = is_inside or cql.startswith(FROZEN), _bare(cql)
    name, inner = _parts(bare)
    if name == "counter":
        return "a counter counts a repeated row again"
    if name == "list" and not is_frozen:
        return "a repeated row adds its elements again, as the list is not frozen"
    wanted = {"list": "array", "set": "array", "map": "map"}.get(name)
    if wanted is not None:
        if kind.base != wanted:
            return f"it takes {wanted}s only"
        whys = (
            _against(part, each, is_inside=True) for (_, part), each in zip(kind.parts, inner, strict=True)
        )
        return next((why for why in whys if why), "")
    base = kind.base.partition("(")[0].partition(" ")[0]
    base = "string" if base in {"char", "varchar"} else base
    if base == "decimal":
        is_whole = kind.base.rstrip(")").rpartition(",")[2].strip() == "0"
        is_taken = name == "decimal" or (name == "varint" and is_whole)
    else:
        is_taken = name in _TAKEN.get(base, ())
    if is_inside and (base == "timestamp" or name in {"uuid", "timeuuid", "ascii"}):
        return "values inside of others are not looked at one by one"
    return "" if is_taken else "some values would not fit, or not come back as they were"


def has_own_time(cql: str) -> bool:
    """Say whether a column of this type is written as one value, whose time can be asked for."""
    return cql.startswith(FROZEN) or "<" not in cql


def some(cql: str) -> str:
    """Return a value of a type that may stand in a key, as text of a statement."""
    return {
        "uuid": str(uuid.UUID(int=0)), "timeuuid": "00000000-0000-1000-8000-000000000000", "boolean": "false",
        "text": "'onceonly'", "varchar": "'onceonly'", "ascii": "'onceonly'", "date": "'1970-01-01'",
    }.get(cql, "0")  # fmt: skip


def values(column: pa.Array, cql: str) -> list[Any]:
    """Return the values of a column as the driver takes them for a type."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        return [None if each is None else each // _MICROS for each in micros(column).to_pylist()]
    if pa.types.is_date32(column.type):
        days = column.cast(pa.int32()).to_pylist()
        return [None if each is None else each + _DAYS for each in days]
    found: list[Any] = column.to_pylist()
    own = _own(column.type, _bare(cql))
    return found if own is None else [None if each is None else own(each) for each in found]


def _own(kind: pa.DataType, cql: str) -> Callable[[Any], Any] | None:
    """Return what makes a value of a type one that the driver takes; None where it is one."""
    import pyarrow as pa

    name, inner = _parts(cql)
    if name in {"uuid", "timeuuid"}:
        return uuid.UUID
    if name == "varint" and pa.types.is_decimal(kind):
        return int
    if name == "map":
        return partial(_dict, _own(kind.item_type, _bare(inner[1])) or _same)
    if name in {"list", "set"}:
        each = _own(kind.value_type, _bare(inner[0]))
        if each is not None:
            return partial(_list, each)
        return _distinct if name == "set" else None
    return None


def _dict(own: Callable[[Any], Any], pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    return {key: own(value) for key, value in pairs}


def _list(own: Callable[[Any], Any], items: list[Any]) -> list[Any]:
    return [own(item) for item in items]


def _distinct(items: list[Any]) -> list[Any]:
    return list(dict.fromkeys(items))


def _same(value: Any) -> Any:  # noqa: ANN401  a value of a row
    return value


def kept(cql: str) -> str:
    """Say in what other form than it was written a type keeps a column; empty where it is read back as it was."""
    others = sorted({name for name in ("map", "set") if re.search(rf"\b{name}<", cql)})
    return f"is a {others[0]}, which does not keep the order of what is in it" if others else ""


def back(_name: str, kind: Type, arrow: pa.DataType, given: Sequence[Any]) -> pa.Array:
    """Return values of the driver's as a column of Spark's. Raises ``ValueError`` for what none is written as."""
    import pyarrow as pa

    return pa.array([None if each is None else _back(kind, each) for each in given], arrow)


def _back(kind: Type, value: Any) -> Any:  # noqa: ANN401  a value of a row
    if kind.base == "array":
        [(_, inner)] = kind.parts
        return [_back(inner, each) for each in value]
    if isinstance(value, dt.datetime):
        # The driver has made it of a float.
        moment = _EPOCH + round((value - _EPOCH) / _MILLI) * _MILLI
        return moment.replace(tzinfo=dt.UTC)
    if hasattr(value, "days_from_epoch"):
        return value.date()
    if isinstance(value, uuid.UUID):
        return str(value)
    return Decimal(value) if kind.base.startswith("decimal") else value


def gaps(name: str, column: pa.Array, cql: str) -> Iterator[Refused]:
    """Yield the rows with a value that a type has not."""
    import pyarrow as pa

    bare = _bare(cql)
    if pa.types.is_timestamp(column.type):
        why = f"its {name} has microseconds, and timestamps of Cassandra have milliseconds"
        cut = f"cut them off in the query: date_trunc('millisecond', {name})"
        for row, each in enumerate(micros(column).to_pylist()):
            if each is not None and each % _MICROS:
                yield Refused(row=row, code="TOO_FINE", why=why, next_step=cut)
        return
    wrong = _WRONG.get(_parts(bare)[0])
    if wrong is None:
        return
    test, code, why, next_step = wrong
    for row, value in enumerate(column.to_pylist()):
        if value is not None and test(value):
            yield Refused(row=row, code=code, why=f"its {name} {why}", next_step=next_step)


def _is_no_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) != text
    except ValueError:
        return True


def _is_no_time_uuid(text: str) -> bool:
    return _is_no_uuid(text) or uuid.UUID(text).version != _TIME_BASED


def _has_null(value: Any) -> bool:  # noqa: ANN401  a value of a row
    if isinstance(value, list | tuple):
        return any(map(_has_null, value))
    return value is None


_SPELLED = "write it as Cassandra does: 32 hexadecimal digits in small letters, with four hyphens"
_NO_NULL = "leave the nulls out in the query, as in filter(tags, x -> x is not null)"
_NULL = (_has_null, "NULL_INSIDE", "has a null inside, which collections of Cassandra have not", _NO_NULL)
_WRONG: dict[str, tuple[Callable[[Any], bool], str, str, str]] = {
    "ascii": (
        lambda text: not text.isascii(),
        "NOT_ASCII",
        "has letters beyond ASCII",
        "let its type be text",
    ),
    "uuid": (_is_no_uuid, "NO_UUID", "is no UUID", _SPELLED),
    "timeuuid": (_is_no_time_uuid, "NO_UUID", "is no UUID of version 1", _SPELLED),
    "list": _NULL,
    "set": _NULL,
    "map": _NULL,
}


def _bare(cql: str) -> str:
    return cql.removeprefix(FROZEN)[:-1] if cql.startswith(FROZEN) else cql


def _parts(cql: str) -> tuple[str, list[str]]:
    """Return the name of a type, and the types inside it."""
    name, _, body = cql.partition("<")
    depth, inner = 0, [""]
    for letter in body[:-1]:
        depth += (letter == "<") - (letter == ">")
        if letter == "," and depth == 0:
            inner.append("")
        else:
            inner[-1] += letter
    return name, [each.strip() for each in inner]
