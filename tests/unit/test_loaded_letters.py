"""Rows that a Delta or an Iceberg table cannot hold become dead letters, in a table of either kind, by one decision."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.unit import iceberg_bench, unreadable
from tests.unit.loaded_bench import Bench

from onceonly.coordinator.query import QueryCoordinator
from onceonly.errors import ConfigurationError, RecordRefusedError
from onceonly.executor.dead_letters import Letters
from onceonly.executor.slot import run_slot
from onceonly.model import Guarantee, Mode
from onceonly.ports import WriteContext
from onceonly.settings.query import LetterSettings, QuerySettings, SinkSettings
from onceonly.settings.registry import BUILT_IN, build

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.executor.ballot import Ballot
    from onceonly.model import Plan

COLUMNS = (("id", "bigint"), ("name", "string"))
SLOTS = ([(1, "a"), (2**40, "too large"), (3, "c")], [(4, "d"), (5, None)], [(2**41, "also")])
KEPT = [(1, "a"), (3, "c"), (4, "d")]
SCHEMA = pa.schema([pa.field("id", pa.int32()), pa.field("name", pa.string(), nullable=False)])
KINDS = ("delta", "iceberg")


class Job:
    """A query of three slots from one kind of table to another: ``main`` is there, that of the letters is made."""

    def __init__(self, folder: Path, main: str, letters: str, schema: pa.Schema = SCHEMA) -> None:
        self.checkpoint, self.kind, self.letters_kind = folder / "chk", main, letters
        (self.checkpoint / "offsets").mkdir(parents=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": "q"}))
        (self.checkpoint / "offsets" / "0").write_text('v1\n{}\n{"t":{"0":2}}')
        self.options = _options(main, folder / "main")
        self.letters = {**_options(letters, folder / "letters"), "create": "true"}
        if main == "delta":
            DeltaTable.create(self.options["path"], schema)
        else:
            iceberg_bench.make_table(self.options, schema)
        if letters == "iceberg":
            iceberg_bench.make_namespace(self.letters)
        self.settings = SinkSettings(
            name=main,
            options=self.options,
            letters=LetterSettings(format=f"onceonly.{letters}", options=self.letters),
        )

    def started(self) -> QueryCoordinator:
        settings = QuerySettings(checkpoint=str(self.checkpoint), commit_timeout_s=0.01)
        made = QueryCoordinator(settings, actor="driver", application=uuid.uuid4().hex)
        made.enlist(self.settings, BUILT_IN[self.kind], COLUMNS, BUILT_IN[self.letters_kind])
        return made

    def ballot(self, plan: Plan, slot: int) -> Ballot:
        beside = self.settings.of_letters
        assert beside is not None
        context = WriteContext(
            query="q", sink=self.kind, run="r", epoch=0, plan=plan.id, slot=slot, attempt=str(slot),
            guarantee=Guarantee.EXACTLY_ONCE, facts=plan.facts[self.kind], gives_back=True, mode=plan.mode,
        )  # fmt: skip
        letters = Letters(build(beside, BUILT_IN[self.letters_kind]), plan, context, limit=9)
        batch = pa.RecordBatch.from_pylist([{"id": number, "name": name} for number, name in SLOTS[slot]])
        return run_slot(build(self.settings, BUILT_IN[self.kind]), plan, context, [batch], letters=letters)

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted((row["id"], row["name"]) for row in _read(self.kind, self.options))

    def dead(self) -> list[dict[str, Any]]:
        return _read(self.letters_kind, self.letters)


def _options(kind: str, folder: Path) -> dict[str, str]:
    folder.mkdir()
    return {"path": str(folder / "table")} if kind == "delta" else iceberg_bench.options_of(folder)


def _read(kind: str, options: dict[str, str]) -> list[dict[str, Any]]:
    if kind == "iceberg":
        return iceberg_bench.rows_of(options)
    return DeltaTable(options["path"]).to_pyarrow_table().to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("letters", KINDS)
@pytest.mark.parametrize("main", KINDS)
def test_rows_that_a_table_cannot_hold_are_letters_in_another_and_all_others_are_in_it(
    tmp_path: Path, main: str, letters: str
) -> None:
    job = Job(tmp_path, main, letters)
    coordinator = job.started()
    plan = coordinator.plan(0, run="r")
    ballots = [job.ballot(plan, slot) for slot in range(len(SLOTS))]
    assert (job.rows(), job.dead()) == ([], [])
    coordinator.decide(plan, ballots)
    coordinator.close()
    assert job.rows() == KEPT
    told = sorted((row["slot"], row["number"], row["sink"]) for row in job.dead())
    assert told == [(0, 1, main), (1, 1, main), (2, 0, main)]
    assert {json.loads(row["row"])["id"] for row in job.dead()} == {2**40, 5, 2**41}
    assert all("does not fit into the column" in row["why"] for row in job.dead())
    # Whoever starts again finds the epoch done, and what a replay gives is what was decided.
    again = job.started()
    assert again.plan(0, run="r2").mode is Mode.DRAIN
    again.close()
    assert (len(job.rows()), len(job.dead())) == (3, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_letters_that_would_get_among_the_rows_are_refused(tmp_path: Path, kind: str) -> None:
    kinds = {"epoch": pa.int64(), "slot": pa.int32(), "number": pa.int64()}
    of_letters = ("code", "why", "row", "query", "sink", "epoch", "slot", "number", "topic", "partition")
    kinds |= {name: pa.string() for name in of_letters if name not in kinds} | {"partition": pa.int32()}
    schema = pa.schema([("id", pa.int32()), ("name", pa.string()), *kinds.items()])
    job = Job(tmp_path, kind, kind, schema)
    letters = LetterSettings(format=f"onceonly.{kind}", options=job.options)
    job.settings = SinkSettings(name=kind, options=job.options, letters=letters)
    coordinator = job.started()
    with pytest.raises(ConfigurationError, match="would get among its rows"):
        coordinator.plan(0, run="r")
    coordinator.close()


def test_letters_that_would_get_among_the_rows_change_nothing_of_the_table(tmp_path: Path) -> None:
    job = Job(tmp_path, "delta", "delta")
    letters = LetterSettings(format="onceonly.delta", options={**job.options, "merge.schema": "true"})
    job.settings = SinkSettings(name="delta", options=job.options, letters=letters)
    before = DeltaTable(job.options["path"]).version()
    coordinator = job.started()
    with pytest.raises(ConfigurationError, match="would get among its rows"):
        coordinator.plan(0, run="r")
    coordinator.close()
    assert DeltaTable(job.options["path"]).version() == before


def test_without_a_place_for_letters_the_first_row_stops_the_slot_and_says_so(tmp_path: Path) -> None:
    job = Job(tmp_path, "delta", "delta")
    coordinator = job.started()
    plan = coordinator.plan(0, run="r")
    context = WriteContext(
        query="q", sink="delta", run="r", epoch=0, plan=plan.id, slot=0, attempt="0",
        guarantee=Guarantee.EXACTLY_ONCE, facts=plan.facts["delta"],
    )  # fmt: skip
    batch = pa.RecordBatch.from_pylist([{"id": 2**40, "name": "a"}])
    sink = build(SinkSettings(name="delta", options=job.options), BUILT_IN["delta"])
    with pytest.raises(RecordRefusedError, match="does not fit into the column id") as raised:
        run_slot(sink, plan, context, [batch])
    assert "onceonly.refused=deadletter" in raised.value.next_step
    coordinator.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", unreadable.COLUMNS)
def test_a_value_that_would_break_readers_or_the_log_becomes_a_letter(
    tmp_path: Path, kind: str, what: str
) -> None:
    _, column, code = unreadable.COLUMNS[what]
    schema = pa.schema([("id", pa.int32()), ("value", column.type)])
    options = _options(kind, tmp_path / "main")
    if kind == "delta":
        DeltaTable.create(options["path"], schema)
    else:
        iceberg_bench.make_table(options, schema)
    bench = Bench(BUILT_IN[kind], kind, options, {"id": "int", "value": unreadable.COLUMNS[what][0]})
    sink, attempt = bench.begin(gives_back=True)
    rows = pa.RecordBatch.from_arrays([pa.array([1, 2], pa.int32()), column], names=["id", "value"])
    [refused] = sink.write(attempt, rows) or ()
    assert (refused.row, refused.code) == (1, "MISFIT")
    assert {"NOT_UTF8": "no UTF-8", "OUT_OF_RANGE": "years 1 and 9999"}[code] in refused.why
    handle = sink.pre_commit(attempt)
    assert handle is not None
    bench.sink().commit(handle)
    assert [row["id"] for row in _read(kind, options)] == [1]
