"""Arrow batches as librdkafka's messages: the same rows that are read one by one, from memory that is held."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceonly.errors import RecordRefusedError
from onceonly.sinks.kafka.producers.librdkafka import Message
from onceonly.sinks.kafka.records import columns
from onceonly.sinks.kafka.records.messages import Messages, dtype, messages

VALUES = st.none() | st.binary(max_size=40)
TEXTS = st.none() | st.text(max_size=20)
TYPES = [
    (pa.string(), pa.binary()),
    (pa.large_string(), pa.large_binary()),
    (pa.string_view(), pa.binary_view()),
]
ROW = st.tuples(VALUES, TEXTS, st.integers(0, 7), st.sampled_from(["a", "b", "c"]))


def test_the_array_has_the_layout_of_the_structure() -> None:
    assert dtype().itemsize == ctypes.sizeof(Message)
    fields = dtype().fields
    assert fields is not None
    for name, *_ in Message._fields_:
        assert fields[name][1] == getattr(Message, name).offset, name
    # As a compiler lays rd_kafka_message_t out on a machine of 64 bits.
    assert [getattr(Message, name).offset for name, *_ in Message._fields_] == [
        0,
        8,
        16,
        24,
        32,
        40,
        48,
        56,
        64,
    ]
    assert dtype().itemsize == 72


@given(
    rows=st.lists(ROW, min_size=1, max_size=30),
    cut=st.tuples(st.integers(0, 30), st.integers(0, 30)),
    types=st.sampled_from(TYPES),
    topic=st.sampled_from([None, "t"]),
    mark=st.integers(0, 2**40),
    named=st.booleans(),
)
def test_the_messages_of_a_batch_are_its_rows(
    rows: list[Any],
    cut: tuple[int, int],
    types: tuple[pa.DataType, pa.DataType],
    topic: str | None,
    mark: int,
    *,
    named: bool,
) -> None:
    text, binary = types
    # Batches in which only some rows name their partition are written one by one.
    rows = [(value, key, partition if named else None, topic) for value, key, partition, topic in rows]
    values, keys, partitions, topics = zip(*rows, strict=True)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(values, binary),
            pa.array(keys, text),
            pa.array(partitions, pa.int32()),
            pa.array(topics, pa.string()),
        ],
        names=["value", "key", "partition", "topic"],
    ).slice(*cut)
    expected: dict[str, list[Any]] = {}
    for name, *row, _ in columns.rows(batch, topic, 0):
        expected.setdefault(name, []).append(tuple(row))
    found = list(messages(batch, topic, 0, mark))
    del batch
    gc.collect()
    given: dict[str, list[Any]] = {}
    for each in found:
        given.setdefault(each.topic, []).extend(_read(each, mark))
    # Rows of one partition keep their order, which is all that Kafka knows of order.
    assert {topic: _by_partition(rows) for topic, rows in given.items() if rows} == {
        topic: _by_partition(rows) for topic, rows in expected.items()
    }


def test_without_key_and_partition_each_row_goes_by_its_missing_key() -> None:
    (found,) = messages(pa.RecordBatch.from_pydict({"value": ["", None, "ü"]}), "t", 0, 1)
    assert _read(found, 1) == [(b"", None, -1), (None, None, -1), ("ü".encode(), None, -1)]
    assert found.partition == -1


def test_a_row_without_a_topic_is_refused_by_its_number() -> None:
    batch = pa.RecordBatch.from_pydict({"value": ["1", "2"], "topic": ["t", None]})
    with pytest.raises(RecordRefusedError, match="Row 8 "):
        list(messages(batch, None, 7, 0))


def _read(found: Messages, mark: int) -> list[tuple[bytes | None, bytes | None, int]]:
    rows = []
    for row in found.array:
        assert (row["err"], row["_private"]) == (0, mark)
        rows.append((_bytes(row["payload"], row["len"]), _bytes(row["key"], row["key_len"]), found.partition))
    return rows


def _by_partition(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: row[2])


def _bytes(address: int, length: int) -> bytes | None:
    return ctypes.string_at(int(address), int(length)) if address else None
