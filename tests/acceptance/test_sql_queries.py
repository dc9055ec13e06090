"""The SQL sinks under real Spark: by a format with the driver killed in its commit, and by foreachBatch."""

from __future__ import annotations

import json
import sqlite3
import uuid
from contextlib import closing
from typing import TYPE_CHECKING, Any

import harness
import left_out_job
import psycopg
import pytest
import sql_job
from pyspark.errors import StreamingQueryException
from test_operators_view import assert_well
from test_operators_view import onceonly as onceonly_typed

import onceonly
from onceonly.operations import audit as operation
from onceonly.operations.audit import Word
from onceonly.operations.find import open_checkpoint
from onceonly.operations.given import Given
from ways import WAIT_S, spark  # noqa: F401  a fixture

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness import Run
    from pyspark.sql import SparkSession

    from onceonly_proof.embedded.postgres import EmbeddedPostgres

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(900)]

TABLE = "CREATE TABLE results (id BIGINT PRIMARY KEY, name TEXT, amount {}, at TIMESTAMP{}, even BOOLEAN)"
EPOCHS = 3


def start(folder: Path, sink: str, options: dict[str, str], failpoints: str = "") -> Run:
    """Start a life of the job."""
    told = [sink, str(EPOCHS), str(folder / "checkpoint"), json.dumps(options)]
    return harness.start(sql_job.__file__, folder, *told, failpoints=failpoints)


def survives(
    folder: Path,
    sink: str,
    options: dict[str, str],
    points: list[str],
    read: Callable[[], list[tuple[Any, ...]]],
) -> None:
    """Kill a life at each point, let the last one end, and see each row of each whole epoch once."""
    for point in points:
        run = start(folder, sink, options, f"{point}=pause@2")
        try:
            run.wait_for(point)
        finally:
            run.kill_tree()
        assert len(read()) % sql_job.ROWS_PER_EPOCH == 0
    run = start(folder, sink, options)
    try:
        assert run.wait() == 0, run.tail()
    finally:
        run.kill_tree()
    found = read()
    assert [row[0] for row in found] == list(range(len(found)))
    assert len(found) >= EPOCHS * sql_job.ROWS_PER_EPOCH
    assert found[9][1:] == ("row 9", "1.125", 9, False)
    assert not list((folder / "checkpoint" / "onceonly" / "staged").rglob("*.arrow"))
    assert_well(folder / "checkpoint", "--yes", "--option", f"url={options['url']}")


def test_a_driver_killed_in_its_commit_to_sqlite_loses_and_doubles_nothing(tmp_path: Path) -> None:
    database = tmp_path / "r.db"

    def read() -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(database, timeout=60)) as db:
            found = db.execute("SELECT id, name, amount, at, even FROM results ORDER BY id").fetchall()
        return [(id_, name, amount, int(at[20:26]), bool(even)) for id_, name, amount, at, even in found]

    with closing(sqlite3.connect(database)) as db, db:
        db.execute(TABLE.format("TEXT", ""))
    options = {"url": f"sqlite:///{database}", "table": "results"}
    survives(tmp_path, "sql", options, ["commit.after_handle"], read)
    assert audited(tmp_path / "checkpoint") == (Word.SAME, ()), "read back as Spark has given it"
    with closing(sqlite3.connect(database)) as db, db:
        db.execute("UPDATE results SET amount = '1.126' WHERE id = 9")
    assert audited(tmp_path / "checkpoint")[0] is Word.DIFFERS


def test_rows_that_a_constraint_refuses_are_letters_and_no_row_is_lost_or_doubled_by_a_kill(
    tmp_path: Path, postgres: EmbeddedPostgres
) -> None:
    letters, name = tmp_path / "letters", f"db_{uuid.uuid4().hex}"
    with closing(psycopg.connect(postgres.url(), autocommit=True)) as db:
        db.execute(f'CREATE DATABASE "{name}"')
    url = postgres.url(database=name)
    with closing(psycopg.connect(url, autocommit=True)) as db:
        db.execute(TABLE.format("numeric(12, 3)", "TZ"))
        db.execute("ALTER TABLE results ADD CHECK (id % 20 <> 7)")
        options = {
            "url": url, "table": "results", "onceonly.refused": "deadletter",
            "onceonly.deadletter.format": "onceonly.files", "onceonly.deadletter.option.path": str(letters),
            "onceonly.deadletter.option.format": "json",
        }  # fmt: skip
        for point in ("rehearsal.after_divert", "link.after_put", ""):
            run = start(tmp_path, "sql", options, f"{point}=pause@2" if point else "")
            try:
                if point:
                    run.wait_for(point)
                else:
                    assert run.wait() == 0, run.tail()
            finally:
                run.kill_tree()
        found = [id_ for (id_,) in db.execute("SELECT id FROM results ORDER BY id")]
    lines = [line for path in harness.visible_files(letters) for line in path.read_text().splitlines()]
    dead = [json.loads(json.loads(line)["row"])["id"] for line in lines]
    last = max(*found, *dead)
    assert last >= EPOCHS * sql_job.ROWS_PER_EPOCH - 1
    assert found == [id_ for id_ in range(last + 1) if id_ % 20 != 7]
    assert sorted(dead) == [id_ for id_ in range(last + 1) if id_ % 20 == 7]
    assert {json.loads(line)["code"] for line in lines} == {"REFUSED"}
    assert_well(tmp_path / "checkpoint", "--yes", "--option", f"url={url}")


