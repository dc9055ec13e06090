"""How rows lie in the files of an Iceberg table: one partition a file, columns by the table's ids. Executor; pyiceberg.

The driver has a file's partition told by pyiceberg from the bounds in its footer: so a file has rows of one partition
only, and values whose bounds no footer has are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceonly.errors import RecordRefusedError
from onceonly.families.loaded import Layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema

KEY_BYTES_MAX = 2048
"""Longer bounds are left out of a parquet file's footer, from 4096 bytes on."""


class IcebergLayout(Layout):
    """Files of one partition each, by the table's own transforms."""

    def __init__(self, schema: Schema, spec: PartitionSpec) -> None:
        super().__init__(arrow_of(schema))
        self._fields = schema
        self._spec = spec

    def keys(self, rows: pa.RecordBatch) -> Mapping[str, pa.Array]:
        return {field.name: self._key(field, rows) for field in self._spec.fields}

    def _key(self, field: PartitionField, rows: pa.RecordBatch) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        source = self._fields.find_field(field.source_id)
        column = rows.column(source.name)
        if _is_text(column.type):
            longest = pc.max(pc.binary_length(column)).as_py() or 0
            if longest > KEY_BYTES_MAX:
                raise RecordRefusedError(
                    f"a value of the partition column {source.name} has {longest} bytes; {KEY_BYTES_MAX} is the most",
                    next_step="partition by something shorter; the rows stay in the source",
                )
        encoded = column.dictionary_encode()
        texts = [key_text(field, self._fields, value) for value in _plain(encoded.dictionary)]
        return pa.array(texts, pa.string()).take(encoded.indices)


def arrow_of(schema: Schema) -> pa.Schema:
    """Return a table's columns as Arrow's, with the table's ids. Driver and executor."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return schema_to_pyarrow(schema)


def key_text(field: PartitionField, schema: Schema, value: Any) -> str | None:  # noqa: ANN401  a column's value
    """Return the partition of a column's value, for people, as the table's transform has it; None for null. Pure."""
    source = schema.find_field(field.source_id)
    key = field.transform.transform(source.field_type)(value)
    return None if key is None else record_text(field, schema, key)


def record_text(field: PartitionField, schema: Schema, key: Any) -> str:  # noqa: ANN401  a transformed value
    """Return the value of a partition, for people. Pure."""
    return field.transform.to_human_string(schema.find_field(field.source_id).field_type, key)


def _plain(values: pa.Array) -> list[Any]:
    """Return values as a transform takes them: times and dates as numbers, which know no last year."""
    import pyarrow as pa

    if pa.types.is_timestamp(values.type):
        return values.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_date(values.type):
        return values.cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    return values.to_pylist()  # type: ignore[no-any-return]


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
