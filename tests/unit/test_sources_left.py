"""``savepoint restore`` and ``fork`` look whether sources have what is read again, if it is said where they are."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from tests.unit.journal_bench import opened, rows
from tests.unit.operator_bench import BOX, QueryCoordinator, run

from onceonly import savepoints
from onceonly.errors import ConfigurationError
from onceonly.operations import sources_left
from onceonly.sources.journal.place import Journal
from onceonly.sources.journal.reader import Reader

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.guards.source import Finding, Source

KAFKA = '{"orders":{"0":7}}'
KINESIS = '{"version":1,"reader":"r","number":3,"made":"1.000","start":{},"done":[],"groups":[],"until":null}'
RABBITMQ = '{"version":1,"offset":4,"mark":"ab","is_read":true}'
DELTA = '{"sourceVersion":1,"reservoirId":"d","reservoirVersion":4,"index":-1,"isStartingVersion":false}'
ICEBERG = '{"version":1,"snapshot_id":4,"position":1,"scan_all_files":false}'
JOURNAL = '{"journal":"j","reader":"r","segment":4}'


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            KAFKA,
            "topics of Kafka, and nobody has looked whether it still has what is read again: --source kafka.boot",
        ),
        (KINESIS, "a stream of Kinesis, and nobody has looked"),
        (RABBITMQ, "a stream of RabbitMQ, and nobody has looked"),
        (
            DELTA,
            "a Delta table, and nobody has looked whether it still has what is read again: --source path=PLACE",
        ),
        (ICEBERG, "an Iceberg table, and nobody has looked"),
        (
            JOURNAL,
            "a journal, and nobody has looked whether it still has what is read again: --source journal=PLACE",
        ),
    ],
)
def test_what_nobody_could_ask_is_told_with_what_has_it_done(line: str, told: str) -> None:
    (sentence,) = sources_left.refuse_missing((line,), {}, {}, epoch=3)
    assert told in sentence


@pytest.mark.parametrize("line", ['{"logOffset":7}', "7", "-", '{"count":3}', "[1]"])
def test_other_sources_have_nothing_to_lose_or_are_looked_at_elsewhere(line: str) -> None:
    assert sources_left.refuse_missing((line,), {}, {}, epoch=3) == []


def test_an_option_of_no_source_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="by the option uri"):
        sources_left.refuse_missing((KAFKA,), {"uri": "amqp://x"}, {}, epoch=3)
    with pytest.raises(ConfigurationError, match="form NAME=VALUE") as caught:
        sources_left.given(["hunter2"], None)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("kafka.bootsrap.servers", "kafka.bootstrap.servers"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("kafka.sasl.mechanisms", "kafka.sasl.mechanism"),
    ],
)
def test_a_misspelt_option_of_a_source_is_one_of_the_source_with_the_nearest_to_type(
    slip: str, meant: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        sources_left.refuse_missing((KAFKA,), {slip: "h:1"}, {}, epoch=3)
    assert f"no source of this query is reached by the option {slip}" in caught.value.what
    assert caught.value.next_step == f"did you mean --source {meant}=…?"


@pytest.mark.parametrize(
    ("line", "options", "typed"),
    [
        (KAFKA, {"kafka.security.protocol": "SSL"}, "--source kafka.bootstrap.servers=HOST:PORT"),
        (RABBITMQ, {"stream": "s"}, "--source uri=URI --source stream=NAME"),
        (KINESIS, {"region": "r"}, "--source stream=NAME --source onceonly.ranges=PLACE"),
    ],
)
def test_what_an_option_lacks_is_said_as_it_is_typed(line: str, options: dict[str, str], typed: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be reached") as caught:
        sources_left.refuse_missing((line,), options, {}, epoch=3)
    assert caught.value.next_step == f"give {typed}"


def test_a_wrong_value_of_an_option_is_said_of_the_source() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "kafka.enable.idempotence": "maybe"}
    with pytest.raises(ConfigurationError) as caught:
        sources_left.refuse_missing((KAFKA,), given, {}, epoch=3)
    assert "sink" not in str(caught.value)


def test_a_journal_that_has_deleted_what_follows_is_refused_and_one_that_has_it_is_not(
    tmp_path: Path,
) -> None:
    place = tmp_path / "journal"
    with opened(place) as writer:
        for name in "abc":
            writer.append(rows(name))
        reader = Reader(Journal.at(str(place)))
        start = reader.initial().offset

        def look(**change: object) -> list[str]:
            offset = json.dumps({**start, **change})
            return sources_left.refuse_missing((offset,), {"journal": str(place)}, {}, epoch=3)

        assert look(segment=1) == []
        reader.commit(2)
        assert look(segment=1) == []
        reader.commit(3)
        assert look(segment=2) == []
        # What was read for good stands still, until whoever writes the journal tidies up.
        with pytest.raises(
            ConfigurationError, match="was read up to segment 2 for good, and the query goes on after 1"
        ):
            look(segment=1)
        writer.tidy(now=True)
        assert look(segment=2) == []
        with pytest.raises(ConfigurationError, match="what lies between is deleted, or will be"):
            look(segment=1)
        with pytest.raises(ConfigurationError, match="it was made anew"):
            look(segment=2, journal="another")
        with pytest.raises(ConfigurationError, match="is read by another query now"):
            look(segment=2, reader="another")
        (place / "reading").unlink()  # as `onceonly journal drop --reader` does
        assert look(segment=2) == []
        with pytest.raises(
            ConfigurationError, match="keeps no segments before 3, and the query goes on after 1"
        ):
            look(segment=1)
        reader.close()


@pytest.mark.parametrize("command", [("restore", "--sink", f"box={BOX}"), ("fork",)])
def test_restore_and_fork_tell_it_and_refuse_before_anything_is_made(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    query = QueryCoordinator(tmp_path / "query")
    query.complete(0, 1)
    savepoints.create(str(query.path), str(tmp_path / "place"))
    arguments: tuple[str | Path, ...] = ("savepoint", *command, tmp_path / "place", "--to", tmp_path / "to")
    done = run(*arguments, "--source", "uri=amqp://nowhere")
    assert (done.returncode, "by the option uri" in done.stderr) == (64, True)
    assert not (tmp_path / "to").exists()
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    assert "nobody has looked" in json.loads(done.stdout)["told"][0]


def test_each_of_several_sources_of_a_kind_is_reached_by_its_number() -> None:
    asked: list[tuple[object, dict[str, str]]] = []
    lines = ('{"orders":{"0":7}}', '{"logOffset":7}', '{"refunds":{"0":3}}')
    told = sources_left.refuse_missing(lines, {}, {}, epoch=3)
    assert ["--source 0:kafka" in told[0], "--source 2:kafka" in told[1]] == [True, True]
    given = {"kafka.security.protocol": "SSL", "2:kafka.bootstrap.servers": "two:1"}
    with pytest.raises(ConfigurationError, match="cannot be reached") as caught:
        sources_left.refuse_missing(lines, given, {}, epoch=3)
    assert caught.value.next_step == "give --source 0:kafka.bootstrap.servers=HOST:PORT"

    def gone_since(source: Source, at: object, *_known: object, **_more: object) -> list[Finding]:
        asked.append((at, source.options))
        return []

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("onceonly.guards.kafka.gone_since", gone_since)
        assert (
            sources_left.refuse_missing(lines, {**given, "kafka.bootstrap.servers": "one:1"}, {}, epoch=3)
            == []
        )
    ssl = {"kafka.security.protocol": "SSL"}
    assert asked == [
        ({"orders": {0: 7}}, {**ssl, "kafka.bootstrap.servers": "one:1"}),
        ({"refunds": {0: 3}}, {**ssl, "kafka.bootstrap.servers": "two:1"}),
    ]
    with pytest.raises(ConfigurationError, match="by the option 1:kafka"):
        sources_left.refuse_missing(lines, {"1:kafka.bootstrap.servers": "h:1"}, {}, epoch=3)


def test_a_delta_table_that_has_not_what_follows_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "a table"
    for number in range(4):
        deltalake.write_deltalake(place, pa.table({"n": [number]}), mode="append")
    table = deltalake.DeltaTable(place)

    def look(version: int, *, whole: bool = False, table_id: str = "") -> list[str]:
        offset = {
            "sourceVersion": 1, "reservoirId": table_id or str(table.metadata().id), "reservoirVersion": version,
            "index": 0 if whole else -1, "isStartingVersion": whole,
        }  # fmt: skip
        return sources_left.refuse_missing((json.dumps(offset),), {"path": str(place)}, {}, epoch=3)

    assert [look(version) for version in range(5)] == [[]] * 5
    with pytest.raises(
        ConfigurationError, match="ends at version 3, and the query has read up to 4: it was set back"
    ):
        look(5)
    with pytest.raises(ConfigurationError, match="was made anew: its id is"):
        look(2, table_id="another")
    table.create_checkpoint()
    for version in (0, 1):
        (place / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(ConfigurationError, match="begins with version 2, and the query goes on with 1"):
        look(1)
    assert [look(2), look(1, whole=True)] == [[], []]
    with pytest.raises(ConfigurationError, match="begins with version 2, and the query goes on with 1"):
        look(0, whole=True)
    shutil.rmtree(place)
    with pytest.raises(ConfigurationError, match="there is no Delta table in"):
        look(2)


def test_an_iceberg_table_that_has_not_what_follows_is_refused(tmp_path: Path) -> None:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    catalog.create_namespace("sales")
    rows_ = pa.table({"n": [1]})
    table = catalog.create_table("sales.orders", rows_.schema)
    snapshots: list[int] = []
    for _ in range(3):
        table.append(rows_)
        snapshots.append(table.metadata.current_snapshot_id or 0)
    given = {
        "table": "sales.orders", "catalog": "c", "catalog.type": "sql",
        "catalog.uri": f"sqlite:///{tmp_path}/catalog.db", "catalog.warehouse": tmp_path.as_uri(),
    }  # fmt: skip

    def look(snapshot: int | None, **more: str) -> list[str]:
        offset = {"version": 1, "snapshot_id": snapshot, "position": 1, "scan_all_files": False}
        return sources_left.refuse_missing((json.dumps(offset),), {**given, **more}, {}, epoch=3)

    assert [look(snapshot) for snapshot in (-1, *snapshots)] == [[]] * 4
    with pytest.raises(ConfigurationError, match="there is no Iceberg table sales"):
        look(snapshots[0], table="sales.refunds")
    table.maintenance.expire_snapshots().by_id(snapshots[0]).commit()
    with pytest.raises(ConfigurationError, match=f"has no snapshot {snapshots[0]} any more"):
        look(snapshots[0])
    table.refresh().manage_snapshots().set_current_snapshot(snapshots[1]).commit()
    assert look(snapshots[1]) == []
    with pytest.raises(ConfigurationError, match="was set back behind snapshot"):
        look(snapshots[2])
