"""The columns that Spark's own Kafka sink reads, checked on the driver and read on the executor.

As there (``KafkaWriter`` and ``KafkaRowWriter``): ``value`` is required, ``key``, ``topic``,
``partition`` and ``headers`` are optional, names are matched exactly, other columns are ignored, the
option ``topic`` wins over the column, and a column ``headers`` is written wherever there is one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError, RecordRefusedError
from onceonly.families.columns import require_told_apart
from onceonly.rows.json_rows import values
from onceonly.sinks.kafka.records.fields import Fields, spelled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from onceonly.sinks.kafka.records.fields import Numbers

_TYPES = {
    "value": ("string", "binary"),
    "key": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}

NAMES = frozenset(_TYPES)
"""Of the columns that are read."""

# org.apache.kafka.common.internals.Topic.
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")

BY_KEY = -1
"""In place of a partition: the key chooses it."""

Headers = list[tuple[str, bytes | None]] | None
Row = tuple[str, bytes | None, bytes | None, int, Headers]
"""Topic, value, key, partition (-1: by the key), headers."""


def check_columns(columns: Sequence[tuple[str, str]], topic: str | None) -> None:
    """Refuse columns that no row could be made of. Driver, before the first record; pure.

    ``columns`` are names and Spark's ``simpleString`` types; nothing is known where it is empty.
    """
    if not columns:
        return
    require_told_apart((name for name, _ in columns if name in NAMES), "the Kafka sink")
    types = dict(columns)
    if "value" not in types:
        raise ConfigurationError(
            f"The Kafka sink needs a column 'value'; there are {', '.join(types)}.",
            next_step="select the row as 'value', of type string or binary, for instance with to_json",
        )
    if topic is None and "topic" not in types:
        raise ConfigurationError(
            "The Kafka sink has no topic: neither an option 'topic' nor a column 'topic'.",
            next_step="give one of the two",
        )
    for name, allowed in _TYPES.items():
        if name in types and not _fits(types[name], allowed) and not (name == "topic" and topic):
            raise ConfigurationError(
                f"The column '{name}' is of type {types[name]}, and must be {' or '.join(allowed)}.",
                next_step=f"cast it: col('{name}').cast('{allowed[0]}')",
            )


def _fits(spark_type: str, allowed: tuple[str, ...]) -> bool:
    # string collate X, varchar(n) and char(n) reach us as strings.
    if spark_type.startswith(("string ", "varchar(", "char(")):
        return "string" in allowed
    return spark_type in allowed


def rows(batch: pa.RecordBatch, topic: str | None, first: int) -> Iterator[Row]:
    """Return the rows of a batch; ``first`` is the number of its first row in this slot. Executor.

    Raises ``RecordRefusedError`` for a row without a topic or with a header without a key.
    """
    count = batch.num_rows
    contents = _bytes(batch, "value")
    keys = _bytes(batch, "key") if "key" in batch.schema.names else [None] * count
    topics = [topic] * count if topic is not None else _topics(batch, first)
    for name in set(topics):
        check_topic(name)
    partitions = _partitions(batch) if "partition" in batch.schema.names else [-1] * count
    headers: list[Headers] = [None] * count
    if "headers" in batch.schema.names:
        headers = [_headers(row, first + index) for index, row in enumerate(_column(batch, "headers"))]
    return zip(topics, contents, keys, partitions, headers, strict=True)


def fields(batches: Sequence[pa.RecordBatch], first: int) -> Fields:
    """Return what is written of batches; more than one have keys and values only.

    Raises ``RecordRefusedError`` for a row with a header without a key.
    """
    headers, has_keys = header_lists(batches[0], first), "key" in batches[0].schema.names
    return Fields.of(
        [each.column("value") for each in batches],
        [each.column("key") for each in batches] if has_keys else None,
        None if headers is None else [spelled(each) for each in headers],
    )


def by_topic(
    batch: pa.RecordBatch, topic: str | None, first: int, count: int
) -> Iterator[tuple[str, Numbers]]:
    """Yield each topic and the numbers of its rows: all ``count`` of them where it is one for all.

    Raises ``RecordRefusedError`` for a row without a topic.
    """
    import numpy as np

    if topic is not None:
        yield topic, np.arange(count)
        return
    names, codes = topic_codes(batch, first)
    for code, name in enumerate(names):
        yield name, np.flatnonzero(codes == code)


def topic_codes(batch: pa.RecordBatch, first: int) -> tuple[list[str], Any]:
    """Return the topics that the column names, and for each row the number of its own, as a numpy array.

    Raises ``RecordRefusedError`` for a row without a topic.
    """
    column = batch.column(batch.schema.get_field_index("topic"))
    if column.null_count:
        raise _without_topic(column.is_null().to_pylist().index(True) + first)
    coded = column.dictionary_encode()
    names = values(coded.dictionary)
    for name in names:
        check_topic(name)
    return names, coded.indices.to_numpy()


def partitions(batch: pa.RecordBatch) -> Any:  # noqa: ANN401  numpy's array of 32-bit numbers, or None
    """Return the partition that each row names, ``BY_KEY`` where it names none; None where no row does.

    A number below 0, which no topic has, is given as one below ``BY_KEY``.
    """
    index = batch.schema.get_field_index("partition")
    if index < 0 or batch.column(index).null_count == batch.num_rows:
        return None
    named = batch.column(index).fill_null(BY_KEY).to_numpy(zero_copy_only=False)
    wrong = (named < 0) & ~batch.column(index).is_null().to_numpy(zero_copy_only=False)
    if wrong.any():
        named = named.copy()
        named[wrong] = BY_KEY - 1
    return named


def header_lists(batch: pa.RecordBatch, first: int) -> list[list[tuple[str, bytes | None]]] | None:
    """Return each row's headers; None where no row has any.

    Raises ``RecordRefusedError`` for a row with a header without a key.
    """
    index = batch.schema.get_field_index("headers")
    if index < 0 or batch.column(index).null_count == batch.num_rows:
        return None
    return [_headers(row, first + number) or [] for number, row in enumerate(_column(batch, "headers"))]


def size(row: Row) -> int:
    """Return the bytes of a row, as its errors tell them."""
    _, value, key, _, headers = row
    of_headers = sum(len(name.encode()) + len(content or b"") for name, content in headers or ())
    return len(value or b"") + len(key or b"") + of_headers


def _column(batch: pa.RecordBatch, name: str) -> list[Any]:
    # A header's key that is no UTF-8 has a sign in place of each wrong byte, as Spark's own sink writes it.
    return values(batch.column(batch.schema.get_field_index(name)))


def _bytes(batch: pa.RecordBatch, name: str) -> list[bytes | None]:
    import pyarrow as pa

    column = batch.column(batch.schema.get_field_index(name))
    # A string is its UTF-8 bytes already: the cast copies nothing.
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif not pa.types.is_binary(column.type):
        column = column.cast(pa.large_binary())
    return list(column.to_pylist())


def _topics(batch: pa.RecordBatch, first: int) -> list[str]:
    column = _column(batch, "topic")
    if None in column:
        raise _without_topic(first + column.index(None))
    return column


def is_topic(name: str) -> bool:
    """Say whether Kafka takes this for the name of a topic."""
    return _TOPIC.fullmatch(name) is not None and name not in {".", ".."}


def check_topic(name: str) -> None:
    """Refuse a row by the name of its topic. Raises ``RecordRefusedError``: no broker will ever take it."""
    if not is_topic(name):
        raise RecordRefusedError(
            f"A row names the topic {name[:40]!r}, which is no name of a topic.",
            next_step="Kafka's topics have 1 to 249 letters, digits, dots, dashes and underscores",
        )


def _without_topic(row: int) -> RecordRefusedError:
    return RecordRefusedError(
        f"Row {row} of this slot has a null topic, and there is no option 'topic'.",
        next_step="fill the column 'topic', filter such rows out, or give the option 'topic'",
    )


def _partitions(batch: pa.RecordBatch) -> list[int]:
    # As in Spark, a null partition leaves the choice to the key.
    return [-1 if partition is None else partition for partition in _column(batch, "partition")]


def _headers(entries: list[dict[str, Any] | None] | None, row: int) -> Headers:
    if entries is None:
        return None
    if any(entry is None or entry["key"] is None for entry in entries):
        raise RecordRefusedError(
            f"Row {row} of this slot has a header that is null or has no key.",
            next_step="fill or remove the header; a null value is allowed, a null key is not",
        )
    return [(entry["key"], entry["value"]) for entry in entries if entry is not None]
