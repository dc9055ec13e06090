"""Spark's own rows to tables, the driver killed while it commits; asked with the tables' own libraries."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import harness
import pytest
import stored_files_job
import table_job
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from onceonly_proof.auditor.lake import LakeReader
from onceonly_proof.embedded.s3 import SECRET, EmbeddedS3

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


@pytest.mark.parametrize(
    "points", [("receipt.before_put",), pytest.param(("commit.before_handle",), marks=pytest.mark.long)]
)
def test_each_epoch_is_one_version_of_a_delta_table_whatever_is_killed(
    tmp_path: Path, points: tuple[str, ...]
) -> None:
    """Once the table has it and no receipt stands, or once the decision stands and nothing is in the table."""
    path = tmp_path / "table"
    options = {"path": str(path), "create": "true"}
    for point in points:
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


POINTS = ("commit.before_handle", "receipt.before_put")
MORE = ("slot.during_write", "slot.after_prepare", "link.after_put", "commit.after_handle", "complete.before")


@pytest.mark.parametrize("points", [POINTS, pytest.param(POINTS + MORE, marks=pytest.mark.long)])
def test_each_epoch_is_one_version_of_a_table_on_s3_whatever_is_killed(
    tmp_path: Path, points: tuple[str, ...]
) -> None:
    """The table as deltalake reads it, and as the protocol says of what lies in the bucket; and no key anywhere."""
    with EmbeddedS3(tmp_path / "s3") as server:
        server.make_bucket("lake")
        for point in points:
            assert on_s3("delta", tmp_path, server, 1000, f"{point}=kill@2") != 0, point
        done = len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*")))
        assert on_s3("delta", tmp_path, server, done + 3) == 0
        told = {
            "endpoint": server.url, "region": "us-east-1", "allow_http": "true", "access_key_id": "all",
            "secret_access_key": SECRET,
        }  # fmt: skip
        table = DeltaTable("s3://lake/orders", storage_options=told)
        rows = table.to_pyarrow_table().to_pydict()
        audited = LakeReader(
            "delta",
            "orders",
            names=lambda path: server.names("lake", path),
            read=lambda name: server.read("lake", name),
        )
        assert Counter(row["value"] for row in audited.table()) == Counter(rows["value"])
        assert sorted(rows["value"]) == list(range(len(rows["value"])))
        assert rows["third"] == [value % 3 for value in rows["value"]]
        assert audited.epochs() == list(range(done + 3))
        assert len(audited.epochs()) * stored_files_job.ROWS_PER_EPOCH == len(rows["value"])
        assert (audited.orphans(), audited.notes()) == ([], [])
    written = [path for path in tmp_path.rglob("*") if path.is_file() and "s3" not in path.parts]
    assert any("events" in path.parts for path in written), "Spark's own log of its options"
    assert not [path for path in written if SECRET.encode() in path.read_bytes()]


@pytest.mark.long
def test_each_epoch_is_one_snapshot_of_a_table_in_a_warehouse_on_s3_whatever_is_killed(
    tmp_path: Path,
) -> None:
    with EmbeddedS3(tmp_path / "s3") as server:
        server.make_bucket("lake")
        told = {"s3.endpoint": server.url, "s3.region": "us-east-1", "s3.access-key-id": "all"}
        place = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": "s3a://lake/orders"}
        with SqlCatalog("default", **place) as catalog:
            catalog.create_namespace("sales")
        for point in POINTS:
            assert on_s3("iceberg", tmp_path, server, 1000, f"{point}=kill@2") != 0, point
        done = len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*")))
        assert on_s3("iceberg", tmp_path, server, done + 3) == 0
        with SqlCatalog("default", **place, **told, **{"s3.secret-access-key": SECRET}) as catalog:
            table = catalog.load_table("sales.orders")
            rows = table.scan().to_arrow().to_pydict()
        assert sorted(rows["value"]) == list(range(len(rows["value"])))
        summaries = [each.summary for each in table.snapshots()]
        epochs = [int(str(summary["onceonly.epoch"])) for summary in summaries if summary is not None]
        assert epochs == list(range(done + 3))
        assert len(epochs) * stored_files_job.ROWS_PER_EPOCH == len(rows["value"])
    written = [path for path in tmp_path.rglob("*") if path.is_file() and "s3" not in path.parts]
    assert not [path for path in written if SECRET.encode() in path.read_bytes()]


def on_s3(way: str, folder: Path, server: EmbeddedS3, epochs: int, failpoints: str = "") -> int:
    """Run the job to its end, or to where it is killed; return its status."""
    told = [way, str(epochs), str(folder), "s3a://lake/orders", json.dumps(server.hadoop())]
    run = harness.start(stored_files_job.__file__, folder, *told, failpoints=failpoints)
    try:
        return run.wait(300)
    finally:
        run.kill_tree()


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
