"""``onceonly doctor --for``: each fault of a job that was not started yet trips its probe and no other."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
from collections import namedtuple
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.operator_bench import run

from onceonly.cli.doctor import BEFORE
from onceonly.jars.installed import Spark
from onceonly.operations import before_start, planned_job
from onceonly.operations.probes import Health

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SPARK = Spark(version="4.2.0", scala="2.13")
Description = dict[str, Any]


@pytest.fixture(autouse=True)
def spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(before_start, "installed", lambda: SPARK)


@pytest.fixture
def described(tmp_path: Path) -> Description:
    """A job that is well: files to a table of SQLite, with dead letters."""
    (tmp_path / "in").mkdir()
    (tmp_path / "cp").mkdir()
    with sqlite3.connect(tmp_path / "db") as db:
        db.execute("CREATE TABLE t (id INTEGER, app TEXT)")
    return {
        "format": "onceonly.sqlite",
        "columns": {"id": "bigint", "app": "string"},
        "source": {"format": "json", "options": {"path": str(tmp_path / "in")}},
        "trigger": "10 seconds",
        "outage": "1 hour",
        "options": {
            "checkpointLocation": str(tmp_path / "cp" / "orders"),
            "url": f"sqlite:///{tmp_path / 'db'}",
            "table": "t",
            "onceonly.refused": "deadletter",
            "onceonly.deadletter.format": "onceonly.files",
            "onceonly.deadletter.option.path": str(tmp_path / "letters"),
        },
    }


def sick(described: Description, folder: Path, *, agreed: bool = True) -> dict[tuple[str, str], str]:
    """Say what is not well and what is to be done, and see that nothing was left in the checkpoint's folder."""
    file = folder / "job.json"
    file.write_text(json.dumps(described))
    before = sorted((folder / "cp").rglob("*"))
    found = before_start.examine(planned_job.read(file), agreed=agreed, within_s=20)
    assert sorted((folder / "cp").rglob("*")) == before
    assert {each.category for each in found} <= set(BEFORE)
    ill = [each for each in found if each.health is not Health.WELL]
    assert all(each.told and each.next_step for each in ill), ill
    return {(each.category, each.probe): each.next_step for each in ill}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{"format": "onceonly.kafka",\n "options": {"topic": "t",\n  "onceonly.Gurantee": "x"}}',
            "(line 3 of {})",
        ),
        (
            '{"format": "kafka",\n "options": {"checkpointLocation": "/nowhere",\n  "onceonly.history": "no"}}',
            "(line 3 of {})",
        ),
        ('{"format": "onceonly.kafka",\n "options": {"topic": "t",}}', "), in line 2"),
    ],
)
def test_an_option_that_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "job.json"
    file.write_text(text, encoding="utf-8")
    done = run("doctor", "--for", file, "--only", "options", "--yes")
    assert said.format(file) in done.stdout + done.stderr


def test_nothing_is_wrong_with_a_job_that_is_well(described: Description, tmp_path: Path) -> None:
    assert sick(described, tmp_path) == {}
    assert sick(described, tmp_path) == {}, "what a first start makes may be there"


def test_options_that_are_wrong_are_told_whatever_was_asked_for(
    described: Description, tmp_path: Path
) -> None:
    file = tmp_path / "job.json"
    described["options"]["tabel"] = "t"
    file.write_text(json.dumps(described))
    done = run("doctor", "--for", file, "--yes", "--only", "disk", "--json")
    assert done.returncode == 1
    (found,) = json.loads(done.stdout)["findings"]
    assert found["category"] == "options"
    assert "tabel" in found["told"]


def test_a_category_that_is_not_probed_there_is_refused(described: Description, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(described))
    for more in (("--only", "clocks", "--for", file), ("--only", "options", "--only", "disk", tmp_path)):
        done = run("doctor", "--yes", *more)
        assert done.returncode == 64
        assert "nothing was probed" in done.stderr
        assert not done.stdout


@pytest.mark.parametrize("form", ["json", "parquet", "csv", "orc", "text"])
def test_nor_with_one_that_writes_files(described: Description, tmp_path: Path, form: str) -> None:
    columns = {"value": "string"} if form == "text" else described["columns"]
    options = {
        "path": str(tmp_path / "out"),
        "format": form,
        "checkpointLocation": str(tmp_path / "cp" / "c"),
    }
    assert (
        sick({**described, "format": "onceonly.files", "columns": columns, "options": options}, tmp_path)
        == {}
    )


