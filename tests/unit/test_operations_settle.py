"""``transactions commit`` and ``abort``: what is decided becomes visible, all else is aborted, whatever kills it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import getpass
import json
import shutil
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.operator_bench import BOX, BoxSink, QueryCoordinator, run

from onceonly.cli import shared
from onceonly.coordinator.coordinator import Coordinator, Participant
from onceonly.coordinator.query import QueryCoordinator as Planner
from onceonly.errors import InDoubtError, SupersededError
from onceonly.log.actions import ActionFiles
from onceonly.log.place import log_store
from onceonly.log.presence import Presence
from onceonly.model import Guarantee, Handle, LinkKind, Mode, Stamp
from onceonly.settings.query import QuerySettings, SinkSettings
from onceonly.telemetry.spans import is_by_hand, of_epoch

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.log.heartbeat import Heartbeat


@pytest.fixture
def coordinator(tmp_path: Path) -> QueryCoordinator:
    return QueryCoordinator(tmp_path / "cp")


def decided(coordinator: QueryCoordinator) -> None:
    """Leave what a job leaves that is killed right after its decision, while a loser's transaction is open."""
    coordinator.complete(0, 1)
    coordinator.decide(2)
    coordinator.open("loser")


_DECIDED = ["t0-0.done", "t0-1.done", "t1-0.done", "t1-1.done", "t2-0.done", "t2-1.done"]


def test_what_is_decided_is_committed_and_what_is_not_is_aborted(coordinator: QueryCoordinator) -> None:
    decided(coordinator)
    before = run("transactions", "list", coordinator.path)
    assert before.returncode == 1
    assert "t2-0" in before.stdout
    done = run("transactions", "commit", "chk-2", coordinator.path, "--yes")
    assert done.returncode == 0, done.stderr
    assert coordinator.seen() == _DECIDED
    assert [line.split()[-1] for line in done.stdout.splitlines() if line.startswith("chk-")] == [
        "t2-0", "t2-1", "loser",
    ]  # fmt: skip
    assert "aborted and fenced" in done.stdout
    # The sweep ran under a link of its own: an older run that wakes up finds its number taken.
    assert [link.kind for link in coordinator.log.chain(3)] == [LinkKind.ABORT]
    after = run("transactions", "list", coordinator.path, "--ask")
    assert (after.returncode, "nothing is pending" in after.stdout) == (0, True)
    again = run("transactions", "commit", "chk-2", coordinator.path, "--yes")
    assert (again.returncode, "nothing to do: chk-2" in again.stderr) == (0, True)
    assert len(coordinator.log.chain(3)) == 1  # and no claim is put
    assert len(ActionFiles(log_store(str(coordinator.path))).newest()) == 1
    older = run("transactions", "commit", "chk-1", coordinator.path, "--yes")
    assert (older.returncode, "nothing to do: chk-1" in older.stderr) == (0, True)


def test_a_sink_that_a_link_does_not_tell_of_is_named_before_anything_is_touched(
    coordinator: QueryCoordinator,
) -> None:
    coordinator.complete(0)
    coordinator.set_barrier(1)
    link = coordinator.link(1, votes=[coordinator.vote(1)])
    coordinator.log.put_link(replace(link, settings={"box": {}, "ghost": {}}))
    coordinator.open("t1-0")
    done = run("transactions", "commit", "chk-1", coordinator.path, "--yes")
    assert (done.returncode, "KeyError" in done.stderr) == (64, False), done.stderr
    assert "for the sink ghost, and its link does not say how that is reached" in " ".join(
        done.stderr.split()
    )
    assert "t1-0.open" in coordinator.seen()
    assert ActionFiles(log_store(str(coordinator.path))).newest() == []


def test_an_epoch_that_nobody_decided_is_aborted_under_an_abort_link(coordinator: QueryCoordinator) -> None:
    coordinator.complete(0)
    coordinator.set_barrier(1)
    coordinator.claim(1)
    coordinator.open("undecided")
    asked = run("transactions", "list", coordinator.path, "--ask", "--json")
    assert asked.returncode == 1
    assert json.loads(asked.stdout)["checkpoints"][0]["open_outside"] == [
        {"sink": "box", "transaction": "undecided"}
    ]
    assert run("transactions", "abort", "chk-1", coordinator.path, "--yes").returncode == 0
    assert coordinator.seen() == ["t0-0.done", "t0-1.done"]
    assert [link.kind for link in coordinator.log.chain(1)] == [LinkKind.ABORT, LinkKind.ABORT]


