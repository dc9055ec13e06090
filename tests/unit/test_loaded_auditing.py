"""Rows of a table's files are read back as they were written, whatever their types and partitions are."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.iceberg_bench import make_namespace, options_of
from tests.unit.loaded_bench import Bench

from onceonly.rows.checksum import RowChecksum
from onceonly.sinks.delta import DeltaSink
from onceonly.sinks.iceberg import IcebergSink

if TYPE_CHECKING:
    from pathlib import Path

ZONE = "America/New_York"
TYPES: dict[str, tuple[str, pa.DataType]] = {
    "whole": ("int", pa.int32()),
    "long": ("bigint", pa.int64()),
    "yes": ("boolean", pa.bool_()),
    "real": ("double", pa.float64()),
    "price": ("decimal(10,2)", pa.decimal128(10, 2)),
    "text": ("string", pa.string()),
    "raw": ("binary", pa.binary()),
    "day": ("date", pa.date32()),
    "at": ("timestamp", pa.timestamp("us", ZONE)),
    "local": ("timestamp_ntz", pa.timestamp("us")),
    "tags": ("array<string>", pa.list_(pa.string())),
    "parts": (
        "struct<a:int,b:struct<c:timestamp>>",
        pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.timestamp("us", ZONE))]))]),
    ),
    "named": ("map<string,double>", pa.map_(pa.string(), pa.float64())),
}
NOON = dt.datetime(2026, 3, 1, 12, 30, 0, 123456)  # noqa: DTZ001  of no zone
ROW: dict[str, Any] = {
    "whole": -7, "long": 1 << 60, "yes": True, "real": -0.0, "price": Decimal("-1.20"), "text": "äß \U0001f600",
    "raw": b"\x00\xff", "day": NOON.date(), "at": NOON.replace(tzinfo=dt.UTC), "local": NOON,
    "tags": ["a", None], "parts": {"a": 1, "b": {"c": NOON.replace(tzinfo=dt.UTC)}},
    "named": [("x", 1.5), ("y", None)],
}  # fmt: skip


def bench(kind: str, folder: Path, **options: str) -> Bench:
    columns = {name: spark for name, (spark, _) in TYPES.items()}
    if kind == "delta":
        return Bench(DeltaSink, kind, {"path": str(folder / "table"), "create": "true", **options}, columns)
    given = options_of(folder, create="true")
    make_namespace(given)
    return Bench(IcebergSink, kind, given | options, columns)


def rows() -> pa.RecordBatch:
    schema = pa.schema([pa.field(name, arrow) for name, (_, arrow) in TYPES.items()])
    return pa.RecordBatch.from_pylist(
        [ROW, dict.fromkeys(TYPES, None) | {"yes": False, "day": ROW["day"]}], schema
    )


@pytest.mark.parametrize(
    ("kind", "partition_by"),
    [
        ("delta", ""),
        ("delta", "day,yes"),
        ("delta", "price,whole,at,local,real"),
        ("iceberg", ""),
        ("iceberg", "day,yes"),
    ],
)
def test_rows_add_up_to_what_was_written(tmp_path: Path, kind: str, partition_by: str) -> None:
    made = bench(kind, tmp_path, **({"partitionBy": partition_by} if partition_by else {}))
    written = rows()
    handle = made.committed(written)
    total = RowChecksum()
    total.add(written)
    held = made.sink().read_back(made.query, [handle])
    assert held is not None
    assert (held.rows, held.wrong, held.unread, held.checksum) == (2, (), "", total.value)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_files_say_how_their_days_are_counted(tmp_path: Path, kind: str) -> None:
    """Spark 3 refuses a day before 1582 in a file of a table that does not say it, in Delta's tables, too."""
    bench(kind, tmp_path).committed(rows())
    found = [
        pq.read_metadata(path).metadata
        for path in tmp_path.rglob("*.parquet")
        if "_delta_log" not in path.parts
    ]
    assert [each.get(b"org.apache.spark.version") for each in found] == [b"3.0.0"]


def test_what_a_delta_table_keeps_as_one_is_said_not_to_be_compared(tmp_path: Path) -> None:
    made = bench("delta", tmp_path, partitionBy="text")
    held = made.sink().read_back(made.query, [made.committed(rows())])
    assert held is not None
    assert (held.rows, held.checksum) == (2, "")
    assert "may be null or empty" in held.unread


def test_rows_of_unknown_columns_are_counted(tmp_path: Path) -> None:
    made = bench("delta", tmp_path)
    handle = made.committed(rows())
    held = made.sink().read_back(replace(made.query, columns=()), [handle])
    assert held is not None
    assert (held.rows, held.checksum, held.unread) == (2, "", "the log has not noted its columns")
