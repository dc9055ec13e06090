"""Positions in a collection, and the proof that they belong to it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from onceonly.errors import ConfigurationError
from onceonly.sources.collection import Collection


def numbers(*values: int | None) -> Collection:
    return Collection(pa.table({"n": pa.array(values, pa.int64())}))


def test_rows_survive_the_way_through_an_option() -> None:
    given = Collection(pa.table({"n": [1, None], "b": [b"\x00", b"x"], "l": [[1], []]}))
    assert Collection.decode(given.encode()).table.equals(given.table)


def test_a_position_is_found_again_in_the_same_and_in_a_grown_collection() -> None:
    position = numbers(1, 2, 3).position(2)
    assert position["rows"] == 2
    assert numbers(1, 2, 3).rows_before(position) == 2
    assert numbers(1, 2, 9, 9).rows_before(position) == 2


@pytest.mark.parametrize("other", [numbers(1), numbers(1, None, 3), numbers(2, 1, 3), numbers()])
def test_a_position_of_another_collection_is_refused(other: Collection) -> None:
    with pytest.raises(ConfigurationError, match="another collection"):
        other.rows_before(numbers(1, 2, 3).position(2))


def test_a_renamed_column_is_another_collection() -> None:
    renamed = Collection(pa.table({"m": [1, 2, 3]}))
    with pytest.raises(ConfigurationError):
        renamed.rows_before(numbers(1, 2, 3).position(3))


@pytest.mark.parametrize(("start", "end", "parts"), [(0, 10, 3), (2, 4, 8), (5, 5, 4), (0, 10, 1)])
def test_pieces_are_neighbours_and_none_is_empty(start: int, end: int, parts: int) -> None:
    pieces = list(numbers(*range(10)).split(start, end, parts))
    assert len(pieces) == min(parts, end - start)
    assert all(piece.num_rows for piece in pieces)
    assert [n for piece in pieces for n in piece["n"].to_pylist()] == list(range(start, end))


def test_an_epoch_takes_as_many_rows_as_its_limit_says_also_when_all_that_is_there_is_asked_for() -> None:
    limits = pytest.importorskip(
        "pyspark.sql.streaming.datasource", reason="read limits came with PySpark 4.2"
    )
    from pyspark.sql.types import LongType, StructField, StructType

    from onceonly.spark.collection_source import CollectionReader

    def reader(rows_per_epoch: int) -> CollectionReader:
        schema = StructType([StructField("n", LongType())])
        return CollectionReader(numbers(*range(10)), schema, rows_per_epoch=rows_per_epoch, partitions=1)

    limited, whole = reader(4), reader(0)
    assert isinstance(limited, limits.SupportsTriggerAvailableNow)
    position, ends = limited.initialOffset(), []
    limited.prepareForTriggerAvailableNow()
    while position["rows"] < 10:
        position = limited.latestOffset(position, limited.getDefaultReadLimit())
        ends.append(position["rows"])
    assert ends == [4, 8, 10]
    assert whole.latestOffset(whole.initialOffset(), whole.getDefaultReadLimit())["rows"] == 10