def test_what_would_change_something_is_not_tried_unless_it_is_agreed_to(
    described: Description, tmp_path: Path
) -> None:
    found = sick(described, tmp_path, agreed=False)
    assert set(found) == {
        ("store", "keeps its laws"), ("targets", "takes the rows"), ("targets", "takes dead letters"),
    }  # fmt: skip
    assert not (tmp_path / "letters").exists()
    with sqlite3.connect(tmp_path / "db") as db:
        assert [name for (name,) in db.execute("SELECT name FROM sqlite_master")] == ["t"]


def option(name: str, value: str | None) -> Callable[[Description], None]:
    def change(described: Description) -> None:
        if value is None:
            del described["options"][name]
        else:
            described["options"][name] = value

    return change


def foreign_epochs(described: Description) -> None:
    location = described["options"]["checkpointLocation"]
    os.makedirs(f"{location}/commits")  # noqa: PTH103  a text
    with open(f"{location}/commits/3", "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write("v1\n{}")


def kafka_source(**spark: str) -> Callable[[Description], None]:
    def change(described: Description) -> None:
        # Nobody listens there, and only its jars are asked for.
        described["source"] = {"format": "kafka", "options": {"subscribe": "a"}}
        described["spark"] = {name.replace("_", "."): text for name, text in spark.items()}

    return change


FAULTS: dict[str, tuple[Callable[[Description], object], tuple[str, str]]] = {
    "no such format": (lambda each: each.update(format="onceonly.sqlit"), ("options", "are known")),
    "an option that nobody knows": (option("tabel", "t"), ("options", "are known")),
    "an option that is missing": (option("table", None), ("options", "are known")),
    "no checkpoint": (option("checkpointLocation", None), ("options", "are known")),
    "a value that it cannot have": (option("onceonly.history", "few"), ("options", "are known")),
    "an unknown option of onceonly": (option("onceonly.guarante", "exactly-once"), ("options", "are known")),
    "a guarantee that the sink has not": (option("onceonly.guarantee", "at-most-once"), ("options", "are known")),
    "letters for nobody": (option("onceonly.deadletter.format", "onceonly.nowhere"), ("options", "are known")),
    "letters without a sink": (option("onceonly.deadletter.format", None), ("options", "are known")),
    "a checkpoint of another sink": (foreign_epochs, ("store", "is new")),
    "a column that the table has not": (
        lambda each: each["columns"].update(other="string"), ("targets", "takes the rows")
    ),
    "a type that the table's column does not take": (
        lambda each: each["columns"].update(id="array<int>"), ("targets", "takes the rows")
    ),
    "no such table": (option("table", "u"), ("targets", "takes the rows")),
    "no such database": (option("url", "sqlite:////nowhere/db"), ("targets", "takes the rows")),
    "letters where nothing can be made": (
        option("onceonly.deadletter.option.path", "/proc/letters"), ("targets", "takes dead letters")
    ),
    "a source's folder that is not there": (
        lambda each: each["source"]["options"].update(path="/nowhere"), ("source", "can be read")
    ),
    "a Delta table that is not there": (
        lambda each: each.update(source={"format": "delta", "options": {"path": "/nowhere"}}),
        ("source", "can be read"),
    ),
    "a folder that is no Delta table": (
        lambda each: each["source"].update(format="delta"), ("source", "can be read")
    ),
    "what another source reads is not there": (
        lambda each: each.update(source={"format": "iceberg", "options": {"path": "/nowhere"}}),
        ("source", "can be read"),
    ),
    "a lag group without a topic": (option("onceonly.lag.group", "g"), ("lag", "has a group")),
}  # fmt: skip


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_each_fault_trips_its_probe_and_no_other(described: Description, tmp_path: Path, fault: str) -> None:
    inject, probe = FAULTS[fault]
    inject(described)
    assert set(sick(described, tmp_path)) == {probe}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"spark_jars": "/nowhere/spark-sql-kafka-0-10_2.13-4.2.0.jar"},
        {"spark_jars_packages": "org.apache.spark:spark-sql-kafka-0-10_2.12:4.2.0"},
        {"spark_jars_packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:3.5.1"},
    ],
    ids=["none", "not there", "another Scala", "another Spark"],
)
def test_a_connector_that_this_spark_cannot_use(
    described: Description, tmp_path: Path, given: dict[str, str]
) -> None:
    kafka_source(**given)(described)
    (tmp_path / "job.json").write_text(json.dumps(described))
    job = planned_job.read(tmp_path / "job.json")
    [found] = before_start.examine(job, agreed=True, only=["jars"], within_s=20)
    assert (found.health, found.next_step) == (
        Health.SICK,
        "set spark.jars to what `onceonly jars --spark` prints",
    )
    good = {"spark_jars_packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"}
    kafka_source(**good)(described)
    (tmp_path / "job.json").write_text(json.dumps(described))
    job = planned_job.read(tmp_path / "job.json")
    assert [each.health for each in before_start.examine(job, agreed=True, only=["jars"], within_s=20)] == [
        Health.WELL
    ]


