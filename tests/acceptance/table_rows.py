"""Rows of several types, some of which name partitions, for tests of other people's readers of tables."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

COLUMNS = {"id": "bigint", "day": "date", "shop": "string", "at": "timestamp", "price": "decimal(12,2)"}
SCHEMA = pa.schema(
    [
        ("id", pa.int64()), ("day", pa.date32()), ("shop", pa.string()), ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(12, 2)),
    ]
)  # fmt: skip
SHOPS = ["plain", "a/b", "50%", "ünï", "x=y", None]


def rows(*numbers: int) -> list[dict[str, Any]]:
    """Return rows of these numbers."""
    return [
        {
            "id": number,
            "day": date(2026, 11, 20 + number % 3),
            "shop": SHOPS[number % len(SHOPS)],
            "at": datetime(2026, 11, 21, 12, 0, 0, 123_456, tzinfo=UTC),
            "price": Decimal(number) / 100,
        }
        for number in numbers
    ]


def batch(*numbers: int) -> pa.RecordBatch:
    """Return them as a batch."""
    return pa.RecordBatch.from_pylist(rows(*numbers), SCHEMA)
