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
from onceonly.sinks.kafka import columns
from onceonly.sinks.kafka.librdkafka import Message
from onceonly.sinks.kafka.messages import Messages, dtype, messages

VALUES = st.none() | st.binary(max_size=40)
TEXTS = st.none() | st.text(max_size=20)
TYPES = [
    (pa.string(), pa.binary()),
    (pa.large_string(), pa.large_binary()),
    (pa.string_view(), pa.binary_view()),
]
ROW = st.tuples(VALUES, TEXTS, st.none() | st.integers(0, 7), st.sampled_from(["a", "b", "c"]))


def test_the_array_has_the_layout_of_the_structure() -> None:
    assert dtype().itemsize == ctypes.sizeof(Message)
    fields = dtype().fields
    assert fields is not None
    for name, *_ in Message._fields_:
        assert fields[name][1] == getattr(Message, name).offset, name


@given(
    rows=st.lists(ROW, min_size=1, max_size=30),
    cut=st.tuples(st.integers(0, 30), st.integers(0, 30)),
    types=st.sampled_from(TYPES),
    topic=st.sampled_from([None, "t"]),
    mark=st.integers(0, 2**40),
)
def test_the_messages_of_a_batch_are_its_rows(
    rows: list[Any],
    cut: tuple[int, int],
    types: tuple[pa.DataType, pa.DataType],
    topic: str | None,
    mark: int,
) -> None:
    text, binary = types
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
    assert {each.topic: _read(each, mark) for each in found if len(each.array)} == expected


def test_without_key_and_partition_each_row_goes_by_its_missing_key() -> None:
    (found,) = messages(pa.RecordBatch.from_pydict({"value": ["", None, "ü"]}), "t", 0, 1)
    assert _read(found, 1) == [(b"", None, -1), (None, None, -1), ("ü".encode(), None, -1)]
    assert not found.by_row


def test_a_row_without_a_topic_is_refused_by_its_number() -> None:
    batch = pa.RecordBatch.from_pydict({"value": ["1", "2"], "topic": ["t", None]})
    with pytest.raises(RecordRefusedError, match="Row 8 "):
        list(messages(batch, None, 7, 0))


def _read(found: Messages, mark: int) -> list[tuple[bytes | None, bytes | None, int]]:
    rows = []
    for row in found.array:
        assert (row["err"], row["_private"]) == (0, mark)
        assert row["partition"] == -1 or found.by_row
        rows.append(
            (_bytes(row["payload"], row["len"]), _bytes(row["key"], row["key_len"]), int(row["partition"]))
        )
    return rows


def _bytes(address: int, length: int) -> bytes | None:
    return ctypes.string_at(int(address), int(length)) if address else None
