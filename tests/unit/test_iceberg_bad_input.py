"""What an Iceberg table, its columns or a row can have that is refused: one sentence each."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.transforms import IdentityTransform
from tests.unit import iceberg_bench
from tests.unit.loaded_bench import Bench

from onceonly.errors import ConfigurationError, RecordRefusedError, SetupError
from onceonly.ports.standing import Held
from onceonly.sinks.iceberg import IcebergSink, target

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SCHEMA = pa.schema([("id", pa.int32()), ("text", pa.string()), ("x", pa.float64())])
COLUMNS = {"id": "int", "text": "string", "x": "double"}


def bench_of(options: Mapping[str, str], columns: Mapping[str, str] = COLUMNS) -> Bench:
    return Bench(IcebergSink, "iceberg", options, columns)


def made(
    folder: Path, schema: pa.Schema = SCHEMA, *, by: tuple[str, Any] | None = None, **properties: str
) -> dict[str, str]:
    options = iceberg_bench.options_of(folder)
    iceberg_bench.make_table(options, schema, **properties)
    if by is not None:
        with iceberg_bench.opened(options).update_spec() as spec:
            spec.add_field(by[0], by[1], "p")
    return options


def refused(bench: Bench, match: str) -> None:
    with pytest.raises(ConfigurationError, match=match) as raised:
        bench.check()
    assert raised.value.next_step
    assert "Traceback" not in str(raised.value)


def test_a_client_that_is_missing_on_driver_or_executor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of(made(tmp_path))
    facts = bench.check()
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    for ask in (bench.check, lambda: bench.sink().layout(facts)):  # type: ignore[attr-defined]
        with pytest.raises(SetupError, match="pyiceberg") as raised:
            ask()
        assert "onceonly[iceberg]" in raised.value.next_step


def test_a_table_or_a_namespace_that_is_not_there(tmp_path: Path) -> None:
    options = iceberg_bench.options_of(tmp_path)
    refused(bench_of(options), "There is no Iceberg table sales.orders in the catalogue default")
    refused(bench_of({**options, "create": "true"}), "could not be made: NoSuchNamespaceError")
    for name in ("orders", "sales.", ""):
        with pytest.raises(ConfigurationError, match="table"):
            IcebergSink({**options, "table": name})


def test_a_table_on_a_store_is_refused_with_the_way_that_there_is(tmp_path: Path) -> None:
    place: dict[str, Any] = {"write.data.path": "gs://b/data"}
    bench = bench_of(made(tmp_path, **place))
    with pytest.raises(
        ConfigurationError, match=r"sales\.orders gs://b/data is on Google Cloud Storage"
    ) as raised:
        bench.check()
    assert "mount that all machines share" in raised.value.next_step
    assert "onceonly.files" in raised.value.next_step


def test_a_table_that_would_be_made_on_a_store_is_refused_before_anything_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**iceberg_bench.options_of(tmp_path), "catalog.warehouse": "gs://b/w", "create": "true"}
    iceberg_bench.make_namespace(options)

    def write(*_: object, **__: object) -> None:
        pytest.fail("metadata was written")

    monkeypatch.setattr("pyiceberg.catalog.MetastoreCatalog._write_metadata", staticmethod(write))
    refused(bench_of(options), "sales.orders gs://b/w.* is on Google Cloud Storage")
    with iceberg_bench.catalog_of(options) as catalog:
        assert catalog.list_tables("sales") == []


def test_columns_that_the_table_lacks_or_has_of_another_type(tmp_path: Path) -> None:
    options = made(tmp_path)
    refused(bench_of(options, {"other": "int"}), "has no column other")
    refused(bench_of(options, {"id": "string"}), "its column id is of type int32, and the query gives string")


@pytest.mark.parametrize(
    ("column", "transform", "what"),
    [("id", "bucket[4]", "by bucket"), ("x", "identity", "by a double"), ("id", "void", "by void")],
)
def test_partitions_that_a_files_bounds_do_not_tell(
    tmp_path: Path, column: str, transform: str, what: str
) -> None:
    refused(bench_of(made(tmp_path, by=(column, transform))), f"the partition p {what}")


def test_partition_columns_without_bounds(tmp_path: Path) -> None:
    options = made(tmp_path, by=("text", "identity"), **{"write.metadata.metrics.column.text": "none"})
    refused(bench_of(options), "no bounds for text")
    refused(bench_of(options, {"id": "int"}), "no bounds for text")


def test_a_partition_column_that_the_query_does_not_give(tmp_path: Path) -> None:
    refused(
        bench_of(made(tmp_path, by=("text", "identity")), {"id": "int"}),
        "partitioned by text, which the query",
    )


def test_a_newer_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "FORMAT_MAX", 1)  # as pyiceberg itself makes none of 3 yet
    refused(bench_of(made(tmp_path)), "the format version 2")


def test_a_required_column_that_the_query_does_not_give_or_gives_nulls_for(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("text", pa.string())])
    options = made(tmp_path, schema)
    refused(bench_of(options, {"text": "string"}), "its column id is NOT NULL")
    bench = bench_of(options, {"id": "int", "text": "string"})
    given = pa.schema([("id", pa.int32()), ("text", pa.string())])
    with pytest.raises(RecordRefusedError, match="NOT NULL"):
        bench.prepared(pa.RecordBatch.from_pylist([{"id": None, "text": "x"}], given))
    bench.committed(pa.RecordBatch.from_pylist([{"id": 1, "text": "x"}], given))
    assert iceberg_bench.rows_of(options) == [{"id": 1, "text": "x"}]


def test_a_value_that_is_too_long_for_a_partition(tmp_path: Path) -> None:
    bench = bench_of(made(tmp_path, by=("text", "identity")))
    with pytest.raises(RecordRefusedError, match="the partition column text has 5000 bytes"):
        bench.prepared([{"id": 1, "text": "x" * 5000, "x": 0.5}])


def test_values_of_partitions_come_back_as_they_were_and_readers_skip_the_others(tmp_path: Path) -> None:
    options = made(tmp_path, by=("text", "identity"))
    values = ["plain", "with space", "a/b=c%2F", "", "null", None, "ü" * 700]
    given = pa.RecordBatch.from_pylist(
        [{"id": place, "text": value, "x": 0.5} for place, value in enumerate(values)], SCHEMA
    )
    handle = bench_of(options).committed(given)
    assert bench_of(options).sink().held([handle]) == Held(rows=len(values))
    found = {row["id"]: row["text"] for row in iceberg_bench.rows_of(options)}
    assert [found[place] for place in range(len(values))] == values
    table = iceberg_bench.opened(options)
    assert len(list(table.scan(row_filter="text = 'null'").plan_files())) == 1
    assert table.scan(row_filter="text is null").to_arrow()["id"].to_pylist() == [5]


def test_a_column_is_added_where_the_option_says_so(tmp_path: Path) -> None:
    options = made(tmp_path)
    columns = {**COLUMNS, "new": "string"}
    refused(bench_of(options, columns), "has no column new")
    bench_of({**options, "merge.schema": "true"}, columns).committed(
        [{"id": 1, "text": "x", "x": 0.5, "new": "y"}]
    )
    bench_of(options).committed([{"id": 2, "text": "x", "x": 0.5}], epoch=1)
    assert {row["id"]: row["new"] for row in iceberg_bench.rows_of(options)} == {1: "y", 2: None}


def test_a_table_is_made_where_the_option_says_so(tmp_path: Path) -> None:
    options = iceberg_bench.options_of(tmp_path, create="true", partitionBy="text")
    iceberg_bench.make_namespace(options)
    bench_of(options).committed([{"id": 1, "text": "x", "x": 0.5}])
    assert iceberg_bench.rows_of(options) == [{"id": 1, "text": "x", "x": 0.5}]
    assert [field.name for field in iceberg_bench.opened(options).spec().fields] == ["text"]
    refused(
        bench_of({**options, "table": "sales.more", "partitionBy": "nix"}), "nix of partitionBy is not among"
    )


def test_a_table_that_no_longer_fits_stops_before_the_decision_and_after_it_waits(tmp_path: Path) -> None:
    options = made(tmp_path)
    bench = bench_of(options)
    handle = bench.prepared([{"id": 1, "text": "x", "x": 0.5}])
    with iceberg_bench.opened(options).update_schema() as update:
        update.rename_column("text", "other")
    for ask in (lambda: bench.sink().rehearse([handle], {}), lambda: bench.sink().commit(handle)):
        with pytest.raises(ConfigurationError, match="it has no column text any more"):
            ask()
    with iceberg_bench.opened(options).update_schema() as update:
        update.rename_column("other", "text")
    bench.sink().commit(handle)
    assert iceberg_bench.rows_of(options) == [{"id": 1, "text": "x", "x": 0.5}]


def test_a_table_that_is_partitioned_anew_is_named_in_a_line_and_takes_the_rows_once_that_is_undone(
    tmp_path: Path,
) -> None:
    options = made(tmp_path, by=("text", IdentityTransform()))
    bench = bench_of(options)
    handle = bench.prepared([{"id": 1, "text": "x", "x": 0.5}])
    with iceberg_bench.opened(options).update_spec() as spec:
        spec.remove_field("p")
    for ask in (lambda: bench.sink().rehearse([handle], {}), lambda: bench.sink().commit(handle)):
        with pytest.raises(ConfigurationError, match=r"partitioned in another way, \[\]") as raised:
            ask()
        assert "\n" not in raised.value.what
    with iceberg_bench.opened(options).update_spec() as spec:
        spec.add_field("id", IdentityTransform(), "q")
    with pytest.raises(ConfigurationError, match=r"in another way, \[ 1001: q: identity\(1\) \]"):
        bench.sink().commit(handle)
    with iceberg_bench.opened(options).update_spec() as spec:
        spec.remove_field("q")
        spec.add_field("text", IdentityTransform(), "p")
    bench.sink().commit(handle)
    assert iceberg_bench.rows_of(options) == [{"id": 1, "text": "x", "x": 0.5}]
