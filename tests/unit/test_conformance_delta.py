"""The conformance suite for the Delta sink, on tables in a folder."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable

from onceonly.sinks.delta import DeltaSink
from onceonly_proof.conformance import SinkConformance

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class DeltaSuite(SinkConformance):
    sink = DeltaSink
    every_pass = False

    def visible(self, options: Mapping[str, str]) -> list[dict[str, Any]]:
        table = DeltaTable(options["path"]).to_pyarrow_table()
        return table.select(self.batch([0]).schema.names).to_pylist()  # type: ignore[no-any-return]

    def orphans(self, options: Mapping[str, str]) -> list[str]:
        listed = {Path(uri) for uri in DeltaTable(options["path"]).file_uris()}
        return [
            str(path) for path in Path(options["path"], "onceonly").rglob("*.parquet") if path not in listed
        ]

    @contextmanager
    def unreachable(self, options: Mapping[str, str]) -> Iterator[None]:
        folder = Path(options["path"])
        aside = folder.rename(folder.with_name("aside"))
        yield
        aside.rename(folder)


class TestDelta(DeltaSuite):
    def options(self, folder: Path) -> dict[str, str]:
        schema = pa.schema([pa.field("key", pa.string(), nullable=False), ("value", pa.string())])
        DeltaTable.create(folder / "table", schema)
        return {"path": str(folder / "table")}

    def refusable(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([{"key": None, "value": text} for text in "ab"])


class TestDeltaInPartitions(DeltaSuite):
    """All of Spark's types that a table keeps, in a table that the sink makes itself."""

    outlives_processes = False  # its crashes are those of the other, and cost half a minute

    def options(self, folder: Path) -> dict[str, str]:
        return {"path": str(folder / "table"), "create": "true", "partitionBy": "day,shop"}

    def visible(self, options: Mapping[str, str]) -> list[dict[str, Any]]:
        return super().visible(options) if DeltaTable.is_deltatable(options["path"]) else []

    def orphans(self, options: Mapping[str, str]) -> list[str]:
        return super().orphans(options) if DeltaTable.is_deltatable(options["path"]) else []

    def batch(self, numbers: list[int]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist(
            [
                {
                    "n": number,
                    "day": date(2026, 11, 20 + number % 3),
                    "shop": None if number % 5 == 0 else f"a/b=c%d {number % 2}",
                    "price": Decimal(number) / 100,
                    "at": datetime(2026, 11, 21, 12, 0, 0, number % 1_000_000, tzinfo=UTC),
                    "tags": [f"t{number}", None] if number % 2 else None,
                    "more": {"x": float(number), "ok": bool(number % 2)},
                    "raw": bytes([number % 256]),
                }
                for number in numbers
            ],
            schema=pa.schema(
                [
                    ("n", pa.int64()), ("day", pa.date32()), ("shop", pa.string()), ("price", pa.decimal128(12, 2)),
                    ("at", pa.timestamp("us", "UTC")), ("tags", pa.list_(pa.string())),
                    ("more", pa.struct([("x", pa.float64()), ("ok", pa.bool_())])), ("raw", pa.binary()),
                ]
            ),
        )  # fmt: skip

    def columns(self) -> tuple[tuple[str, str], ...]:
        return (
            ("n", "bigint"), ("day", "date"), ("shop", "string"), ("price", "decimal(12,2)"), ("at", "timestamp"),
            ("tags", "array<string>"), ("more", "struct<x:double,ok:boolean>"), ("raw", "binary"),
        )  # fmt: skip
