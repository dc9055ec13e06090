"""After a bad release, a job goes back to a savepoint, and its table takes back what was written since."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import duckdb
import harness
import pyarrow as pa
import pytest
import table_job
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from savepoint_job import newest
from test_operators_view import assert_well, onceonly

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900), pytest.mark.long]

BAD = "value + 1000000"
STRANGER = -1
"""A row of somebody else's, put between two epochs of the bad release."""


class Job:
    """The job of ``table_job.py`` on one table, whichever checkpoint it has."""

    def __init__(self, form: str, options: dict[str, str]) -> None:
        self.form, self.options = form, options

    def run(self, folder: Path, epochs: int, value: str = "value") -> None:
        folder.mkdir(exist_ok=True)
        told = [self.form, str(epochs), str(folder), json.dumps(self.options), value]
        run = harness.start(table_job.__file__, folder, *told)
        try:
            assert run.wait() == 0, run.tail()
        finally:
            run.kill_tree()


def go_back(job: Job, folder: Path, read: Callable[[], Counter[int]], meddle: Callable[[], None]) -> None:
    """Have the job write, a bad release after it, and go back; compare with the job that was never stopped."""
    one, two, place = folder / "one", folder / "two", folder / "place"
    job.run(one, 3)
    status, made, said = onceonly("savepoint", "create", one / "checkpoint", place)
    assert status == 0, said
    good = read()
    assert good == Counter(range((made["epoch"] + 1) * table_job.ROWS_PER_EPOCH))
    job.run(one, made["epoch"] + 3, BAD)
    meddle()
    job.run(one, made["epoch"] + 5, BAD)
    bad = Counter(value for value in read().elements() if value >= 1_000_000)
    assert bad.total() >= 4 * table_job.ROWS_PER_EPOCH
    restore = ("savepoint", "restore", place, "--to", two / "checkpoint")
    status, _, said = onceonly(*restore)
    assert (status, f"{bad.total()} rows of chk-{made['epoch'] + 1} to" in said) == (64, True), said
    assert read() == good + bad + Counter([STRANGER])
    # Killed once the table has taken it back, it is run again.
    status, _, said = onceonly(
        *restore, "--output", "withdraw", "--yes", ONCEONLY_FAILPOINTS="savepoint.before_id=kill"
    )
    assert status == -9, said
    status, told, said = onceonly(*restore, "--output", "withdraw", "--yes")
    assert (status, told["query"] == told["of"]) == (0, True), said
    assert read() == good + Counter([STRANGER])
    job.run(two, made["epoch"] + 5)
    epochs = newest(two / "checkpoint") + 1
    assert epochs >= made["epoch"] + 5
    assert read() == Counter([STRANGER, *range(epochs * table_job.ROWS_PER_EPOCH)])
    assert_well(two / "checkpoint")


def values(paths: list[str]) -> Counter[int]:
    """Read files with DuckDB, as another program does that was told them by the table."""
    with duckdb.connect() as db:
        found = db.read_parquet(paths).project("value").fetchall() if paths else []
    return Counter(value for (value,) in found)


def test_a_delta_table_takes_back_a_bad_release(tmp_path: Path) -> None:
    path = tmp_path / "table"

    def read() -> Counter[int]:
        table = DeltaTable(path)
        found = Counter(table.to_pyarrow_table()["value"].to_pylist())
        assert found == values(table.file_uris())
        return found

    def meddle() -> None:
        row = pa.table({"value": [STRANGER], "third": pa.array([0], pa.int32())})
        write_deltalake(path, row, mode="append")

    go_back(Job("onceonly.delta", {"path": str(path), "create": "true"}), tmp_path, read, meddle)


def test_an_iceberg_table_takes_back_a_bad_release(tmp_path: Path) -> None:
    place = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    with SqlCatalog("default", **place) as catalog:
        catalog.create_namespace("sales")

    def read() -> Counter[int]:
        with SqlCatalog("default", **place) as catalog:
            scan = catalog.load_table("sales.orders").scan()
            found = Counter(scan.to_arrow()["value"].to_pylist())
            paths = [task.file.file_path.removeprefix("file://") for task in scan.plan_files()]
        assert found == values(paths)
        return found

    def meddle() -> None:
        with SqlCatalog("default", **place) as catalog:
            table = catalog.load_table("sales.orders")
            table.append(pa.table({"value": [STRANGER], "third": pa.array([0], pa.int32())}))

    options = {f"catalog.{name}": value for name, value in place.items()}
    options |= {"catalog.type": "sql", "table": "sales.orders", "create": "true"}
    go_back(Job("onceonly.iceberg", options), tmp_path, read, meddle)
