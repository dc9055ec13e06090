"""Spark's own rows to tables, the driver killed while it commits; asked with the tables' own libraries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import harness
import pytest
import table_job
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness import Run

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]

JOB = Path(table_job.__file__)
EPOCHS = 4


def start(folder: Path, form: str, options: Mapping[str, str], failpoints: str = "") -> Run:
    told = [form, str(EPOCHS), str(folder), json.dumps(dict(options))]
    return harness.start(str(JOB), folder, *told, failpoints=failpoints)


def run_and_kill_at(folder: Path, form: str, options: Mapping[str, str], point: str) -> None:
    run = start(folder, form, options, f"{point}=pause@2")
    try:
        run.wait_for(point)
    finally:
        run.kill_tree()


def run_to_the_end(folder: Path, form: str, options: Mapping[str, str]) -> None:
    run = start(folder, form, options)
    try:
        assert run.wait() == 0, run.tail()
    finally:
        run.kill_tree()


def test_each_epoch_is_one_version_of_a_delta_table_whatever_is_killed(tmp_path: Path) -> None:
    """Once the decision stands and nothing is in the table, and once the table has it and no receipt stands."""
    path = tmp_path / "table"
    options = {"path": str(path), "create": "true"}
    for point in ("commit.before_handle", "receipt.before_put"):
        run_and_kill_at(tmp_path, "onceonly.delta", options, point)
    run_to_the_end(tmp_path, "onceonly.delta", options)
    table = DeltaTable(path)
    rows = table.to_pyarrow_table().to_pydict()
    assert sorted(rows["value"]) == list(range(len(rows["value"])))
    assert rows["third"] == [value % 3 for value in rows["value"]]
    assert table.metadata().partition_columns == ["third"]
    epochs = [each["onceonly"]["epoch"] for each in reversed(table.history()) if "onceonly" in each]
    assert epochs == list(range(len(epochs)))
    assert len(epochs) * table_job.ROWS_PER_EPOCH == len(rows["value"])
    listed = {Path(uri) for uri in table.file_uris()}
    assert set((path / "onceonly").rglob("*.parquet")) == listed


@pytest.mark.long
def test_each_epoch_is_one_snapshot_of_an_iceberg_table_whatever_is_killed(tmp_path: Path) -> None:
    place = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    with SqlCatalog("default", **place) as catalog:
        catalog.create_namespace("sales")
    options = {f"catalog.{name}": value for name, value in place.items()}
    options |= {"catalog.type": "sql", "table": "sales.orders", "create": "true"}
    for point in ("commit.before_handle", "receipt.before_put"):
        run_and_kill_at(tmp_path, "onceonly.iceberg", options, point)
    run_to_the_end(tmp_path, "onceonly.iceberg", options)
    with SqlCatalog("default", **place) as catalog:
        table = catalog.load_table("sales.orders")
    rows = table.scan().to_arrow().to_pydict()
    assert sorted(rows["value"]) == list(range(len(rows["value"])))
    assert rows["third"] == [value % 3 for value in rows["value"]]
    assert [field.name for field in table.spec().fields] == ["third"]
    summaries = [snapshot.summary for snapshot in table.snapshots()]
    epochs = [int(str(summary["onceonly.epoch"])) for summary in summaries if summary is not None]
    assert epochs == list(range(len(epochs)))
    assert len(epochs) * table_job.ROWS_PER_EPOCH == len(rows["value"])
    listed = {Path(task.file.file_path.removeprefix("file://")) for task in table.scan().plan_files()}
    assert set((tmp_path / "warehouse").rglob("onceonly/**/*.parquet")) == listed
