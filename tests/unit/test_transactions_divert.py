"""Rows that a database refuses after their decision become dead letters, by an operator, once, killed anywhere."""

from __future__ import annotations

import getpass
import json
import signal
import socket
import sqlite3
import uuid
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.unit.operator_bench import Ran, run

from onceonly import failpoints
from onceonly.coordinator.query import QueryCoordinator
from onceonly.errors import InDoubtError
from onceonly.executor.dead_letters import Letters
from onceonly.executor.slot import run_slot
from onceonly.families.staged import StagedSink
from onceonly.log.actions import ActionFiles
from onceonly.log.place import log_store
from onceonly.log.runs import Run, RunFiles
from onceonly.model import Guarantee, Handle, Lost, Mode, Stamp
from onceonly.operations import former
from onceonly.operations.find import open_checkpoint
from onceonly.ports import WriteContext
from onceonly.settings.query import LetterSettings, QuerySettings, SinkSettings
from onceonly.settings.registry import BUILT_IN, build

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

COLUMNS = (("id", "bigint"), ("name", "string"))
SLOTS = ([(1, "a"), (2, "b"), (2, "again"), (3, "c")], [(4, "d"), (4, "d again")])
BAD = ["again", "d again"]
SQLITE, FILES = BUILT_IN["sqlite"], BUILT_IN["files"]


class Job:
    """A query of two slots whose table gets a unique index after its first epoch is decided."""

    slots: Sequence[Sequence[tuple[int | None, str]]] = SLOTS

    def __init__(self, folder: Path) -> None:
        self.checkpoint, self.letters, self.database = folder / "chk", folder / "letters", folder / "r.db"
        (self.checkpoint / "offsets").mkdir(parents=True)
        (self.checkpoint / "metadata").write_text(json.dumps({"id": "q"}))
        (self.checkpoint / "offsets" / "0").write_text('v1\n{}\n{"t":{"0":2}}')
        self.ask("CREATE TABLE t (id BIGINT, name TEXT)")
        options = {"path": str(self.letters), "format": "json"}
        self.settings = SinkSettings(
            name="sqlite",
            options={"url": f"sqlite:///{self.database}", "table": "t"},
            letters=LetterSettings(format="onceonly.files", options=options),
        )
        self.letters_class = FILES

    def to_database(self) -> None:
        """Let letters go to a table, too."""
        numbers = "epoch BIGINT, slot INT, number BIGINT, partition INT"
        self.ask(
            f"CREATE TABLE dead (code TEXT, why TEXT, row TEXT, query TEXT, sink TEXT, topic TEXT, {numbers})"
        )
        options = {**self.settings.options, "table": "dead"}
        letters = LetterSettings(format="onceonly.sqlite", options=options)
        self.settings, self.letters_class = replace(self.settings, letters=letters), SQLITE

    def ask(self, sql: str) -> list[Any]:
        with closing(sqlite3.connect(self.database)) as db, db:
            return db.execute(sql).fetchall()

    def started(self) -> QueryCoordinator:
        made = QueryCoordinator(
            QuerySettings(checkpoint=str(self.checkpoint), commit_timeout_s=0.01),
            actor="driver",
            application=uuid.uuid4().hex,
        )
        made.enlist(self.settings, SQLITE, COLUMNS, self.letters_class if self.settings.letters else None)
        return made

    def is_decided_and_refused(self) -> None:
        coordinator = self.started()
        self.decide(coordinator, "CREATE UNIQUE INDEX once ON t (id)")
        coordinator.close()

    def decide(self, coordinator: QueryCoordinator, change: str = "") -> None:
        plan = coordinator.plan(0, run="r")
        if plan.mode is Mode.DRAIN:
            return
        beside = self.settings.of_letters
        votes = []
        for slot, rows in enumerate(self.slots):
            sink = build(self.settings, SQLITE, checkpoint=str(self.checkpoint))
            context = WriteContext(
                query="q", sink="sqlite", run="r", epoch=0, plan=plan.id, slot=slot, attempt=str(slot),
                guarantee=Guarantee.EXACTLY_ONCE, facts=plan.facts["sqlite"], gives_back=True, mode=plan.mode,
            )  # fmt: skip
            ids, names = zip(*rows, strict=True)
            batch = pa.record_batch({"id": pa.array(ids, pa.int64()), "name": names})
            letters = None
            if beside is not None:
                made = build(beside, self.letters_class, checkpoint=str(self.checkpoint))
                letters = Letters(made, plan, context, limit=9)
            votes.append(run_slot(sink, plan, context, [batch], letters=letters))
        if change:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("ONCEONLY_FAILPOINTS", "link.after_put=raise")
                failpoints._counts.clear()
                with pytest.raises(failpoints.FailpointError):
                    coordinator.decide(plan, votes)
            self.ask(change)
        else:
            coordinator.decide(plan, votes)

    def refuses_null(self) -> None:
        """Have the sink refuse a row of each slot itself, the first of slot 0 and the last of slot 1."""
        self.slots = ((None, "null"), *SLOTS[0]), (*SLOTS[1], (None, "null too"))
        self.ask("DROP TABLE t")
        self.ask("CREATE TABLE t (id BIGINT NOT NULL, name TEXT)")

    def staged(self, sink: str, *, code: str = "") -> list[Path]:
        """Return what slot 0 has staged for a sink: letters of one code."""
        found = []
        for path in (self.checkpoint / "onceonly").rglob("0.*.arrow"):
            if path.parent.name == sink:
                with pa.OSFile(str(path)) as file:
                    rows = pa.ipc.open_stream(file).read_all().to_pylist()
                is_own = rows[0].get("slot") == 0 if code else path.name.startswith("0.0.")
                found += [path] if is_own and rows[0].get("code", "") == code else []
        return found

    def pending(self) -> list[str]:
        listed = json.loads(run("transactions", "list", self.checkpoint, "--json").stdout)
        return [
            each["transaction"]
            for each in listed["checkpoints"][0]["transactions"]
            if each["sink"] == "sqlite"
        ]

    def refused_slots(self) -> list[str]:
        """Name the transactions in the order of their slots: what an operator reads off the list."""
        return sorted(self.pending(), key=lambda name: int(name.split(".")[1]))

    def rows(self) -> list[str]:
        return sorted(name for (name,) in self.ask("SELECT name FROM t"))

    def dead(self) -> list[str]:
        if self.letters_class is SQLITE:
            return sorted(json.loads(row)["name"] for (row,) in self.ask("SELECT row FROM dead"))
        lines = [line for path in self.letters.glob("*.json") for line in path.read_text().splitlines()]
        return sorted(json.loads(json.loads(line)["row"])["name"] for line in lines)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    made = Job(tmp_path)
    made.is_decided_and_refused()
    assert (made.rows(), made.dead()) == ([], [])
    return made


