"""What a Delta table, its columns or a row can have that is refused: one sentence each, before anything is written."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType
from tests.unit.loaded_bench import Bench

from onceonly.errors import (
    ConfigurationError,
    OnceonlyError,
    RecordRefusedError,
    SetupError,
    UnavailableError,
)
from onceonly.sinks.delta import DeltaSink
from onceonly.sinks.delta.place import read_place

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

INT, TEXT = PrimitiveType("integer"), PrimitiveType("string")
PLAIN = Schema([Field("id", INT), Field("text", TEXT)])


def made(tmp_path: Path, schema: Any = PLAIN, columns: Mapping[str, str] | None = None, **more: Any) -> Bench:  # noqa: ANN401
    options = {
        name.replace("_", "."): str(more.pop(name))
        for name in ("merge_schema", "partitionBy", "create")
        if name in more
    }
    if schema is not None:
        DeltaTable.create(tmp_path / "t", schema, raise_if_key_not_exists=False, **more)
    columns = {"id": "int", "text": "string"} if columns is None else columns
    return Bench(DeltaSink, "delta", {"path": str(tmp_path / "t"), **options}, columns)


def refused(bench: Bench, match: str) -> None:
    with pytest.raises(ConfigurationError, match=match) as raised:
        bench.check()
    assert raised.value.next_step
    assert "Traceback" not in str(raised.value)


def test_a_client_that_is_missing_on_driver_or_executor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = made(tmp_path)
    facts = bench.check()
    monkeypatch.setitem(sys.modules, "deltalake", None)
    for ask in (bench.check, lambda: bench.sink().layout(facts)):  # type: ignore[attr-defined]
        with pytest.raises(SetupError, match="deltalake") as raised:
            ask()
        assert "onceonly[delta]" in raised.value.next_step


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    refused(made(tmp_path, None), "There is no Delta table in")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("hdfs://h/t", "is on HDFS, where no version can be put on a condition"),
        ("dbfs:/t", "is on dbfs:"),
        ("s3a://bucket", "is a whole bucket"),
        ("s3a://bucket/50%", "has a name that not all readers take for the same"),
        ("s3a://key:secret@bucket/t", r"\[redacted\]@bucket/t is not an address of S3"),
    ],
)
def test_a_place_where_no_table_can_be_is_refused_with_the_way_that_there_is(path: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=f"the Delta table .*{why}") as raised:
        DeltaSink({"path": path, "create": "true"})
    assert raised.value.next_step
    assert "secret" not in str(raised.value)


def test_columns_that_the_table_lacks_or_has_of_another_type(tmp_path: Path) -> None:
    bench = made(tmp_path, columns={"id": "int", "other": "string"})
    refused(bench, "has no column other")
    for kind in ("string", "double", "decimal(3,1)", "timestamp", "boolean", "array<int>"):
        other = Bench(DeltaSink, "delta", {"path": str(tmp_path / "t")}, {"id": kind})
        refused(other, "its column id is of type int32, and the query gives")


@pytest.mark.parametrize(
    "kind", ["void", "variant", "interval day to second", "struct<a:variant>", "map<string,void>"]
)
def test_types_that_no_table_keeps(tmp_path: Path, kind: str) -> None:
    refused(made(tmp_path, columns={"id": kind}), "the column id is of type .*, which no table keeps")


def test_two_columns_of_the_query_that_are_one_of_the_table(tmp_path: Path) -> None:
    refused(made(tmp_path, columns={"id": "int", "ID": "int"}), "two columns of the query are its column id")


def test_a_not_null_column_that_the_query_does_not_give(tmp_path: Path) -> None:
    schema = Schema([Field("id", INT), Field("text", TEXT), Field("must", TEXT, nullable=False)])
    refused(made(tmp_path, schema), "its column must is NOT NULL")


def test_a_constraint(tmp_path: Path) -> None:
    bench = made(tmp_path)
    DeltaTable(tmp_path / "t").alter.add_constraint({"positive": "id > 0"})
    refused(bench, "the constraint positive")


@pytest.mark.parametrize(
    ("setting", "value", "match"),
    [
        ("delta.columnMapping.mode", "name", "column mapping"),
        ("delta.setTransactionRetentionDuration", "interval 7 days", "setTransactionRetentionDuration"),
    ],
)
def test_a_setting_that_asks_more_than_adding_files(
    tmp_path: Path, setting: str, value: str, match: str
) -> None:
    bench = made(tmp_path)
    entry = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    text = entry.read_text(encoding="utf-8")
    assert '"configuration":{}' in text
    entry.write_text(
        text.replace('"configuration":{}', f'"configuration":{{"{setting}":"{value}"}}'), encoding="utf-8"
    )
    refused(bench, match)


@pytest.mark.parametrize(
    ("key", "what"),
    [
        ("delta.generationExpression", "the generated column id"),
        ("delta.identity.start", "the identity column id"),
        ("delta.invariants", "an invariant on the column id"),
    ],
)
def test_a_column_that_others_would_compute_or_check(tmp_path: Path, key: str, what: str) -> None:
    schema = Schema([Field("id", INT, metadata={key: '{"expression":{"expression":"id > 0"}}'})])
    refused(made(tmp_path, schema, {"id": "int"}), what)


def test_a_feature_that_is_not_known_here(tmp_path: Path) -> None:
    bench = made(tmp_path)
    entry = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    lines = entry.read_text(encoding="utf-8").splitlines()
    features = '["rowTracking","domainMetadata"]'
    protocol = f'{{"protocol":{{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":{features}}}}}'
    entry.write_text("\n".join(protocol if "protocol" in line else line for line in lines), encoding="utf-8")
    refused(bench, "the feature domainMetadata, rowTracking")


def test_partitions_that_differ_or_that_no_folder_names(tmp_path: Path) -> None:
    refused(made(tmp_path, partitionBy="text"), "is partitioned by nothing, and partitionBy is text")
    refused(made(tmp_path / "2", None, create="true", partitionBy="nix"), "nix of partitionBy is not among")
    refused(
        made(tmp_path / "3", None, {"id": "binary", "n": "int"}, create="true", partitionBy="id"),
        "no folder names",
    )
    refused(
        made(tmp_path / "4", None, {"id": "int"}, create="true", partitionBy="id"), "nothing is left to write"
    )
    refused(
        made(tmp_path / "5", partition_by="text", columns={"id": "int"}),
        "partitioned by text, which the query does",
    )


@pytest.mark.parametrize(
    ("table", "given", "value", "match"),
    [
        (pa.int8(), "bigint", 300, "300 not in range"),
        (pa.int64(), "decimal(20,2)", None, "does not give|query gives"),
        (pa.decimal128(4, 2), "bigint", 1000, "does not fit in precision 4"),
        (pa.decimal128(4, 2), "decimal(20,4)", "1.2345", "data loss"),
        (pa.float64(), "bigint", 2**53 + 1, "9007199254740993"),
    ],
    ids=["out of range", "decimal to integer", "too many digits", "too fine", "not a double"],
)
def test_a_value_that_does_not_fit(
    tmp_path: Path,
    table: pa.DataType,
    given: str,
    value: Any,  # noqa: ANN401
    match: str,
) -> None:
    from decimal import Decimal

    bench = made(tmp_path, pa.schema([("id", table)]), {"id": given})
    if value is None:
        refused(bench, match)
        return
    value = Decimal(value) if isinstance(value, str) else value
    kind = pa.decimal128(20, 4) if isinstance(value, Decimal) else pa.int64()
    with pytest.raises(RecordRefusedError, match=match) as raised:
        bench.prepared(pa.RecordBatch.from_pylist([{"id": value}], pa.schema([("id", kind)])))
    assert "the column id" in raised.value.what


def test_a_null_in_a_not_null_column_also_inside(tmp_path: Path) -> None:
    inner = pa.struct([pa.field("a", pa.int32(), nullable=False)])
    schema = pa.schema(
        [
            pa.field("id", pa.int32(), nullable=False),
            pa.field("more", inner),
            pa.field("tags", pa.list_(pa.field("element", pa.string(), nullable=False))),
        ]
    )
    bench = made(tmp_path, schema, {"id": "int", "more": "struct<a:int>", "tags": "array<string>"})
    plain = pa.schema(
        [("id", pa.int32()), ("more", pa.struct([("a", pa.int32())])), ("tags", pa.list_(pa.string()))]
    )
    good: list[dict[str, Any]] = [
        {"id": 1, "more": None, "tags": None},
        {"id": 2, "more": {"a": 1}, "tags": ["x"]},
    ]
    bads: tuple[dict[str, Any], ...] = ({"id": None}, {"more": {"a": None}}, {"tags": [None]})
    for bad in bads:
        with pytest.raises(RecordRefusedError, match="NOT NULL"):
            bench.prepared(pa.RecordBatch.from_pylist([{**good[1], **bad}], plain))
    bench.committed(pa.RecordBatch.from_pylist(good, plain))
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist() == good


def test_a_column_is_added_where_the_option_says_so(tmp_path: Path) -> None:
    columns = {"id": "int", "text": "string", "new": "double"}
    refused(made(tmp_path, columns=columns), "has no column new; .*")
    bench = Bench(DeltaSink, "delta", {"path": str(tmp_path / "t"), "merge.schema": "true"}, columns)
    bench.committed([{"id": 1, "text": "x", "new": 0.5}])
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist() == [{"id": 1, "text": "x", "new": 0.5}]


def test_a_table_that_no_longer_fits_stops_before_the_decision_and_after_it_waits(tmp_path: Path) -> None:
    bench = made(tmp_path)
    handle = bench.prepared([{"id": 1, "text": "x"}])
    DeltaTable(tmp_path / "t").alter.add_constraint({"positive": "id > 0"})
    for ask in (lambda: bench.sink().rehearse([handle], {}), lambda: bench.sink().commit(handle)):
        with pytest.raises(ConfigurationError, match="the constraint positive"):
            ask()
    DeltaTable(tmp_path / "t").alter.drop_constraint("positive")
    bench.sink().commit(handle)
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 1


def test_the_empty_text_of_a_partition_is_null_or_refused(tmp_path: Path) -> None:
    bench = made(tmp_path, None, create="true", partitionBy="text")
    bench.committed([{"id": 1, "text": ""}])
    assert DeltaTable(tmp_path / "t").to_pyarrow_table()["text"].to_pylist() == [None]
    schema = pa.schema([pa.field("id", pa.int32()), pa.field("text", pa.string(), nullable=False)])
    strict = made(tmp_path / "2", schema, partition_by="text")
    with pytest.raises(RecordRefusedError, match="empty text stands for null"):
        strict.prepared([{"id": 1, "text": ""}])


@pytest.mark.parametrize(
    ("last", "kind"),
    [
        ("IMDS is disabled or the caller has insufficient permissions.", ConfigurationError),
        ("HTTP connect timeout occurred after 1s", UnavailableError),
    ],
)
def test_no_credentials_are_told_as_such_and_not_as_a_store_that_is_away(
    last: str, kind: type[OnceonlyError]
) -> None:
    arrow = "\x1b[31m↳\x1b[0m"
    said = f"Kernel error\n  {arrow} an error occurred while loading credentials\n   {arrow} {last}"
    failed = read_place("s3a://lake/orders").failed(OSError(said), "it cannot be read", "read", "")
    assert isinstance(failed, kind)
    assert "no credentials are given" in failed.what
    assert failed.next_step is not None
    assert "--hadoop-conf" in failed.next_step