def test_what_was_decided_before_spark_went_on_is_committed(coordinator: QueryCoordinator) -> None:
    coordinator.complete(0)
    coordinator.decide(1)
    coordinator.note(1)  # a foreachBatch function kept back that its commits failed
    coordinator.set_barrier(2)
    done = run("transactions", "commit", "chk-1", coordinator.path, "--yes")
    assert done.returncode == 0, done.stderr
    assert coordinator.seen() == ["t0-0.done", "t0-1.done", "t1-0.done", "t1-1.done"]
    assert coordinator.log.receipt(1) is not None


def test_epochs_that_spark_noted_alone_are_told_apart(coordinator: QueryCoordinator) -> None:
    coordinator.complete(0)
    offsets = coordinator.path / "offsets"
    (offsets / "1").write_bytes((offsets / "0").read_bytes())  # nothing new: Spark's state was repartitioned
    coordinator.note(1)
    coordinator.set_barrier(2)
    done = run("transactions", "abort", "chk-2", coordinator.path, "--yes")
    assert done.returncode == 0, done.stderr
    assert "put SKIPPED link 1.0: Spark has noted chk-1 without a decision, and it has no rows" in done.stdout
    coordinator.note(2)  # by another sink
    coordinator.set_barrier(3)
    refused = run("transactions", "abort", "chk-3", coordinator.path, "--yes")
    assert refused.returncode != 0
    assert "onceonly.adopt=true" in refused.stderr


@pytest.mark.parametrize(
    "point",
    [
        "plan.before_resolve", "plan.before_recommit", "plan.after_recommit", "plan.after_recommit@2",
        "complete.before", "receipt.before_put", "receipt.after_put", "plan.after_claim", "sweep.before",
        "plan.after_resolve",
    ],
)  # fmt: skip
def test_killed_at_any_step_it_is_run_again(
    coordinator: QueryCoordinator, tmp_path: Path, point: str
) -> None:
    decided(coordinator)
    name, _, nth = point.partition("@")
    killed = run(
        "transactions", "commit", "chk-2", coordinator.path, "--yes",
        ONCEONLY_FAILPOINTS=f"{name}=kill@{nth or 1}", ONCEONLY_FAILPOINTS_DIR=str(tmp_path),
    )  # fmt: skip
    assert killed.returncode == -9
    again = run("transactions", "commit", "chk-2", coordinator.path, "--yes")
    assert again.returncode == 0, again.stderr
    assert coordinator.seen() == _DECIDED
    assert coordinator.log.receipt(2) is not None


def test_a_living_run_is_named_and_left_alone(coordinator: QueryCoordinator) -> None:
    decided(coordinator)
    before = coordinator.seen()
    presence = Presence.hold(str(coordinator.path), actor="driver")
    refused = run("transactions", "commit", "chk-2", coordinator.path, "--yes", "--force")
    assert refused.returncode == 64
    assert "a run is alive" in refused.stderr
    assert "(driver)" in refused.stderr
    assert coordinator.seen() == before
    assert run("transactions", "list", coordinator.path).returncode == 0  # a run's own business
    presence.close()
    assert run("transactions", "commit", "chk-2", coordinator.path, "--yes").returncode == 0


