"""Times come to each target as the same instants, whatever the zone of the session that hands them over."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from onceonly.families.readable import MICROS, unreadable
from onceonly.sinks.opensearch import types as search
from onceonly.sinks.redis import types as redis
from onceonly.sinks.sql.shape import shaped
from onceonly.sinks.sql.types import Column, Table, columns_of, match

ZONES = ("UTC", "America/New_York", "Asia/Tokyo", "Europe/Berlin")
OLD = dt.datetime(1890, 1, 1, 12, tzinfo=dt.UTC)
"""Where Berlin's clocks were 53 minutes and 28 seconds ahead."""
TEXTS = ["0001-01-01T00:00:00", "9999-12-31T23:59:59.999999", "1890-01-01T12:00:00"]


def times(zone: str) -> pa.Array:
    """Return the first time and the last that a target has, and one of a zone with seconds."""
    values = [*MICROS, int(OLD.timestamp()) * 1_000_000]
    return pa.array(values, pa.int64()).cast(pa.timestamp("us", zone))


def inside(values: pa.Array) -> pa.Array:
    """Return each value in a list of its own, that in a struct."""
    lists = pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), values)
    return pa.StructArray.from_arrays([lists], ["at"])


def instants(found: Any) -> list[str]:  # noqa: ANN401  texts of ISO 8601
    return [text.replace("Z", "").replace("+00:00", "").replace(".000000", "") for text in found]


@pytest.mark.parametrize("zone", ZONES)
def test_years_are_those_of_utc(zone: str) -> None:
    assert list(unreadable(times(zone))) == []
    assert list(unreadable(inside(times(zone)))) == []
    beyond = pa.array([MICROS[0] - 1, 0, MICROS[1] + 1], pa.int64()).cast(pa.timestamp("us", zone))
    for column in (beyond, inside(beyond)):
        assert [(row, code) for row, code, _ in unreadable(column)] == [
            (0, "OUT_OF_RANGE"),
            (2, "OUT_OF_RANGE"),
        ]


@pytest.mark.parametrize("zone", ZONES)
def test_redis(zone: str) -> None:
    assert instants(each.decode() for each in redis.texts(times(zone)).to_pylist()) == TEXTS
    found = [json.loads(each)["at"] for each in redis.texts(inside(times(zone))).to_pylist()]
    assert instants(at for (at,) in found) == TEXTS


@pytest.mark.parametrize("zone", ZONES)
def test_opensearch(zone: str) -> None:
    rows = pa.RecordBatch.from_arrays([times(zone), inside(times(zone))], ["at", "deep"])
    found = [json.loads(msgspec.json.encode(each)) for each in search.documents(rows)]
    assert instants(each["at"] for each in found) == TEXTS
    assert instants(each["deep"]["at"][0] for each in found) == TEXTS


@pytest.mark.parametrize("zone", ZONES)
def test_json_of_a_database(zone: str) -> None:
    rows = pa.RecordBatch.from_arrays([inside(times(zone))], ["deep"])
    table = Table(name="t", columns=(Column(name="deep", declared="json", takes=("nested",)),))
    found = shaped(rows, match(columns_of(rows.schema), table)).column("deep").to_pylist()
    assert instants(json.loads(each)["at"][0] for each in found) == TEXTS
