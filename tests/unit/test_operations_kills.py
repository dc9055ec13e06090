"""A command is killed at each change of a file, and typed again, or the job is started, or another is typed.

Each row is there once in the end, or somebody is told what to type, and then it is.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import uuid
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.killed_bench import SINK, Killer, Stage, killed
from tests.unit.operator_bench import BOX, QueryCoordinator, here, run
from tests.unit.store_bench import at_home, serving
from tests.unit.test_conformance_sinks import TestDocs as StagedSuite
from tests.unit.test_conformance_sinks import TestFiles as FilesSuite
from tests.unit.test_conformance_sinks import shown
from tests.unit.test_conformance_sql import TestSqlite as SqliteSuite
from tests.unit.test_transactions_divert import BAD, EVERY, Job

from onceonly import savepoints
from onceonly.coordinator.query import QueryCoordinator as Planner
from onceonly.errors import AdoptionError, CheckpointMovedError, InDoubtError
from onceonly.executor.slot import run_slot
from onceonly.log.actions import ActionFiles
from onceonly.log.opening import look
from onceonly.log.place import log_store
from onceonly.log.runs import Run, RunFiles
from onceonly.log.stops import StopFiles
from onceonly.model import Guarantee, LinkKind, Stamp
from onceonly.ports import WriteContext
from onceonly.settings.query import QuerySettings, SinkSettings
from onceonly.settings.registry import BUILT_IN, build
from onceonly.spark import offline

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.operator_bench import Ran

    from onceonly_proof.conformance import SinkConformance

EPOCHS = 4
AGAINST = ("--against-decision", "--because", "wrong prices")
long = (pytest.mark.long, pytest.mark.timeout(600))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = Stage(tmp_path)
    made.start(2)
    return made


def well(done: Ran) -> None:
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


def refused(done: Ran) -> None:
    """See that something was refused, or could not be committed any more, in words."""
    assert done.returncode in {1, 2, 64}, done
    told = any(words in done.stderr for words in ("error: ", "lost and fenced"))
    assert (told, "Traceback" in done.stderr) == (True, False), done.stderr


# --- transactions commit and abort ------------------------------------------------------------------------


def _decided(stage: Stage) -> None:
    stage.decide(2)
    stage.lose(2)


def _begun(stage: Stage) -> None:
    stage.begin(2)


KILLED: dict[str, tuple[Callable[[Stage], None], tuple[str, ...]]] = {
    "commit": (_decided, ("commit",)),
    "abort": (_begun, ("abort",)),
    "against": (_decided, ("abort", *AGAINST)),
}
NEXT: dict[str, tuple[str, ...]] = {
    "start": (), "commit": ("commit",), "abort": ("abort",), "against": ("abort", *AGAINST),
}  # fmt: skip
SUITES = {"files": FilesSuite, "sqlite": SqliteSuite, "staged": StagedSuite}
CELLS = [(command, following) for command in KILLED for following in NEXT]


@pytest.mark.parametrize(
    ("command", "following", "suite"),
    [
        pytest.param(
            *cell, suite, marks=() if cell == ("against", "start") else long, id="-".join((*cell, name))
        )
        for cell in CELLS
        for name, suite in SUITES.items()
    ],
)
def test_killed_anywhere_and_followed_by_whatever_each_row_is_there_once(
    tmp_path: Path, command: str, following: str, suite: type[SinkConformance]
) -> None:
    stage = Stage(tmp_path, suite())
    stage.start(2)
    leave, (verb, *more) = KILLED[command]
    leave(stage)
    doubts = 0
    for _ in stage.kills(lambda: stage.transactions(verb, "chk-2", *more)):
        if NEXT[following]:
            second, *others = NEXT[following]
            done = stage.transactions(second, "chk-2", *others)
            (well if done.returncode == 0 or [second, *others] == [verb, *more] else refused)(done)
        try:
            stage.start(EPOCHS)
        except InDoubtError as error:
            # What it has aborted it gives up itself: no start knows that it is gone for good.
            doubts += 1
            well(stage.type_what_is_told(error, 2))
            stage.start(EPOCHS)
        stage.expect(EPOCHS)
    # A database says itself that what is gone was never committed.
    is_in_doubt = command == "against" and following in {"start", "commit", "abort"} and suite is FilesSuite
    assert (doubts > 0) == is_in_doubt


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("carried_out", [False, True])
@pytest.mark.parametrize("more", [(), AGAINST], ids=["commit", "against"])
def test_on_a_store_the_same_goes_on_after_each_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], *, carried_out: bool
) -> None:
    for double in serving(monkeypatch, tmp_path):
        killer = Killer(monkeypatch, carried_out=carried_out)
        for nth in count(1):
            query = QueryCoordinator(tmp_path / f"query-{nth}")
            query.complete(0)
            query.decide(1)
            query.open("loser")
            checkpoint = at_home(double, query, f"query-{nth}")
            verb = "abort" if more else "commit"
            words = ("transactions", verb, "chk-1", checkpoint, "--yes", "--sink", f"box={BOX}", *more)
            is_killed = killer.run(nth, *words)
            done = run(*words)
            if not is_killed and more:
                break  # there is nothing more to be aborted
            well(done)
            gone = ["t0-0.done", "t0-1.done"]
            assert query.seen() == (gone if more else [*gone, "t1-0.done", "t1-1.done"]), nth
            [*_, last] = look(checkpoint)[0].chain(1)
            assert last.kind is (LinkKind.ABORT if more else LinkKind.COMMIT)
            if not is_killed:
                break
        assert nth > 5


# --- transactions divert ----------------------------------------------------------------------------------


def _divert(job: Job, name: str, verb: str = "divert", *more: str) -> Ran:
    return run("transactions", verb, name, job.checkpoint, "--yes", "--timeout", "0.01", *more)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("following", ["again", "start", "commit", "against"])
def test_divert_killed_anywhere_brings_each_row_once(tmp_path: Path, following: str) -> None:
    job = Job(tmp_path / "here")
    job.is_decided_and_refused()
    before = tmp_path / "before"
    shutil.copytree(tmp_path / "here", before)
    names = job.refused_slots()
    nth, is_killed = 0, True
    while is_killed:
        nth += 1
        shutil.rmtree(tmp_path / "here")
        shutil.copytree(before, tmp_path / "here")
        is_killed = killed(lambda: _divert(job, names[0]), nth, tmp_path / "here")
        if following == "against":
            _divert(job, "chk-0", "abort", *AGAINST)
        if following == "again":
            for name in job.refused_slots():
                _divert(job, name)
        else:
            job.ask("DROP INDEX once")
        if following == "commit":
            _divert(job, "chk-0", "commit")
        for _ in range(2):
            coordinator = job.started()
            job.decide(coordinator)
            coordinator.close()
        assert job.pending() == []
        assert sorted(job.rows() + job.dead()) == EVERY, nth
        if following == "again":
            assert job.dead() == sorted(BAD), nth


# --- accept-move, stop, rescale ---------------------------------------------------------------------------


@pytest.mark.parametrize("following", ["again", "start", "back"])
def test_a_move_whose_acceptance_is_killed_is_accepted_or_not(stage: Stage, following: str) -> None:
    former, now = stage.checkpoint, stage.here / "moved"
    former.rename(now)
    words = ("checkpoints", "accept-move", now, "--yes")
    for _ in stage.kills(lambda: run(*words)):
        at = now
        if following == "again":
            well(run(*words))
        elif following == "back":
            now.rename(former)
            at = former
        try:
            stage.start(EPOCHS, at)
        except CheckpointMovedError:
            assert following != "again"
            well(run("checkpoints", "accept-move", at, "--yes"))
            stage.start(EPOCHS, at)
        stage.expect(EPOCHS)
        doctor = run("doctor", at, "--only", "log")
        assert doctor.returncode == 0, doctor.stdout
        if at == now:  # who was killed right after it has left its record, too
            by_hand = ActionFiles(log_store(str(at))).newest()
            assert {each.command for each in by_hand} == {"accept-move"}


def test_a_request_to_end_that_is_killed_is_put_or_not(tmp_path: Path) -> None:
    query = QueryCoordinator(tmp_path / "here" / "cp")
    query.complete(0)
    began = Stamp(at="2026-01-02T03:04:05.678Z", host="elsewhere", pid=1)
    RunFiles(query.path).put(Run(run="r", began=began))
    stops = StopFiles(log_store(str(query.path)))
    nth, is_killed = 0, True
    while is_killed:
        nth += 1
        is_killed = killed(lambda: here("stop", query.path), nth, tmp_path / "here")
        asked = stops.newest()
        assert len(asked) <= 1
        well(run("stop", query.path))
        [stop] = stops.newest()
        assert stop.run == "r"
        assert asked in ([], [stop])
        shutil.rmtree(query.path / "onceonly/stops")
    assert nth > 1


@pytest.mark.long
def test_a_rescale_that_is_killed_is_done_again_or_found_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Spark itself does is killed by the tests with Spark; here it is done in one step."""
    query = QueryCoordinator(tmp_path / "here" / "cp")
    query.complete(0, 1)
    place, before = tmp_path / "here" / "place", tmp_path / "before"
    shutil.copytree(tmp_path / "here", before)

    def repartition(location: str, partitions: int, **_more: object) -> None:
        checkpoint = Path(location.removeprefix("file://"))
        conf = json.dumps({"conf": {"spark.sql.shuffle.partitions": str(partitions)}})
        (checkpoint / "offsets/2").write_text(f"v1\n{conf}\n{query.barrier(1)}", encoding="utf-8")
        (checkpoint / "commits/2").write_text("v1\n{}", encoding="utf-8")

    monkeypatch.setattr(offline, "require", lambda: None)
    monkeypatch.setattr(offline, "repartition", repartition)
    words = ("rescale", query.path, "--partitions", "3", "--savepoint", place, "--yes")
    nth, is_killed = 0, True
    while is_killed:
        nth += 1
        shutil.rmtree(tmp_path / "here")
        shutil.copytree(before, tmp_path / "here")
        is_killed = killed(lambda: run(*words), nth, tmp_path / "here")
        noted = (query.path / "commits/2").exists()
        done = run(*words)
        if noted:
            refused(done)
            assert "3 partitions already" in done.stderr
        elif (query.path / "offsets/2").exists() and done.returncode:
            pytest.fail(done.stderr)
        assert (query.path / "commits/2").exists()
        # A start notes the epoch that Spark has appended, and nothing is left of what was broken off.
        query.complete(2)
        long_after = Stamp(at="2999-01-01T00:00:00.000Z", host="h", pid=1)
        RunFiles(query.path).put(Run(run="r", began=long_after, ended=long_after.at))
        doctor = run("doctor", query.path, "--only", "log")
        assert doctor.returncode == 0, doctor.stdout