def test_a_run_that_starts_while_a_person_thinks_is_left_alone(
    coordinator: QueryCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided(coordinator)
    before = coordinator.seen()
    started: list[Presence | Heartbeat] = []

    def think(_question: str, *, yes: bool) -> bool:
        started.append(Presence.hold(str(coordinator.path), actor="driver"))
        return not yes

    monkeypatch.setattr(shared, "agreed", think)
    refused = run("transactions", "commit", "chk-2", coordinator.path, "--json")
    started[0].close()
    assert refused.returncode == 64
    assert "a run is alive" in refused.stderr
    assert [item["code"] for item in json.loads(refused.stdout)["problems"]] == ["CONFIGURATION"]
    assert coordinator.seen() == before
    assert coordinator.log.chain(3) == ()


@pytest.mark.parametrize(("force", "status"), [([], 2), (["--force"], 0)])
def test_locks_that_fail_while_a_person_thinks_need_force(
    coordinator: QueryCoordinator, monkeypatch: pytest.MonkeyPatch, force: list[str], status: int
) -> None:
    decided(coordinator)
    Presence.hold(str(coordinator.path)).close()

    def think(_question: str, *, yes: bool) -> bool:
        monkeypatch.setattr(fcntl, "flock", no_locks)
        return not yes

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(shared, "agreed", think)
    told = run("transactions", "commit", "chk-2", coordinator.path, *force)
    assert told.returncode == status
    assert ("cannot be told whether a run is alive" in told.stderr) is bool(status)
    assert (coordinator.seen() == _DECIDED) is not bool(status)


def test_without_a_terminal_and_without_yes_nothing_is_done(coordinator: QueryCoordinator) -> None:
    decided(coordinator)
    before = coordinator.seen()
    refused = run("transactions", "commit", "chk-2", coordinator.path)
    assert refused.returncode == 64
    assert "to commit: chk-2 box t2-0" in refused.stderr
    assert "add --yes" in refused.stderr
    assert coordinator.seen() == before
    assert coordinator.log.chain(3) == ()


def test_a_target_that_does_not_answer_changes_nothing(coordinator: QueryCoordinator) -> None:
    decided(coordinator)
    coordinator.box.rename(coordinator.box.with_name("away"))
    failed = run("transactions", "commit", "chk-2", coordinator.path, "--yes")
    assert failed.returncode == 2
    assert "the box is not there" in failed.stderr
    assert "nothing was changed" in failed.stdout
    assert "Traceback" not in failed.stderr
    coordinator.box.with_name("away").rename(coordinator.box)
    assert coordinator.log.receipt(2) is None
    assert coordinator.log.chain(3) == ()
    assert run("transactions", "commit", "chk-2", coordinator.path, "--yes").returncode == 0


def test_what_the_log_says_is_shown_though_the_target_does_not_answer(coordinator: QueryCoordinator) -> None:
    decided(coordinator)
    told = run(
        "transactions",
        "list",
        coordinator.path,
        "--ask",
        "--option",
        "folder=/proc/1/none",
        "--sink",
        "box=json:X",
    )
    assert told.returncode == 64
    assert "t2-0" in told.stdout
    assert "cannot be imported" in told.stderr


def test_what_is_in_doubt_stays_and_is_said(coordinator: QueryCoordinator) -> None:
    decided(coordinator)
    (coordinator.box / "t2-1.open").unlink()
    told = run("transactions", "commit", "chk-2", coordinator.path, "--yes")
    assert told.returncode == 1
    assert "in doubt: it is not in the box" in told.stdout
    assert "onceonly transactions explain TRANSACTION" in " ".join(told.stderr.split())
    assert "t2-0" in told.stdout
    assert "loser.open" in coordinator.seen()
    assert coordinator.log.receipt(2) is None
    # No receipt says what was committed; the record of the command does.
    [action] = ActionFiles(log_store(str(coordinator.path))).newest()
    assert (action.committed, action.after.partition(";")[0]) == (
        ("t2-0",),
        "decided (1 committed, 1 pending)",
    )
    listed = run("transactions", "list", coordinator.path)
    assert (listed.returncode, "t2-1" in listed.stdout, "t2-0" in listed.stdout) == (1, True, False)
    explained = " ".join(run("transactions", "explain", "t2-1", coordinator.path).stdout.split())
    assert "box, slot 0: committed (3 rows, t2-0)" in explained
    assert "committed (t2-0)" in explained
    assert "chk-2 is settled as far as this transaction goes" in " ".join(
        run("transactions", "explain", "t2-0", coordinator.path).stdout.split()
    )
    # Once more, it is not forgotten.
    assert run("transactions", "commit", "chk-2", coordinator.path, "--yes").returncode == 1
    assert "t2-0" not in run("transactions", "list", coordinator.path).stdout


def test_what_the_target_does_not_take_now_stays_decided(coordinator: QueryCoordinator) -> None:
    decided(coordinator)
    (coordinator.box / "t2-1.later").touch()
    told = run("transactions", "commit", "chk-2", coordinator.path, "--yes", "--timeout", "0.1")
    assert told.returncode == 2
    assert "not taken now" in told.stdout
    (coordinator.box / "t2-1.later").unlink()
    assert run("transactions", "commit", "chk-2", coordinator.path, "--yes").returncode == 0
    assert coordinator.seen() == _DECIDED


def test_what_is_lost_is_said_and_left_to_the_next_run(coordinator: QueryCoordinator) -> None:
    decided(coordinator)
    (coordinator.box / "t2-1.open").rename(coordinator.box / "t2-1.lost")
    told = run("transactions", "commit", "chk-2", coordinator.path, "--yes")
    assert told.returncode == 1
    assert "1 transaction was lost" in told.stderr
    assert "put GLOBAL_COMMIT link 2.1: what chk-2 has lost is still decided" in told.stdout
    last = coordinator.log.chain(2)[-1]
    assert [vote.handle.transaction for vote in last.votes if vote.handle] == ["t2-1"]
    assert [vote.handle.transaction for vote in last.carried if vote.handle] == ["t2-0"]
    listed = json.loads(run("transactions", "list", coordinator.path, "--json").stdout)
    assert [item["state"] for item in listed["checkpoints"][0]["transactions"]] == ["lost"]


def test_a_decision_whose_barrier_spark_lost_is_committed(coordinator: QueryCoordinator) -> None:
    decided(coordinator)
    (coordinator.path / "offsets/2").unlink()  # Spark does not sync it
    assert run("transactions", "commit", "chk-2", coordinator.path, "--yes").returncode == 0
    assert coordinator.seen() == _DECIDED


def test_an_epoch_of_several_queries_is_refused_and_a_transaction_is_of_its_own(tmp_path: Path) -> None:
    coordinators = [QueryCoordinator(tmp_path / name, query=name) for name in ("a", "b", "c")]
    for coordinator in coordinators:
        decided(coordinator)
    refused = run("transactions", "commit", "chk-2", tmp_path, "--yes")
    assert refused.returncode == 64
    assert "leads to 3 queries, and chk-2 may be of any of them" in refused.stderr
    link = coordinators[1].link(3, votes=[coordinators[1].vote(3, name="of-b")])
    coordinators[1].settle(coordinators[1].log.chain(2)[0])
    coordinators[1].note(2)
    coordinators[1].set_barrier(3)
    coordinators[1].log.put_link(link)
    coordinators[1].open("of-b")
    next((coordinators[2].path / "onceonly/links").glob("*1.0.json")).write_bytes(b"")
    done = run("transactions", "commit", "of-b", tmp_path, "--yes", "--json")
    assert done.returncode == 2
    told = json.loads(done.stdout)
    assert [item["query"] for item in told["checkpoints"]] == ["b"]
    assert all(item["settled"] and item["receipt"] for item in told["checkpoints"])
    assert [item["code"] for item in told["problems"]] == ["LOG"]
    assert "of-b.done" in coordinators[1].seen()
    assert "t2-0.open" in coordinators[0].seen()


def test_a_link_that_it_put_is_shown_with_what_it_means(coordinator: QueryCoordinator) -> None:
    decided(coordinator)
    told = run("transactions", "commit", "chk-2", coordinator.path, "--yes")
    assert (
        "put ABORT link 3.0: older runs can write chk-3 no more; the next start goes on there by itself"
        in (told.stdout)
    )
    listed = run("checkpoints", "list", coordinator.path).stdout
    coordinator.set_barrier(3)
    told = run("transactions", "abort", "chk-3", coordinator.path, "--yes")
    assert "put ABORT link 3.1" in told.stdout
    shown = run("checkpoints", "show", "chk-3", coordinator.path).stdout
    assert "aborted (closed to older runs; the next start goes on here by itself)" in listed
    assert "aborted (a new run took it over; earlier tries are void)" in shown
    assert "claimed" not in listed + shown


# --- what machines are told -------------------------------------------------------------------------------


def told_json(coordinator: QueryCoordinator, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = run("transactions", "commit", "chk-2", coordinator.path, "--json", *arguments)
    told = json.loads(done.stdout)
    assert sorted(told) == ["checkpoints", "declined", "problems", "refused"]
    return done.returncode, told


def test_machines_are_told_what_was_done(coordinator: QueryCoordinator) -> None:
    decided(coordinator)
    status, told = told_json(coordinator, "--yes")
    assert (status, told["refused"], told["declined"]) == (0, None, None)


def test_machines_are_told_that_there_was_nobody_to_ask(coordinator: QueryCoordinator) -> None:
    decided(coordinator)
    status, told = told_json(coordinator)
    assert (status, told["checkpoints"], told["declined"]) == (64, [], None)
    assert told["refused"] == "there is no terminal to ask on, and nothing was done"


def test_machines_are_told_that_a_person_declined(
    coordinator: QueryCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided(coordinator)
    monkeypatch.setattr(shared, "agreed", lambda _question, *, yes: yes)
    status, told = told_json(coordinator)
    assert (status, told["checkpoints"], told["refused"]) == (1, [], None)
    assert told["declined"] == "it was not agreed to, and nothing was done"


def test_machines_are_told_why_nothing_could_be_resolved(coordinator: QueryCoordinator) -> None:
    decided(coordinator)
    presence = Presence.hold(str(coordinator.path), actor="driver")
    status, told = told_json(coordinator, "--yes")
    presence.close()
    assert (status, told["declined"], [item["code"] for item in told["problems"]]) == (
        64,
        None,
        ["CONFIGURATION"],
    )
    assert told["refused"] == "nothing can be done: see problems"


# --- building the sinks again -----------------------------------------------------------------------------


def resolved_with(coordinator: QueryCoordinator, *arguments: str, **env: str) -> tuple[int, str]:
    done = run("transactions", "commit", "chk-2", coordinator.path, "--yes", *arguments, **env)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def test_a_class_that_cannot_be_imported_is_named_and_can_be_given(
    coordinator: QueryCoordinator, tmp_path: Path
) -> None:
    decided(coordinator)
    status, told = resolved_with(coordinator, PYTHONPATH=str(tmp_path))
    assert status == 64
    assert "operator_bench:BoxSink, which cannot be imported" in told
    assert "--sink box=package.module:Class" in told
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(__file__.replace("test_operations_settle", "operator_bench"), tmp_path / "elsewhere/moved.py")
    assert (
        resolved_with(coordinator, "--sink", "box=moved:BoxSink", PYTHONPATH=str(tmp_path / "elsewhere"))[0]
        == 0
    )
    assert coordinator.seen() == _DECIDED


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--option", "nonsense=1"], "no sink of this query knows the option nonsense"),
        (["--option", "box:nonsense=1"], "knows no option nonsense"),
        (["--option", "other:folder=1"], "no sink named other"),
        (["--option", "hunter2"], "not of the form NAME=VALUE"),
        (["--sink", "other=a:B"], "no sink named other"),
        (["--sink", "box"], "not of the form SINK=CLASS"),
        (["--sink", "box=json:nothing"], "cannot be imported"),
        (["--sink", "box=json:loads"], "no sink class"),
        (["--options-file", "/none"], "does not exist"),
    ],
)
def test_wrong_options_are_said_before_anything_is_touched(
    coordinator: QueryCoordinator, arguments: list[str], words: str
) -> None:
    decided(coordinator)
    before = coordinator.seen()
    status, told = resolved_with(coordinator, *arguments)
    assert status == 64
    assert words in told
    assert "hunter2" not in told
    assert coordinator.seen() == before
    assert coordinator.log.chain(3) == ()


def test_options_come_from_the_command_line_over_a_file_over_the_log(
    coordinator: QueryCoordinator, tmp_path: Path
) -> None:
    decided(coordinator)
    moved = coordinator.box.rename(tmp_path / "moved")
    file = tmp_path / "options"
    file.write_text(
        f"# where the box is now\nfolder={tmp_path}/wrong\nbox:password=hunter2\n", encoding="utf-8"
    )
    assert resolved_with(coordinator, ONCEONLY_SINK_OPTIONS_FILE=str(file))[0] == 2
    status, told = resolved_with(coordinator, "--options-file", str(file), "--option", f"folder={moved}")
    assert (status, told.count("hunter2")) == (0, 0)
    assert sorted(path.name for path in moved.iterdir() if not path.name.startswith(".")) == _DECIDED
    assert not any(b"hunter2" in path.read_bytes() for path in coordinator.path.rglob("*") if path.is_file())


def test_a_log_without_a_link_has_nothing_to_resolve(coordinator: QueryCoordinator) -> None:
    coordinator.set_barrier(0)
    done = run("transactions", "abort", "chk-0", coordinator.path, "--yes")
    status, told = done.returncode, done.stderr
    assert status == 2
    assert "no link yet" in told


def test_a_moved_checkpoint_is_not_resolved(coordinator: QueryCoordinator, tmp_path: Path) -> None:
    decided(coordinator)
    shutil.move(coordinator.path, tmp_path / "moved")
    told = run("transactions", "commit", "chk-2", tmp_path / "moved", "--yes")
    assert told.returncode == 1
    assert "accept-move" in told.stderr
    assert "t2-0.open" in coordinator.seen()


# --- what is refused, and what is written down ------------------------------------------------------------


def test_what_nobody_decided_is_not_committed(coordinator: QueryCoordinator) -> None:
    coordinator.complete(0)
    coordinator.set_barrier(1)
    coordinator.claim(1)
    coordinator.open("undecided")
    for what in ("chk-1", "undecided"):
        refused = run("transactions", "commit", what, coordinator.path, "--yes", "--sink", f"box={BOX}")
        assert refused.returncode == 64
        assert "they would be there twice" in refused.stderr
    assert "undecided.open" in coordinator.seen()
    assert len(coordinator.log.chain(1)) == 1
    done = run("transactions", "abort", "undecided", coordinator.path, "--yes")
    assert done.returncode == 0, done.stderr
    assert "undecided.open" not in coordinator.seen()


def test_what_is_aborted_is_said_a_second_time(coordinator: QueryCoordinator) -> None:
    coordinator.complete(0)
    coordinator.set_barrier(1)
    coordinator.claim(1)
    coordinator.open("undecided")
    coordinator.open("beside")
    first = run("transactions", "abort", "undecided", coordinator.path, "--yes", "--because", "a bad release")
    assert first.returncode == 0, first.stderr
    [action] = ActionFiles(log_store(str(coordinator.path))).newest()
    chain = coordinator.log.chain(1)
    for name in ("undecided", "beside"):
        again = run("transactions", "abort", name, coordinator.path, "--yes")
        assert again.returncode == 0, again.stderr
        assert f"nothing to do: transaction {name} is already aborted: {action.sentence}" in again.stderr
        assert f"at {action.stamp.at} by {getpass.getuser()}" in again.stderr
        refused = run("transactions", "commit", name, coordinator.path, "--yes")
        assert (refused.returncode, f"transaction {name} is aborted" in refused.stderr) == (64, True)
    assert coordinator.log.chain(1) == chain
    assert ActionFiles(log_store(str(coordinator.path))).newest() == [action]
    # One of that name that is open anew is another.
    coordinator.open("undecided")
    assert "already" not in run("transactions", "abort", "undecided", coordinator.path, "--yes").stderr
    assert "undecided.open" not in coordinator.seen()
    unknown = run("transactions", "abort", "nobodys", coordinator.path, "--yes")
    assert (unknown.returncode, "has a transaction 'nobodys'" in unknown.stderr) == (64, True)


def test_an_abort_that_was_killed_after_its_sweep_is_run_again(coordinator: QueryCoordinator) -> None:
    coordinator.complete(0)
    coordinator.set_barrier(1)
    coordinator.claim(1)
    coordinator.open("undecided")
    assert run("transactions", "abort", "undecided", coordinator.path, "--yes").returncode == 0
    actions = ActionFiles(log_store(str(coordinator.path)))
    [action] = actions.newest()
    actions.put(replace(action, after="", aborted=("undecided",)))
    again = run("transactions", "abort", "undecided", coordinator.path, "--yes")
    assert again.returncode == 0, again.stderr
    assert len(actions.newest()) == 2
    assert actions.newest()[0].aborted == ("undecided",)


def test_what_is_committed_is_not_taken_back(coordinator: QueryCoordinator) -> None:
    coordinator.complete(0)
    refused = run(
        "transactions", "abort", "chk-0", coordinator.path, "--yes", "--against-decision", "--because", "x"
    )
    assert refused.returncode == 64
    assert "its rows are visible, and no command takes them back" in refused.stderr
    assert coordinator.seen() == ["t0-0.done", "t0-1.done"]


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--against-decision",),
        ("--because", "I say so"),
        ("--against-decision", "--because", "  "),
    ],
)
def test_against_the_log_both_words_are_needed(coordinator: QueryCoordinator, more: tuple[str, ...]) -> None:
    decided(coordinator)
    before = coordinator.seen()
    refused = run("transactions", "abort", "chk-2", coordinator.path, "--yes", *more)
    assert refused.returncode == 64
    assert "to abort it is against the log" in refused.stderr
    assert "--against-decision --because TEXT" in refused.stderr
    assert coordinator.seen() == before
    assert len(coordinator.log.chain(2)) == 1


