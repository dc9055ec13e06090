"""A partition that is not there is refused at once, with the row and the topic; rows without a key take turns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from onceonly.errors import RecordRefusedError
from onceonly.sinks.kafka.records.named_partitions import refuse_unknown


def batch(partitions: list[int | None], topics: list[str] | None = None) -> pa.RecordBatch:
    columns = {"value": pa.array(["x"] * len(partitions)), "partition": pa.array(partitions, pa.int32())}
    if topics is not None:
        columns["topic"] = pa.array(topics)
    return pa.record_batch(columns)


def has(topic: str, _at_least: int) -> int:
    return {"a": 2, "b": 8}[topic]


@pytest.mark.parametrize(
    ("partitions", "row", "named"), [([0, 7], 11, 7), ([None, 1, -1], 12, -1), ([2], 10, 2)]
)
def test_a_row_that_names_a_partition_which_is_not_there_is_named(
    partitions: list[int | None], row: int, named: int
) -> None:
    with pytest.raises(RecordRefusedError) as caught:
        refuse_unknown(batch(partitions), "a", 10, has)
    assert f"Row {row} of this slot names partition {named} of topic a, which has 2 partitions" in str(
        caught.value
    )


def test_each_topic_has_partitions_of_its_own() -> None:
    refuse_unknown(batch([1, 7], ["a", "b"]), None, 0, has)
    with pytest.raises(RecordRefusedError, match="Row 1 of this slot names partition 7 of topic a"):
        refuse_unknown(batch([7, 7, 0], ["b", "a", "a"]), None, 0, has)


def test_a_row_whose_topic_can_be_none_is_refused_before_anybody_is_asked_for_it() -> None:
    with pytest.raises(RecordRefusedError, match="'no topic', which is no name of a topic"):
        refuse_unknown(batch([0], ["no topic"]), None, 0, has)


@pytest.mark.parametrize("partitions", [[None, None], [0, 1, None]])
def test_what_is_there_or_left_to_the_key_passes(partitions: list[int | None]) -> None:
    refuse_unknown(batch(partitions), "a", 0, has)
    refuse_unknown(batch(partitions).select(["value"]), "a", 0, has)


def test_a_topic_is_looked_up_anew_only_where_a_row_needs_it() -> None:
    asked: list[int] = []

    def grows(_topic: str, at_least: int) -> int:
        asked.append(at_least)
        return max(at_least, 2)

    refuse_unknown(batch([0, 5]), "a", 0, grows)
    assert asked == [6]
