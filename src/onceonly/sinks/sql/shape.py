"""Rows as a table takes them: its names, its order, and JSON where it keeps that. Driver; needs pyarrow."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import math
from typing import TYPE_CHECKING, Any

import msgspec

from onceonly.errors import RecordRefusedError
from onceonly.families.changes import DELETE, PASS_OVER
from onceonly.families.readable import micros
from onceonly.rows.arrow import in_utc
from onceonly.sinks.sql.refusals import ops

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from onceonly.sinks.sql.types import Match

DELETED, SEQUENCE = "onceonly_deleted", "onceonly_sequence"
"""Columns beside the table's own: 1 for a deletion; what says how new a row is, as a whole number."""


def shaped(batch: pa.RecordBatch, match: Match) -> pa.RecordBatch:
    """Return rows by the table's names. What ``op`` passes over is gone, and of a deletion all but its key is null."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    deleted = left = None
    if match.op:
        told = ops(batch[match.op])
        batch = batch.filter(pa.array(told != PASS_OVER))
        deleted = pa.array(told[told != PASS_OVER] == DELETE)
        # Of a deletion nothing is read: nobody has looked whether it can be.
        left = pc.if_else(deleted, pa.scalar(None, pa.int64()), pa.array(np.arange(batch.num_rows)))
    columns: dict[str, pa.Array] = {}
    for fit in match.fits:
        array = batch[fit.source]
        if deleted is not None and fit.source not in match.key:
            array = array.take(left)
        if fit.given.kind == "nested":
            array = in_utc(array)
            array = pa.array([json_text(value, array.type) for value in array.to_pylist()], pa.string())
        columns[fit.column.name] = array
    if deleted is not None:
        columns[DELETED] = deleted.cast(pa.int16())
    if match.sequence:
        columns[SEQUENCE] = _numbers(batch[match.sequence])
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def nothing(match: Match) -> pa.RecordBatch:
    """Return no rows, shaped as rows would be."""
    import pyarrow as pa

    kinds = {
        "bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "binary": pa.binary(), "date": pa.date32(),
        "instant": pa.timestamp("us", "UTC"), "local": pa.timestamp("us"),
    }  # fmt: skip
    fields = []
    for fit in match.fits:
        is_decimal = fit.given.kind == "decimal"
        kind = (
            pa.decimal128(fit.given.size, fit.given.scale)
            if is_decimal
            else kinds.get(fit.given.kind, pa.string())
        )
        fields.append((fit.column.name, kind))
    fields += [(DELETED, pa.int16())] if match.op else []
    fields += [(SEQUENCE, pa.int64())] if match.sequence else []
    return pa.RecordBatch.from_pylist([], schema=pa.schema(fields))


def told_apart(batch: pa.RecordBatch, match: Match) -> pa.RecordBatch:
    """Return what tells rows apart, of those that are not passed over: copied, as a part holds all that was read."""
    import numpy as np
    import pyarrow as pa

    places = np.flatnonzero(ops(batch[match.op]) != PASS_OVER) if match.op else np.arange(batch.num_rows)
    names = [*match.key, *([match.sequence] if match.sequence else [])]
    return batch.select(list(dict.fromkeys(names))).take(pa.array(places))


def refuse_twice(some: Sequence[pa.RecordBatch], match: Match) -> None:
    """See that no row of an epoch leaves open which of two with one key is the newer one, by what tells them apart.

    Raises ``RecordRefusedError`` that names the key.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not some:
        return
    names = some[0].schema.names
    counted = pa.Table.from_batches(some).group_by(names).aggregate([([], "count_all")])
    several = counted.filter(pc.greater(counted["count_all"], 1))
    if several.num_rows == 0:
        return
    first = several.slice(0, 1).to_pylist()[0]
    raise twice(match, ", ".join(f"{name} {first[name]!r}" for name in names))


def twice(match: Match, shown: str) -> RecordRefusedError:
    """Make the error for a key, or a key with what says how new a row is, that an epoch has more than once."""
    return RecordRefusedError(
        f"{match.table.name}: several rows of this epoch have {shown}, and nothing says which is the newest",
        next_step="keep one row of a key (dropDuplicates, groupBy), or name by the option sequence a column that "
        "differs, such as a version or an offset: the greatest wins",
    )


def _numbers(array: pa.Array) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_timestamp(array.type):
        return micros(array)
    return (array.cast(pa.int32()) if pa.types.is_date32(array.type) else array).cast(pa.int64())


def json_text(value: Any, kind: pa.DataType) -> str | None:  # noqa: ANN401  any value of Spark's
    """Return a value as JSON, nulls too; what JSON has no word for as Spark's ``to_json`` writes it. Pure."""
    return None if value is None else msgspec.json.encode(_plain(value, kind)).decode()


def _plain(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401  as above
    import pyarrow as pa

    types = pa.types
    if value is None or isinstance(value, str):
        return value
    if types.is_map(kind):
        return {str(key): _plain(each, kind.item_type) for key, each in value}
    if types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if types.is_nested(kind):
        return [_plain(each, kind.value_type) for each in value]
    match value:
        case decimal.Decimal():
            return msgspec.Raw(format(value, "f").encode())
        case bytes():
            value = base64.b64encode(value).decode()
        case dt.date():  # and its subclass, a time
            value = value.isoformat()
        case float() if not math.isfinite(value):
            value = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