def divert(job: Job, name: str) -> Ran:
    why = ("--because", "ids come twice")
    return run("transactions", "divert", name, job.checkpoint, "--yes", "--timeout", "0.01", *why)


def test_exactly_the_rows_that_are_refused_become_letters_and_the_rest_is_applied(job: Job) -> None:
    stuck = run("transactions", "commit", "chk-0", job.checkpoint, "--yes", "--timeout", "0.01")
    assert "UNIQUE" in stuck.stderr
    assert "where it was decided with onceonly.refused=deadletter" in stuck.stderr
    assert "transactions divert" in stuck.stderr
    first, second = job.refused_slots()
    done = divert(job, first)
    assert "1 dead letter, 3 are left" in done.stderr
    assert (job.rows(), job.dead()) == ([], ["again"])
    done = divert(job, second)
    assert done.returncode == 0, done.stderr
    assert job.rows() == ["a", "b", "c", "d"]
    assert job.dead() == sorted(BAD)
    assert job.pending() == []
    # The query's next start finds its epoch done, and what a replay gives is what was decided.
    coordinator = job.started()
    assert coordinator.plan(0, run="r2").mode is Mode.DRAIN
    coordinator.close()


@pytest.mark.parametrize("lost", ["rows", "letters", "both"])
def test_what_is_lost_of_a_slot_that_was_diverted_is_written_again_as_it_was_diverted(
    tmp_path: Path, lost: str
) -> None:
    job = Job(tmp_path)
    if lost != "rows":  # of files nobody could prove it
        job.to_database()
    job.is_decided_and_refused()
    first, second = job.refused_slots()
    if lost == "rows":  # its letter is there by then
        divert(job, first)
        assert (job.rows(), job.dead()) == ([], ["again"])
    else:
        killed(job, "divert.after_link")
    for path in (job.checkpoint / "onceonly").rglob("0.0.*.arrow"):
        if (
            path.parent.name == "sqlite"
            if lost == "rows"
            else lost == "both" or path.parent.name == "sqlite.letters"
        ):
            path.unlink()
    divert(job, second)
    for _ in range(2):
        coordinator = job.started()
        job.decide(coordinator)
        coordinator.close()
    assert job.pending() == []
    assert (job.rows(), job.dead()) == (["a", "b", "c", "d"], sorted(BAD))


