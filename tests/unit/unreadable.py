"""Columns whose second value nobody can read, as Spark hands them over: what kinds of sinks refuse before a vote."""

from __future__ import annotations

import pyarrow as pa


def _texts(*values: bytes) -> pa.Array:
    raw = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


def _lists(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), values)


def _days(*values: int) -> pa.Array:
    return pa.array(values, pa.int32()).cast(pa.date32())


COLUMNS = {
    "a text": ("string", _texts(b"fine", b"\xff\xfe"), "NOT_UTF8"),
    "a text in a list": ("array<string>", _lists(_texts(b"fine", b"\xff\xfe")), "NOT_UTF8"),
    "a day": ("date", _days(0, 2_932_897), "OUT_OF_RANGE"),
    "a day before the year 1": ("date", _days(-719_162, -719_163), "OUT_OF_RANGE"),
    "a day in a list": ("array<date>", _lists(_days(0, 5_000_000)), "OUT_OF_RANGE"),
    "a time": ("timestamp", pa.array([0, 4 * 10**17]).cast(pa.timestamp("us", "UTC")), "OUT_OF_RANGE"),
}
"""By what is wrong: the type, two values, and the word for the second one."""
