"""Rows in a table's own types. Executor; needs pyarrow.

Nobody looks into a data file when it is added to a table, and one value of another type breaks all its readers: so
every value is cast here, checked, and refused by name where the table's type does not hold it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.errors import RecordRefusedError, WriteFailedError
from onceonly.families.columns import find
from onceonly.families.readable import unreadable

if TYPE_CHECKING:
    import pyarrow as pa

_DIGITS_MAX = 38
_DIGITS_OF_LONG = 19


class MisfitError(ValueError):
    """A value that its column does not hold; the text says which and why."""


def fit(batch: pa.RecordBatch, schema: pa.Schema, *, who: str) -> pa.RecordBatch:
    """Return the rows with the schema's columns and types. Raises ``RecordRefusedError`` that names the column."""
    import pyarrow as pa

    columns = []
    for field in schema:
        name = find(field.name, batch.schema.names)
        if name is None:
            raise WriteFailedError(
                f"{who}: the rows have no column {field.name}, which the query had when it started",
                next_step="start the query again",
            )
        try:
            columns.append(_fit(_readable(batch.column(name)), field))
        except (MisfitError, pa.ArrowInvalid) as error:
            raise RecordRefusedError(
                f"{who}: a value does not fit into the column {field.name} ({field.type}) of the table: {error}",
                next_step="see to the values of this column, or let the table's column be wider; the rows stay in the "
                "source",
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _readable(array: pa.Array) -> pa.Array:
    """See that each value can be read: one that cannot breaks its file's readers, or the table's log."""
    for _, _, why in unreadable(array):
        raise MisfitError(f"it {why}")
    return array


def _fit(array: pa.Array, field: pa.Field) -> pa.Array:
    from pyarrow import types

    kind = field.type
    if not field.nullable and array.null_count:
        raise MisfitError(f"{field.name} is NOT NULL, and a row has null")
    if types.is_struct(kind):
        return _struct(array, kind)
    if types.is_map(kind):
        return _map(array, kind)
    if types.is_list(kind) or types.is_large_list(kind):
        return _list(array, kind)
    return array if array.type == kind else _plain(array, kind)


def _plain(array: pa.Array, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_integer(array.type) and pa.types.is_decimal(kind):
        # Arrow wants room for any value of the integer, and looks at none.
        digits = min(_DIGITS_OF_LONG + kind.scale, _DIGITS_MAX)
        array = array.cast(pa.int64()).cast(pa.decimal128(digits, kind.scale))
    return array.cast(kind)


def _struct(array: pa.Array, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    children = []
    for field in kind:
        place = array.type.get_field_index(field.name)
        if place < 0:
            children.append(pa.nulls(len(array), field.type))
            continue
        child = array.field(place)
        if not field.nullable and child.filter(array.is_valid()).null_count:
            raise MisfitError(f"{field.name} is NOT NULL, and a row has null")
        # What lies below a null of the struct is nobody's.
        children.append(_fit(child, field.with_nullable(nullable=True)))
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)


def _list(array: pa.Array, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    array = _whole(array)
    values = _fit(array.values, kind.value_field)
    make = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    offsets = _offsets(array)
    if pa.types.is_large_list(kind):
        offsets = offsets.cast(pa.int64())
    return make.from_arrays(offsets, values, type=kind)


def _map(array: pa.Array, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    array = _whole(array)
    keys, items = _fit(array.keys, kind.key_field), _fit(array.items, kind.item_field)
    return pa.MapArray.from_arrays(_offsets(array), keys, items, type=kind)


def _whole(array: pa.Array) -> pa.Array:
    """Copy, so that nothing lies before the first value, after the last, or below a null."""
    import pyarrow as pa

    return array.take(pa.array(range(len(array)), pa.int64()))


def _offsets(array: pa.Array) -> pa.Array:
    """Return where each list begins; null where there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    offsets = array.offsets
    if not array.null_count:
        return offsets
    there = pa.concat_arrays([array.is_valid(), pa.array([True])])
    return pc.if_else(there, offsets, pa.scalar(None, offsets.type))
