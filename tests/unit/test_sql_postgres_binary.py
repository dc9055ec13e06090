"""The binary form of COPY, byte by byte."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from onceonly.sinks.sql.dialects.postgres_binary import binary, kinds_of
from onceonly.sinks.sql.types import Column, Fit, Given, Match, Table


def read(data: bytes) -> list[list[bytes | None]]:
    """Read rows as the documentation of COPY says."""
    rows, at = [], 0
    while at < len(data):
        (count,) = struct.unpack_from(">h", data, at)
        at += 2
        row: list[bytes | None] = []
        for _ in range(count):
            (length,) = struct.unpack_from(">i", data, at)
            at += 4
            row.append(None if length < 0 else data[at : at + length])
            at += max(length, 0)
        rows.append(row)
    return rows


def test_each_row_has_its_columns_in_their_order_nulls_by_their_length() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "a": pa.array([1, 2, 3], pa.int32()),
            "b": pa.array(["x", None, ""]),
            "c": pa.array([None, 1.5, -0.0]),
            "d": pa.array([True, False, True]),
            "e": pa.array([0, None, 10_958], pa.int32()).cast(pa.date32()),
        }
    )
    found = read(bytes(binary(batch, ["bigint", "text", "double precision", "boolean", "date"])))
    assert found == [
        [struct.pack(">q", 1), b"x", None, b"\1", struct.pack(">i", -10_957)],
        [struct.pack(">q", 2), None, struct.pack(">d", 1.5), b"\0", None],
        [struct.pack(">q", 3), b"", struct.pack(">d", -0.0), b"\1", struct.pack(">i", 1)],
    ]
    assert read(
        bytes(binary(batch.slice(1, 1), ["bigint", "text", "double precision", "boolean", "date"]))
    ) == [found[1]]
    assert bytes(binary(batch.slice(3), ["bigint", "text", "double precision", "boolean", "date"])) == b""


def test_of_all_nan_only_the_servers_own_is_written() -> None:
    odd = pa.array([0xFFF8 << 48, (0x7FF8 << 48) + 1, 0x7FF0 << 48], pa.uint64()).view(pa.float64())
    assert read(bytes(binary(pa.RecordBatch.from_arrays([odd], ["a"]), ["double precision"]))) == [
        [struct.pack(">Q", 0x7FF8 << 48)], [struct.pack(">Q", 0x7FF8 << 48)], [struct.pack(">d", float("inf"))]
    ]  # fmt: skip
    odd = pa.array([0xFFC0 << 16, None], pa.uint32()).view(pa.float32())
    assert read(bytes(binary(pa.RecordBatch.from_arrays([odd], ["a"]), ["real"]))) == [
        [struct.pack(">I", 0x7FC0 << 16)], [None]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("declared", "kinds"),
    [
        (["bigint", "character varying(20)", "timestamp(3) without time zone"],
         ["bigint", "character varying", "timestamp without time zone"]),
        (["bigint", "numeric(38,10)"], []),
        (["bigint", "some_domain"], []),
        (["text", "integer[]"], []),
    ],
)  # fmt: skip
def test_only_tables_of_types_whose_bytes_are_known_are_written_so(
    declared: list[str], kinds: list[str]
) -> None:
    columns = [Column(name=f"c{place}", declared=each) for place, each in enumerate(declared)]
    fits: Any = tuple(Fit(column.name, Given("text"), column) for column in columns)
    table = Table(name="t", columns=tuple(columns))
    assert kinds_of(Match(table=table, fits=fits)) == kinds
    beside = ["smallint", "bigint"] if kinds else []
    assert kinds_of(Match(table=table, fits=fits, op="op", sequence="at")) == kinds + beside