# --- onceonly.adopt ---------------------------------------------------------------------------------------


class Adopted:
    """A checkpoint of another sink, which is taken over at its fourth epoch."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint, self.rows = folder / "cp", folder / "rows"
        for name in ("offsets", "commits"):
            (self.checkpoint / name).mkdir(parents=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": "q"}), encoding="utf-8")
        for epoch in range(4):
            text = f'v1\n{{}}\n{{"t":{{"0":{epoch}}}}}'
            (self.checkpoint / f"offsets/{epoch}").write_text(text, encoding="utf-8")
        for epoch in range(3):
            (self.checkpoint / f"commits/{epoch}").write_text("v1\n{}", encoding="utf-8")

    def start(self, *, adopt: bool) -> None:
        settings = SinkSettings(name="files", options={"path": str(self.rows)})
        query = QuerySettings(checkpoint=str(self.checkpoint), adopt=adopt)
        planner = Planner(query, actor="driver", application=uuid.uuid4().hex)
        with contextlib.closing(planner):
            planner.enlist(settings, BUILT_IN["files"], (("id", "bigint"),))
            plan = planner.plan(3, run="r", since=3)
            context = WriteContext(
                query="q", sink="files", run="r", epoch=3, plan=plan.id, slot=0, attempt=uuid.uuid4().hex,
                guarantee=Guarantee.EXACTLY_ONCE, facts=plan.facts["files"], mode=plan.mode, index=plan.index,
            )  # fmt: skip
            sink = build(settings, BUILT_IN["files"], checkpoint=str(self.checkpoint))
            rows = pa.RecordBatch.from_pydict({"id": [1, 2]})
            planner.decide(plan, [run_slot(sink, plan, context, [rows])])

    def ids(self) -> list[int]:
        return sorted(
            number for path in shown(self.rows) for number in pq.ParquetFile(path).read()["id"].to_pylist()
        )


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("adopt", [True, False])
def test_a_take_over_that_is_killed_goes_on_or_is_asked_for_again(tmp_path: Path, *, adopt: bool) -> None:
    adopted, before = Adopted(tmp_path / "here"), tmp_path / "before"
    shutil.copytree(tmp_path / "here", before)
    nth, is_killed = 0, True
    while is_killed:
        nth += 1
        shutil.rmtree(tmp_path / "here")
        shutil.copytree(before, tmp_path / "here")
        is_killed = killed(lambda: adopted.start(adopt=True), nth, tmp_path / "here")
        try:
            adopted.start(adopt=adopt)
        except AdoptionError:
            assert not adopt, nth
            adopted.start(adopt=True)
        assert adopted.ids() == [1, 2], nth


# --- savepoint restore ------------------------------------------------------------------------------------


class Restoring:
    """A restore that is killed, and what others do then."""

    def __init__(self, stage: Stage, *output: str) -> None:
        self.stage, self.output = stage, output
        self.early, self.late, self.to, self.other = (
            stage.here / name for name in ("early", "late", "to", "other")
        )
        savepoints.create(str(stage.checkpoint), str(self.late), epoch=1)
        savepoints.create(str(stage.checkpoint), str(self.early), epoch=0 if output else 1)

    def restore(self, place: Path, at: Path, *more: str) -> Ran:
        return run("savepoint", "restore", place, "--to", at, "--yes", *SINK, *more)

    @property
    def is_whole(self) -> bool:
        return (self.to / "metadata").exists() and not (self.to / "starting.json").exists()

    def again(self) -> Path:
        if not self.is_whole:
            well(self.restore(self.early, self.to, *self.output))
        return self.to

    def former(self) -> Path:
        return self.stage.checkpoint

    def accepted(self) -> Path:
        done = run("checkpoints", "accept-move", self.stage.checkpoint, "--yes")
        (well if done.returncode == 0 else refused)(done)
        return self.stage.checkpoint

    def later(self) -> Path:
        """Restore another savepoint to another place, which may be refused."""
        if self.is_whole:
            return self.to
        done = self.restore(self.late, self.other)
        if done.returncode == 0:
            return self.other
        refused(done)
        return self.again()

    def without(self) -> Path:
        """Go on without the savepoint, which is gone: with a later one, or one that is made where the query was."""
        shutil.rmtree(self.early)
        if self.is_whole:
            return self.to
        done = self.restore(self.late, self.other)
        if done.returncode:
            refused(done)
            well(run("savepoint", "create", self.stage.checkpoint, self.early, "--epoch", "chk-0"))
            well(self.restore(self.early, self.other, *self.output))
        return self.other


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("following", ["again", "former", "accepted", "later", "without"])
@pytest.mark.parametrize("output", [(), ("--output", "withdraw")], ids=["newest", "withdraw"])
def test_restore_killed_anywhere_brings_each_row_once(
    stage: Stage, output: tuple[str, ...], following: str
) -> None:
    """Whoever goes on elsewhere meanwhile goes on with all rows, or is told of the restore that was broken off."""
    broken = Restoring(stage, *output)
    for _ in stage.kills(lambda: broken.restore(broken.early, broken.to, *output)):
        at = getattr(broken, following)()
        try:
            stage.start(EPOCHS, at)
        except CheckpointMovedError:
            stage.start(EPOCHS, broken.again())
        stage.expect(EPOCHS)
