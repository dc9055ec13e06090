"""The conformance suite for the Iceberg sink, on a table in a folder and a catalogue in a file."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError
from tests.unit import iceberg_bench

from onceonly.sinks.iceberg import IcebergSink
from onceonly_proof.conformance import SinkConformance

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class IcebergSuite(SinkConformance):
    sink = IcebergSink
    every_pass = False

    def visible(self, options: Mapping[str, str]) -> list[dict[str, Any]]:
        try:
            table = iceberg_bench.opened(options).scan().to_arrow()
        except NoSuchTableError:
            return []
        return table.select(self.batch([0]).schema.names).to_pylist()  # type: ignore[no-any-return]

    def orphans(self, options: Mapping[str, str]) -> list[str]:
        return [str(path) for path in iceberg_bench.there(options) - iceberg_bench.listed(options)]

    @contextmanager
    def unreachable(self, options: Mapping[str, str]) -> Iterator[None]:
        folder = Path(options["catalog.warehouse"].removeprefix("file://"))
        aside = folder.rename(folder.with_name("aside"))
        yield
        aside.rename(folder)


@pytest.mark.long
class TestIceberg(IcebergSuite):
    def options(self, folder: Path) -> dict[str, str]:
        options = iceberg_bench.options_of(folder)
        iceberg_bench.make_table(options, pa.schema([("key", pa.string()), ("value", pa.string())]))
        return options


class TestIcebergInPartitions(IcebergSuite):
    """All of Spark's types that a table keeps, by the values and the days of two columns."""

    outlives_processes = False  # its crashes are those of the other, and cost two minutes

    def options(self, folder: Path) -> dict[str, str]:
        options = iceberg_bench.options_of(folder)
        iceberg_bench.make_table(options, self.batch([0]).schema)
        with iceberg_bench.opened(options).update_spec() as spec:
            spec.add_field("shop", "identity")
            spec.add_field("at", "day")
        return options

    def batch(self, numbers: list[int]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist(
            [
                {
                    "n": number,
                    "day": date(2026, 11, 20 + number % 3),
                    "shop": None if number % 5 == 0 else f"a/b=c%d {number % 2}",
                    "price": Decimal(number) / 100,
                    "at": datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC) + timedelta(seconds=number % 3),
                    "tags": [f"t{number}", None] if number % 2 else None,
                    "more": {"x": float(number), "ok": bool(number % 2)},
                    "pairs": [("a", number)] if number % 2 else None,
                    "raw": bytes([number % 256]),
                }
                for number in numbers
            ],
            schema=pa.schema(
                [
                    ("n", pa.int64()), ("day", pa.date32()), ("shop", pa.string()), ("price", pa.decimal128(12, 2)),
                    ("at", pa.timestamp("us", "UTC")), ("tags", pa.list_(pa.string())),
                    ("more", pa.struct([("x", pa.float64()), ("ok", pa.bool_())])),
                    ("pairs", pa.map_(pa.string(), pa.int32())), ("raw", pa.binary()),
                ]
            ),
        )  # fmt: skip

    def columns(self) -> tuple[tuple[str, str], ...]:
        return (
            ("n", "bigint"), ("day", "date"), ("shop", "string"), ("price", "decimal(12,2)"), ("at", "timestamp"),
            ("tags", "array<string>"), ("more", "struct<x:double,ok:boolean>"), ("pairs", "map<string,int>"),
            ("raw", "binary"),
        )  # fmt: skip
