"""What Redis has of a row is read back as the values that were written, or is said not to be."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from onceonly.ports.standing import Held
from onceonly.rows.checksum import RowChecksum
from onceonly.sinks.redis import types
from onceonly.sinks.redis.reading_back import sum_of

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW = dt.datetime(2026, 11, 27, 16, 30, 0, 123456, tzinfo=dt.UTC)
VALUES: dict[str, pa.Array] = {
    "boolean": pa.array([True, False, None]),
    "tinyint": pa.array([-128, 127, None], pa.int8()),
    "bigint": pa.array([-(2**63), 2**63 - 1, None], pa.int64()),
    "float": pa.array([0.1, -0.0, float("inf"), None], pa.float32()),
    "double": pa.array([0.1, 5e-324, 1.7976931348623157e308, float("-inf"), None]),
    "decimal(38,7)": pa.array([Decimal("0.0000001"), Decimal("-12345678901.5"), None], pa.decimal128(38, 7)),
    "string": pa.array(["", "a\0b", "☃𝄞", None]),
    "varchar(3)": pa.array(["abc"]),
    "binary": pa.array([b"", b"\0\xff", None]),
    "date": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "timestamp": pa.array([NOW, dt.datetime(1, 1, 1, tzinfo=dt.UTC), None], pa.timestamp("us", "Asia/Tokyo")),
    "timestamp_ntz": pa.array([NOW.replace(tzinfo=None), None], pa.timestamp("us")),
}


def texts(column: pa.Array) -> list[Sequence[bytes | None]]:
    """Return rows as Redis has them."""
    held: list[Any] = types.texts(column).to_pylist()
    return [[each.encode() if isinstance(each, str) else each] for each in held]


def added(column: pa.Array) -> str:
    total = RowChecksum()
    total.add(pa.RecordBatch.from_arrays([column], ["c"]))
    return total.value


@pytest.mark.parametrize("spark", VALUES)
def test_values_are_read_back_as_they_were_written(spark: str) -> None:
    column = VALUES[spark]
    found = sum_of([("c", spark)])
    for row in texts(column):
        found.add([row])
    assert found.held() == Held(rows=len(column), checksum=added(column))


@pytest.mark.parametrize(
    ("spark", "text"),
    [("bigint", b"x"), ("tinyint", b"1000"), ("decimal(5,2)", b"1.505"), ("decimal(5,2)", b"much"),
     ("boolean", b"perhaps"), ("date", b"some day"), ("timestamp", b"now"), ("string", b"\xff")],
)  # fmt: skip
def test_a_text_that_no_value_is_written_as_was_changed(spark: str, text: bytes) -> None:
    found = sum_of([("c", spark)])
    found.add([[text]])
    found.add([[None]])
    held = found.held()
    assert (held.rows, held.checksum, held.unread) == (2, "", "")
    assert f"its c has a value that no {spark} is written as" in held.wrong[0]


def test_what_is_json_or_no_number_is_said_not_to_be_compared() -> None:
    found = sum_of([("c", "array<int>"), ("d", "int")])
    found.add([[b"[1]", b"1"]])
    assert found.held() == Held(rows=1, unread="its column c is kept as JSON")
    found = sum_of([("c", "double")])
    found.add(texts(pa.array([float("nan")])))
    assert "has NaN" in found.held().unread