AGAINST = ("--yes", "--against-decision", "--because", "wrong prices")


def test_against_the_log_all_is_aborted_and_the_next_start_runs_it_again(
    coordinator: QueryCoordinator,
) -> None:
    decided(coordinator)
    done = run("transactions", "abort", "t2-1", coordinator.path, *AGAINST)
    assert done.returncode == 0, done.stderr
    assert "the next start writes their 6 rows again" in done.stderr
    assert coordinator.seen() == ["t0-0.done", "t0-1.done", "t1-0.done", "t1-1.done"]
    assert [link.kind for link in coordinator.log.chain(2)] == [LinkKind.COMMIT, LinkKind.ABORT]
    assert coordinator.log.receipt(2) is None
    shown = run("checkpoints", "show", "chk-2", coordinator.path).stdout
    assert "because 'wrong prices': before, decided (2 pending); after, aborted (2 lost)" in shown


def test_of_a_part_that_is_committed_nothing_is_taken_back(coordinator: QueryCoordinator) -> None:
    decided(coordinator)
    (coordinator.box / "t2-0.open").rename(coordinator.box / "t2-0.done")
    done = run("transactions", "abort", "chk-2", coordinator.path, *AGAINST)
    assert done.returncode == 0, done.stderr
    last = coordinator.log.chain(2)[-1]
    assert [vote.handle.transaction for vote in last.votes if vote.handle] == ["t2-1"]
    assert [vote.handle.transaction for vote in last.carried if vote.handle] == ["t2-0"]
    assert "t2-0.done" in coordinator.seen()


