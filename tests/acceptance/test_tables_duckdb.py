"""DuckDB's own readers of Delta and Iceberg, which share no code with the libraries that the sinks write by.

They come in packages beside an older DuckDB than the one in the lock, so they have a folder of their own in the cache
folder, and a process of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pytest
from deltalake import DeltaTable
from table_rows import COLUMNS, SCHEMA, SHOPS, batch
from tests.unit import iceberg_bench
from tests.unit.loaded_bench import Bench

from onceonly.jars.locked import UNFINISHED, alone_in, cache_folder
from onceonly.sinks.delta import DeltaSink
from onceonly.sinks.iceberg import IcebergSink

Rows: TypeAlias = list[list[str | None]]


class Asked(Protocol):
    """Asks a table of DuckDB's readers; rows come as texts, sorted by the first."""

    def __call__(self, table: str, what: str, where: str = "true") -> Rows: ...


pytestmark = [pytest.mark.acceptance, pytest.mark.long, pytest.mark.timeout(600)]

VERSION = "1.5.5"
PACKAGES = ("duckdb", "duckdb-extension-delta", "duckdb-extension-iceberg", "duckdb-extension-avro")
PROGRAM = """
import duckdb, importlib.resources, json, sys
con = duckdb.connect()
con.execute("set TimeZone = 'UTC'")
for name in ("avro", "iceberg", "delta"):
    files = importlib.resources.files(f"duckdb_extension_{name}")
    con.execute(f"load '{files}/extensions/v{duckdb.__version__}/{name}.duckdb_extension'")
found = con.execute(sys.argv[1]).fetchall()
print(json.dumps([[None if each is None else str(each) for each in row] for row in found]))
"""


@pytest.fixture(scope="module")
def asked() -> Asked:
    """Ask DuckDB, and get its rows as texts."""
    folder = cache_folder() / "duckdb"
    place = folder / VERSION
    with alone_in(folder):
        if not place.is_dir():
            unfinished = tempfile.mkdtemp(prefix=UNFINISHED, dir=folder)
            subprocess.run(
                [
                    sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                    "--target", unfinished, *(f"{name}=={VERSION}" for name in PACKAGES),
                ],
                check=True,
            )  # fmt: skip
            Path(unfinished).rename(place)

    def ask(table: str, what: str, where: str = "true") -> Rows:
        env = {**os.environ, "PYTHONPATH": str(place)}
        query = f"select {what} from {table} where {where} order by 1"  # noqa: S608  of this test
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, query], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        found: Rows = json.loads(done.stdout)
        return found

    return ask


def see_the_rows(asked: Asked, table: str) -> None:
    """See that a table holds rows 0 to 14, whole, and that what is asked by value or by partition is found."""
    found = asked(table, 'id, day, shop, "at", price')
    assert found == [
        [
            str(number),
            f"2026-11-{20 + number % 3}",
            SHOPS[number % len(SHOPS)],
            "2026-11-21 12:00:00.123456+00:00",
            f"0.{number:02d}",
        ]
        for number in range(15)
    ]

    def ids(where: str) -> list[int]:
        return [int(row[0] or "") for row in asked(table, "id", where)]

    assert ids("shop = '50%'") == [2, 8, 14]
    assert ids("shop is null") == [5, 11]
    assert ids("day = '2026-11-21'") == [1, 4, 7, 10, 13]
    assert ids("id > 8 and price < 0.11") == [9, 10]
    assert ids("\"at\" > timestamptz '2026-11-21 12:00:00.123456+00'") == []


def test_what_the_delta_sink_writes_duckdb_reads(asked: Asked, tmp_path: Path) -> None:
    path = tmp_path / "table"
    bench = Bench(
        DeltaSink, "delta", {"path": str(path), "create": "true", "partitionBy": "day,shop"}, COLUMNS
    )
    bench.committed(batch(*range(12)))
    waiting: Any = bench.prepared(batch(99), epoch=1)
    table = f"delta_scan('{path}')"
    assert asked(table, "count(*)") == [["12"]]  # nobody sees what is not decided
    bench.sink().abort(waiting)
    bench.committed(batch(12, 13, 14), epoch=2)
    see_the_rows(asked, table)
    DeltaTable(path).create_checkpoint()
    see_the_rows(asked, table)


def test_what_the_iceberg_sink_writes_duckdb_reads(asked: Asked, tmp_path: Path) -> None:
    options = iceberg_bench.options_of(tmp_path)
    iceberg_bench.make_table(options, SCHEMA)
    bench = Bench(IcebergSink, "iceberg", options, COLUMNS)

    def table() -> str:
        return f"iceberg_scan('{iceberg_bench.opened(options).metadata_location.removeprefix('file://')}')"

    bench.committed(batch(*range(12)))
    waiting: Any = bench.prepared(batch(99), epoch=1)
    assert asked(table(), "count(*)") == [["12"]]  # nobody sees what is not decided
    bench.sink().abort(waiting)
    bench.committed(batch(12, 13, 14), epoch=2)
    see_the_rows(asked, table())