def test_a_transaction_whose_rows_are_all_taken_is_left_as_it_is(job: Job) -> None:
    job.ask("DROP INDEX once")
    done = divert(job, job.refused_slots()[0])
    assert "takes every row" in done.stderr
    assert (job.rows(), job.dead()) == ([], [])


def test_who_names_no_pending_transaction_is_told_so(job: Job) -> None:
    done = divert(job, "7.7")
    assert done.returncode == 64
    assert "decided and pending" in done.stderr


def test_who_diverted_when_and_why_is_on_record_and_the_next_start_says_it(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = job.refused_slots()
    divert(job, first)
    divert(job, second)
    actions = ActionFiles(log_store(str(job.checkpoint))).newest()
    assert [each.command for each in actions] == ["commit", "divert", "commit", "divert"]
    told = actions[1].sentence
    assert told.startswith("chk-0 was decided anew, with rows as dead letters, by hand (divert) at ")
    assert f"by {getpass.getuser()} on {socket.gethostname()}, because 'ids come twice'" in told
    assert f", 1 row of {second} refused; after, decided anew by link 0." in told
    assert told.endswith(": 1 dead letter, 1 row is left to the sink")
    coordinator = job.started()
    coordinator.plan(0, run="r2")
    coordinator.close()
    assert told in caplog.text
    # A run that lives after all ends as after any other command.
    assert coordinator._log.chain(0)[-1].application == actions[1].plan


def test_of_one_that_was_broken_off_it_is_told_that_nobody_can_apply_it(job: Job) -> None:
    first = job.refused_slots()[0]
    killed(job, "divert.after_void")
    told = run("transactions", "explain", first, job.checkpoint).stdout
    assert "gone: the target's books have it as void" in told
    assert "it finds this transaction lost, and writes its 4 rows again, once" in told.replace("\n", " ")


def test_when_one_of_two_is_diverted_the_other_one_is_pending_and_nothing_is_said_to_be_lost(
    job: Job,
) -> None:
    first, second = job.refused_slots()
    killed(job, "divert.after_link")
    listed = json.loads(run("transactions", "list", job.checkpoint, "--json").stdout)["checkpoints"][0]
    states = {each["transaction"]: each["state"] for each in listed["transactions"]}
    assert states[second] == "pending"
    assert first not in states
    told = run("transactions", "explain", second, job.checkpoint).stdout
    assert "it commits this transaction and all others of chk-0" in " ".join(told.split())
    assert f"onceonly transactions commit {second}" in " ".join(told.split())
    [epoch] = json.loads(run("checkpoints", "list", job.checkpoint, "--json").stdout)["checkpoints"][0][
        "epochs"
    ]
    assert epoch["state"] == "decided"
    with pytest.raises(InDoubtError, match="not known to be committed") as caught:
        former.beyond(open_checkpoint(str(job.checkpoint)), -1)
    assert caught.value.next_step.startswith("onceonly transactions commit chk-0 ")
    job.ask("DROP INDEX once")
    run("transactions", "commit", "chk-0", job.checkpoint, "--yes", "--timeout", "0.01")
    shown = json.loads(run("checkpoints", "show", "chk-0", job.checkpoint, "--json").stdout)
    epoch = shown["checkpoints"][0]["epoch"]
    states = {each["transaction"]: each["state"] for each in epoch["handles"]}
    assert (states[first], states[second]) == ("lost", "committed")


def test_of_letters_that_were_diverted_it_is_told_whose_rows_they_are(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.to_database()
    job.is_decided_and_refused()
    killed(job, "divert.after_link")
    [letters] = (job.checkpoint / "onceonly").rglob("*/sqlite.letters/*.arrow")
    told = " ".join(run("transactions", "explain", letters.name, job.checkpoint).stdout.split())
    assert (
        "dead letters of rows of slot 0 of chk-0, which the target refused beside all others, prepared"
        in told
    )


def test_of_one_that_was_broken_off_doctor_says_what_to_type_until_a_run_has_begun(job: Job) -> None:
    killed(job, "divert.after_void")
    [action] = ActionFiles(log_store(str(job.checkpoint))).newest()
    assert "it was broken off before it was over" in action.sentence
    asked = ("doctor", job.checkpoint, "--only", "log")
    assert "onceonly transactions divert what onceonly transactions list" in run(*asked).stdout
    later = Stamp(at="2999-01-01T00:00:00.000Z", host="h", pid=1)
    RunFiles(job.checkpoint).put(Run(run="r", began=later, ended=later.at))
    assert "broken off" not in run(*asked).stdout


class _Kept:
    def __init__(self, name: str, batches: list[pa.RecordBatch]) -> None:
        self.name = name
        self._batches = batches

    def batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self._batches)


def test_a_driver_that_has_the_former_transaction_in_hand_cannot_apply_it_any_more(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = job.refused_slots()
    zombie = build(job.settings, SQLITE, checkpoint=str(job.checkpoint))
    assert isinstance(zombie, StagedSink)
    handle = Handle(transaction=first, data={"folder": "q/sqlite"})
    kept = {name: _Kept(name, list(each.batches())) for name, each in zombie.staged([handle]).items()}
    monkeypatch.setattr(zombie, "staged", lambda _: kept)
    divert(job, first)
    divert(job, second)
    job.ask("DROP INDEX once")
    assert isinstance(zombie.commit(handle), Lost)
    assert job.rows() == ["a", "b", "c", "d"]


POINTS = [*failpoints.OF_OPERATOR, "letters.before_begin", "letters.after_prepare", "receipt.before_put"]
EVERY = sorted(name for rows in SLOTS for _, name in rows)


def killed(job: Job, point: str) -> None:
    for name in job.refused_slots():
        asked = ("transactions", "divert", name, job.checkpoint, "--yes", "--timeout", "0.01")
        done = run(*asked, ONCEONLY_FAILPOINTS=f"{point}=kill")
        if done.returncode == -signal.SIGKILL:
            return
    pytest.fail(f"nobody came to {point}")


@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_and_run_again_each_row_is_in_the_table_or_among_the_letters_once(
    job: Job, point: str
) -> None:
    killed(job, point)
    # Whoever runs it again goes by the list; what was replaced already, whoever commits finds whole.
    for name in job.refused_slots():
        divert(job, name)
    run("transactions", "commit", "chk-0", job.checkpoint, "--yes", "--timeout", "0.01")
    assert job.pending() == []
    assert (job.rows(), job.dead()) == (["a", "b", "c", "d"], sorted(BAD))


@pytest.mark.parametrize("lost", ["again", "b", "both"])
def test_what_is_diverted_in_two_rounds_is_written_again_as_it_was_with_the_numbers_of_its_rows(
    tmp_path: Path, lost: str
) -> None:
    job = Job(tmp_path)
    job.to_database()
    job.refuses_null()
    job.is_decided_and_refused()
    for slot in (0, 1):  # each is held back by the other one
        run("transactions", "divert", job.refused_slots()[slot], job.checkpoint, "--yes", "--because", "twice",
            ONCEONLY_FAILPOINTS="divert.after_link=kill")  # fmt: skip
    job.ask("CREATE TRIGGER no BEFORE INSERT ON t WHEN NEW.name = 'b' BEGIN SELECT RAISE(ABORT, 'no b'); END")
    run("transactions", "divert", job.refused_slots()[0], job.checkpoint, "--yes", "--because", "no b",
        ONCEONLY_FAILPOINTS="divert.after_link=kill")  # fmt: skip
    first, second = sorted(job.staged("sqlite.letters", code="REFUSED"))
    for path in {"again": [first], "b": [second], "both": [first, second]}[lost]:
        path.unlink()
    for _ in range(2):
        with closing(job.started()) as coordinator:
            job.decide(coordinator)
    assert job.rows() == ["a", "c", "d"]
    found = {
        json.loads(row)["name"]: (slot, number)
        for row, slot, number in job.ask("SELECT row, slot, number FROM dead")
    }
    assert found == {"null": (0, 0), "b": (0, 2), "again": (0, 3), "d again": (1, 1), "null too": (1, 2)}
    assert len(job.dead()) == 5


@pytest.mark.parametrize("point", ["divert.after_void", "divert.after_link"])
def test_killed_and_not_run_again_a_start_brings_each_row_once(job: Job, point: str) -> None:
    killed(job, point)
    job.ask("DROP INDEX once")
    coordinator = job.started()
    job.decide(coordinator)
    coordinator.close()
    assert job.pending() == []
    assert sorted(job.rows() + job.dead()) == EVERY


def test_without_a_sink_for_letters_it_says_what_to_do_and_nothing_is_lost(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.settings = replace(job.settings, letters=None)
    job.is_decided_and_refused()
    before = job.pending()
    done = divert(job, job.refused_slots()[0])
    assert done.returncode == 64
    assert "decided without a sink for dead letters of sqlite" in done.stderr
    assert "onceonly.refused=deadletter" in done.stderr
    assert (job.pending(), job.rows(), job.dead()) == (before, [], [])
    job.ask("DROP INDEX once")
    run("transactions", "commit", "chk-0", job.checkpoint, "--yes", "--timeout", "0.01")
    assert (job.pending(), job.rows()) == ([], EVERY)