@pytest.mark.long
def test_rows_that_no_target_takes_any_more_are_left_out_after_their_epoch_is_aborted(tmp_path: Path) -> None:
    """Nobody may change the table, and the epoch was decided without a sink for dead letters."""
    database = tmp_path / "r.db"
    (tmp_path / "in").mkdir()

    def life(*left_out: str, point: str = "") -> str:
        run = harness.start(left_out_job.__file__, tmp_path, str(tmp_path), *left_out, failpoints=point)
        try:
            return run.tail() if run.wait() else "ended well"
        finally:
            run.kill_tree()

    with closing(sqlite3.connect(database)) as db, db:
        db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    (tmp_path / "in" / "0.json").write_text('{"id": 1}\n', encoding="utf-8")
    assert life() == "ended well"
    (tmp_path / "in" / "1.json").write_text('{"id": 2}\n{"id": 3}\n', encoding="utf-8")
    assert life(point="link.after_put=kill") != "ended well"
    with closing(sqlite3.connect(database)) as db, db:
        db.execute(
            "CREATE TRIGGER no_twos BEFORE INSERT ON t WHEN new.id = 2 BEGIN SELECT raise(ABORT, 'no twos'); END"
        )
    assert "COMMIT_REFUSED" in life()
    because = ("--against-decision", "--because", "the table takes no twos", "--yes")
    status, _, said = onceonly_typed("transactions", "abort", "chk-1", tmp_path / "checkpoint", *because)
    assert status in {0, 1}, said
    assert "no twos" in life(), "before a decision"
    assert life("2") == "ended well"
    with closing(sqlite3.connect(database)) as db:
        assert db.execute("SELECT id FROM t ORDER BY id").fetchall() == [(1,), (3,)]


def audited(checkpoint: Path) -> tuple[Word, tuple[str, ...]]:
    """Return what is found of all rows of a table."""
    last = operation.audit(open_checkpoint(str(checkpoint)), Given(), within_s=60).findings[-1]
    assert last.epoch is None
    return last.word, last.told


@pytest.mark.parametrize(
    "points",
    [
        ["commit.after_handle"],
        pytest.param(
            ["link.after_put", "commit.before_handle", "receipt.before_put", "slot.after_prepare"],
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_driver_killed_in_its_commit_to_postgresql_loses_and_doubles_nothing(
    postgres: EmbeddedPostgres, tmp_path: Path, points: list[str]
) -> None:
    name = f"t{uuid.uuid4().hex[:12]}"
    with closing(psycopg.connect(postgres.url(), autocommit=True)) as db:
        db.execute(f"CREATE DATABASE {name}")

    def read() -> list[tuple[Any, ...]]:
        with closing(psycopg.connect(postgres.url(database=name))) as db:
            micros = "round(extract(epoch from at) * 1000000)::bigint"
            sql = f"SELECT id, name, amount::text, {micros}, even FROM results ORDER BY id"  # noqa: S608
            return db.execute(sql).fetchall()

    with closing(psycopg.connect(postgres.url(database=name), autocommit=True)) as db:
        db.execute(TABLE.format("NUMERIC(12,3)", "TZ"))
    options = {"url": postgres.url(database=name), "table": "public.results", "key": "id"}
    survives(tmp_path, "postgres", options, points, read)


def test_totals_are_replaced_by_key_in_update_mode(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    rows = onceonly.collection(
        spark, [(n, f"app{n % 3}") for n in range(60)], "id long, app string", rows_per_epoch=20, partitions=2
    )
    checkpoint = str(tmp_path / "checkpoint")
    sink = onceonly.sink(
        "onceonly.sqlite", url=f"sqlite:///{tmp_path / 'r.db'}", table="totals", key="app", create="true",
        checkpointLocation=checkpoint,
    )  # fmt: skip
    query = (
        rows.groupBy("app").count().writeStream.outputMode("update").trigger(availableNow=True)
        .option("checkpointLocation", checkpoint).foreachBatch(sink).start()
    )  # fmt: skip
    assert query.awaitTermination(WAIT_S)
    with closing(sqlite3.connect(tmp_path / "r.db")) as db:
        assert db.execute("SELECT * FROM totals ORDER BY app").fetchall() == [
            (f"app{n}", 20) for n in range(3)
        ]


def test_a_mistake_is_told_in_a_sentence(spark: SparkSession, tmp_path: Path) -> None:  # noqa: F811
    with closing(sqlite3.connect(tmp_path / "r.db")) as db, db:
        db.execute("CREATE TABLE results (id BIGINT)")
    rows = onceonly.collection(spark, [(1, "a")], "id long, app string", rows_per_epoch=1, partitions=1)
    query = (
        rows.writeStream.format("onceonly.sql").trigger(availableNow=True)
        .options(url=f"sqlite:///{tmp_path / 'r.db'}", table="results", checkpointLocation=str(tmp_path / "chk"))
        .start()
    )  # fmt: skip
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(WAIT_S)
    shown = onceonly.explain(raised.value)
    assert "results has no column app" in shown
    assert "Traceback" not in shown