def test_what_was_given_up_by_hand_is_lost_at_each_later_start_too(coordinator: QueryCoordinator) -> None:
    """The sink answers Unknown for what was aborted; the link that the abort has put says that it is lost."""
    decided(coordinator)
    (coordinator.box / "t2-0.open").rename(coordinator.box / "t2-0.done")
    assert run("transactions", "abort", "chk-2", coordinator.path, *AGAINST).returncode == 0
    by_hand = run("transactions", "commit", "chk-2", coordinator.path, "--yes")
    assert "1 transaction was lost and fenced" in by_hand.stderr
    start = Coordinator(log=coordinator.log, actor="driver", application="next")
    start.join(
        "box",
        Participant(
            sink=BoxSink({"folder": str(coordinator.box), "password": "x"}), guarantee=Guarantee.EXACTLY_ONCE
        ),
    )
    plan = start.plan(2, barrier=(coordinator.barrier(2),), run="next")
    assert plan.mode is Mode.TENTATIVE
    assert [vote.handle.transaction for vote in plan.lost if vote.handle] == ["t2-1"]
    assert [vote.handle.transaction for vote in plan.carried if vote.handle] == ["t2-0"]
    assert "t2-0.done" in coordinator.seen()


def test_what_was_diverted_is_not_taken_for_given_up(coordinator: QueryCoordinator) -> None:
    decided(coordinator)
    link = coordinator.log.chain(2)[-1]
    mine = replace(coordinator.vote(2, 1, name="t2-2"), plan="operator.1")
    coordinator.log.put_link(
        replace(link, index=1, plan="operator.1", votes=(link.votes[0], mine), reason="rows were diverted")
    )
    (coordinator.box / "t2-0.open").unlink()
    done = run("transactions", "commit", "chk-2", coordinator.path, "--yes")
    assert "in doubt" in done.stdout
    assert len(coordinator.log.chain(2)) == 2


