"""The columns of Spark's own Kafka sink."""

from __future__ import annotations

import pyarrow as pa
import pytest

from onceonly.errors import ConfigurationError, RecordRefusedError
from onceonly.sinks.kafka.records.columns import check_columns, rows, topic_codes

HEADERS_TYPE = "array<struct<key:string,value:binary>>"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize(
    ("columns", "topic"),
    [
        ((("value", "binary"),), "t"),
        ((("value", "string"), ("key", "string"), ("partition", "int"), ("headers", HEADERS_TYPE)), "t"),
        ((("value", "varchar(10)"), ("topic", "string collate UTF8_LCASE")), None),
        ((("value", "string"), ("topic", "int")), "t"),  # the option wins, the column is not read
        ((("value", "string"), ("extra", "map<string,int>")), "t"),
        ((("value", "string"), ("extra", "int"), ("extra", "int")), "t"),
        ((), None),
    ],
)
def test_columns_that_spark_takes_are_taken(columns: tuple[tuple[str, str], ...], topic: str | None) -> None:
    check_columns(columns, topic)


@pytest.mark.parametrize(
    ("columns", "topic", "said"),
    [
        ((("key", "string"),), "t", "needs a column 'value'; there are key"),
        ((("Value", "string"),), "t", "needs a column 'value'"),
        ((("value", "string"),), None, "neither an option 'topic' nor a column"),
        ((("value", "int"),), "t", "'value' is of type int, and must be string or binary"),
        ((("value", "string"), ("key", "bigint")), "t", "'key' is of type bigint"),
        ((("value", "string"), ("topic", "binary")), None, "'topic' is of type binary, and must be string"),
        (
            (("value", "string"), ("partition", "bigint")),
            "t",
            "'partition' is of type bigint, and must be int",
        ),
        ((("value", "string"), ("headers", "array<string>")), "t", "'headers' is of type array<string>"),
        ((("value", "string"), ("value", "binary")), "t", "Two columns of the query are named value"),
    ],
)
def test_wrong_columns_are_named(columns: tuple[tuple[str, str], ...], topic: str | None, said: str) -> None:
    with pytest.raises(ConfigurationError, match=r"Kafka sink|[Cc]olumn") as caught:
        check_columns(columns, topic)
    assert said in caught.value.what


def test_rows_of_strings_and_of_large_binaries_are_bytes() -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["é", None], pa.large_string()), pa.array([None, b"k"], pa.large_binary())],
        names=["value", "key"],
    )
    assert list(rows(batch, "t", 0)) == [
        ("t", "é".encode(), None, -1, None),
        ("t", None, b"k", -1, None),
    ]


def test_a_null_topic_is_named_by_its_row_in_the_slot() -> None:
    batch = pa.RecordBatch.from_pydict({"value": ["a", "b"], "topic": ["t", None]})
    with pytest.raises(RecordRefusedError, match="Row 1001"):
        list(rows(batch, None, 1000))


@pytest.mark.parametrize("entry", [None, {"key": None, "value": b"v"}])
def test_a_header_without_a_key_is_refused(entry: dict[str, bytes | None] | None) -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["a"]), pa.array([[entry]], HEADERS)], names=["value", "headers"]
    )
    with pytest.raises(RecordRefusedError, match="Row 7"):
        list(rows(batch, "t", 7))


@pytest.mark.parametrize("name", ["", "a b", "a/b", "é", "..", ".", "x" * 250, "cut\0here"])
def test_a_row_whose_topic_no_broker_ever_takes_is_refused(name: str) -> None:
    batch = pa.RecordBatch.from_pydict({"value": ["a"], "topic": [name]})
    with pytest.raises(RecordRefusedError, match="no name of a topic"):
        topic_codes(batch, 0)
    with pytest.raises(RecordRefusedError, match="no name of a topic"):
        list(rows(batch, None, 0))