def test_a_spark_that_is_too_old(
    described: Description, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(before_start, "installed", lambda: Spark(version="3.4.1", scala="2.12"))
    assert set(sick(described, tmp_path)) == {("versions", "Spark")}


def test_a_disk_that_is_full(described: Description, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")  # noqa: PYI024  as shutil's own
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(1, 1, 1 << 20))
    assert set(sick(described, tmp_path)) == {("disk", "room")}


def test_a_file_system_that_puts_one_name_over_another(
    described: Description, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", shutil.copy)
    monkeypatch.setitem(described["options"], "onceonly.refused", "stop")
    for name in ("onceonly.deadletter.format", "onceonly.deadletter.option.path"):
        del described["options"][name]
    assert set(sick(described, tmp_path)) == {("store", "keeps its laws")}


def test_a_setting_that_a_probe_names_cures_when_it_is_made(described: Description, tmp_path: Path) -> None:
    foreign_epochs(described)
    [step] = sick(described, tmp_path).values()
    named = re.search(r"set ([\w.]+)=(\S+)", step)
    assert named is not None
    described["options"][named[1]] = named[2]
    assert sick(described, tmp_path) == {}


def test_a_command_that_a_probe_names_cures_when_it_is_typed(described: Description, tmp_path: Path) -> None:
    described["source"]["options"]["path"] = str(tmp_path / "not" / "yet")
    [step] = sick(described, tmp_path).values()
    assert os.system(step) == 0  # noqa: S605  as a user types it
    assert sick(described, tmp_path) == {}


def test_a_delta_table_is_not_made_by_a_folder(described: Description, tmp_path: Path) -> None:
    for path in (tmp_path / "in", tmp_path / "not" / "yet"):
        described["source"] = {"format": "delta", "options": {"path": str(path)}}
        [step] = sick(described, tmp_path).values()
        assert "mkdir" not in step
        assert "have the table made there" in step
    (tmp_path / "in" / "_delta_log").mkdir()
    described["source"]["options"]["path"] = str(tmp_path / "in")
    assert sick(described, tmp_path) == {}


@pytest.mark.parametrize("text", ["[]", "{", '{"options": {}}', '{"format": "x", "nonsense": 1}',
                                  '{"format": "x", "trigger": "soon"}'])  # fmt: skip
def test_a_file_that_describes_no_job_is_refused_in_words(tmp_path: Path, text: str) -> None:
    (tmp_path / "job.json").write_text(text)
    told = run("doctor", "--for", tmp_path / "job.json")
    assert told.returncode == 64
    assert "next:" in told.stderr
    assert "Traceback" not in told.stderr


def test_the_command_line_says_it_by_its_exit_status(described: Description, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    described["options"]["password"] = "hunter2"  # noqa: S105
    file.write_text(json.dumps(described))
    told = run("doctor", "--for", file, "--yes")
    assert (told.returncode, "hunter2" in told.stdout + told.stderr) == (1, False)
    del described["options"]["password"]
    file.write_text(json.dumps(described))
    assert run("doctor", "--for", file, "--yes").returncode == 0
    told = run("doctor", "--for", file, "--json", "--only", "targets")
    assert told.returncode == 2
    assert {each["health"] for each in json.loads(told.stdout)["findings"]} == {"unknown"}