def test_where_the_target_cannot_tell_nothing_is_aborted_against_the_log(
    coordinator: QueryCoordinator,
) -> None:
    decided(coordinator)
    (coordinator.box / "t2-0.open").unlink()
    done = run("transactions", "abort", "chk-2", coordinator.path, *AGAINST)
    assert done.returncode == 2
    assert "cannot tell how transaction t2-0 stands" in done.stderr
    assert "t2-1.open" in coordinator.seen()
    assert len(coordinator.log.chain(2)) == 1


def test_what_an_abort_leaves_open_is_not_committed_after_it(
    coordinator: QueryCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided(coordinator)
    monkeypatch.setattr(BoxSink, "abort", lambda _sink, _handle: None)
    sink = ("--sink", "box=tests.unit.operator_bench:BoxSink")
    done = run("transactions", "abort", "chk-2", coordinator.path, *AGAINST, "--timeout", "0.1", *sink)
    assert done.returncode == 2
    assert "its target has it as open still" in done.stderr
    assert "t2-0.open" in coordinator.seen()
    assert len(coordinator.log.chain(2)) == 1


@pytest.mark.parametrize(
    "point", ["plan.before_resolve", "plan.after_recommit", "plan.after_claim", "sweep.before"]
)
def test_killed_against_the_log_it_is_run_again(
    coordinator: QueryCoordinator, tmp_path: Path, point: str
) -> None:
    decided(coordinator)
    killed = run(
        "transactions", "abort", "chk-2", coordinator.path, *AGAINST,
        ONCEONLY_FAILPOINTS=f"{point}=kill@1", ONCEONLY_FAILPOINTS_DIR=str(tmp_path),
    )  # fmt: skip
    assert killed.returncode == -9
    again = run("transactions", "abort", "chk-2", coordinator.path, *AGAINST)
    assert again.returncode == 0, again.stderr
    assert [path for path in coordinator.seen() if path.startswith("t2")] == []
    actions = ActionFiles(log_store(str(coordinator.path))).newest()
    assert len(actions) == 2
    assert "it was broken off" in actions[1].sentence


def started(coordinator: QueryCoordinator) -> Mode:
    """Start the query, as far as its plan."""
    query = QuerySettings(checkpoint=str(coordinator.path), commit_timeout_s=0.01)
    made = Planner(query, actor="planner", application=str(len(coordinator.log.chain(2))))
    made.enlist(
        SinkSettings(name="box", options={"folder": str(coordinator.box), "password": "x"}), BoxSink, ()
    )
    with contextlib.closing(made):
        return made.plan(2, run="next").mode


def test_a_start_in_doubt_names_the_abort_that_was_broken_off(
    coordinator: QueryCoordinator, tmp_path: Path
) -> None:
    """What it has aborted no link gives up, and the target alone cannot prove it: to mend the target would not help."""
    decided(coordinator)
    words = ("transactions", "abort", "chk-2", coordinator.path, *AGAINST)
    killed = run(*words, ONCEONLY_FAILPOINTS="plan.before_resolve=kill")
    assert killed.returncode == -9
    with pytest.raises(InDoubtError) as stopped:
        started(coordinator)
    by_hand = run("transactions", "commit", "chk-2", coordinator.path, "--yes")
    assert by_hand.returncode == 1
    again = f"onceonly transactions abort chk-2 {coordinator.path} --against-decision --because TEXT"
    for said in (stopped.value.what, by_hand.stderr):
        assert "because 'wrong prices': before, decided (2 pending); after, it was broken off" in said
    for said in (stopped.value.next_step, by_hand.stderr):
        assert again in said
    done = run(*words)
    assert done.returncode == 0, done.stderr
    assert started(coordinator) is Mode.RUN
    # Another doubt is none of it.
    index = len(coordinator.log.chain(2))
    coordinator.log.put_link(replace(coordinator.link(2, index, votes=[coordinator.vote(2, 7)]), plan="x.1"))
    with pytest.raises(InDoubtError) as stopped:
        started(coordinator)
    assert "against-decision" not in stopped.value.next_step


def test_a_start_in_doubt_names_the_abort_that_stopped_on_its_way(
    coordinator: QueryCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided(coordinator)
    abort = BoxSink.abort

    def half(sink: BoxSink, handle: Handle) -> None:
        if handle.transaction == "t2-1":
            raise ConnectionError("the box is closed")
        abort(sink, handle)

    words = ("transactions", "abort", "chk-2", coordinator.path, *AGAINST)
    with monkeypatch.context() as patched:
        patched.setattr(BoxSink, "abort", half)
        done = run(*words, "--sink", "box=tests.unit.operator_bench:BoxSink")
        assert (done.returncode, "t2-1 of the sink box could not be aborted" in done.stderr) == (2, True)
    with pytest.raises(InDoubtError, match=r"stopped: .* could not be aborted") as stopped:
        started(coordinator)
    assert "transactions abort chk-2" in stopped.value.next_step
    assert run(*words).returncode == 0
    assert started(coordinator) is Mode.TENTATIVE  # what was not aborted, that start has committed
    assert "t2-1.done" in coordinator.seen()


def test_each_action_leaves_who_when_why_before_and_after(coordinator: QueryCoordinator) -> None:
    decided(coordinator)
    done = run(
        "transactions", "commit", "chk-2", coordinator.path, "--yes", "--because", "the job stays down"
    )
    assert done.returncode == 0, done.stderr
    listed = json.loads(run("checkpoints", "list", coordinator.path, "--json").stdout)
    [action] = listed["checkpoints"][0]["actions"]
    assert action == {
        "command": "commit", "epoch": 2, "who": getpass.getuser(), "host": socket.gethostname(),
        "pid": action["pid"], "at": action["at"], "because": "the job stays down", "against_decision": False,
        "before": "decided (2 pending)", "after": "committed (2 committed)", "aborted": ["loser"],
        "committed": [], "withdrawn": [],
    }  # fmt: skip


def test_what_a_command_did_is_a_span_of_the_epochs_trace(coordinator: QueryCoordinator) -> None:
    coordinator.complete(0, 1)
    coordinator.set_barrier(2)
    at = Stamp(at="2026-01-02T03:04:05.678Z", host="h", pid=1)
    coordinator.log.put_link(replace(coordinator.link(2, votes=[coordinator.vote(2)]), stamp=at))
    coordinator.open("t2-0")
    assert run("transactions", "commit", "chk-2", coordinator.path, "--yes").returncode == 0
    chain, receipt = coordinator.log.chain(2), coordinator.log.receipt(2)
    actions = ActionFiles(log_store(str(coordinator.path))).newest()
    assert receipt is not None
    assert is_by_hand(chain, receipt)
    assert "operator commit" in [span.name for span in of_epoch("q", "q", chain, receipt, actions)]


def test_a_run_that_lives_after_all_ends_as_superseded(coordinator: QueryCoordinator) -> None:
    coordinator.complete(0, 1)
    mine = Coordinator(log=coordinator.log, actor="driver", application="spark-1")
    box = BoxSink({"folder": str(coordinator.box), "password": ""})
    mine.join("box", Participant(sink=box, guarantee=Guarantee.EXACTLY_ONCE))
    coordinator.set_barrier(2)
    plan = mine.plan(2, barrier=(coordinator.barrier(2),))
    coordinator.open("t2-0")
    # A person was told that nobody lives.
    assert run("transactions", "abort", "chk-2", coordinator.path, "--yes").returncode == 0
    with pytest.raises(SupersededError):
        mine.decide(plan, [replace(coordinator.vote(2), plan=plan.id)])
    assert coordinator.seen() == ["t0-0.done", "t0-1.done", "t1-0.done", "t1-1.done"]
    with pytest.raises(SupersededError):
        mine.plan(2, barrier=(coordinator.barrier(2),))
