"""``transactions resolve``: what is decided becomes visible, everything else is aborted, whatever kills it."""

from __future__ import annotations

import errno
import fcntl
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.operator_bench import Desk, run

from onceonly.cli import shared
from onceonly.log.presence import Presence
from onceonly.model import LinkKind

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "cp")


def decided(desk: Desk) -> None:
    """Leave what a job leaves that is killed right after its decision, while a loser's transaction is open."""
    desk.complete(0, 1)
    desk.decide(2)
    desk.open("loser")


_DECIDED = ["t0-0.done", "t0-1.done", "t1-0.done", "t1-1.done", "t2-0.done", "t2-1.done"]


def test_what_is_decided_is_committed_and_what_is_not_is_aborted(desk: Desk) -> None:
    decided(desk)
    before = run("transactions", "list", desk.path)
    assert before.returncode == 1
    assert "t2-0" in before.stdout
    done = run("transactions", "resolve", desk.path, "--yes")
    assert done.returncode == 0, done.stderr
    assert desk.seen() == _DECIDED
    assert [line.split()[-1] for line in done.stdout.splitlines() if line.startswith("chk-")] == [
        "t2-0", "t2-1", "loser",
    ]  # fmt: skip
    assert "aborted and fenced" in done.stdout
    # The sweep ran under a link of its own: an older run that wakes up finds its number taken.
    assert [link.kind for link in desk.log.chain(3)] == [LinkKind.ABORT]
    after = run("transactions", "list", desk.path, "--ask")
    assert (after.returncode, "nothing is pending" in after.stdout) == (0, True)
    again = run("transactions", "resolve", desk.path, "--yes")
    assert (again.returncode, "nothing was open" in again.stdout) == (0, True)


def test_an_epoch_that_nobody_decided_is_aborted_under_an_abort_link(desk: Desk) -> None:
    desk.complete(0)
    desk.set_barrier(1)
    desk.claim(1)
    desk.open("undecided")
    asked = run("transactions", "list", desk.path, "--ask", "--json")
    assert asked.returncode == 1
    assert json.loads(asked.stdout)["checkpoints"][0]["open_outside"] == [
        {"sink": "box", "transaction": "undecided"}
    ]
    assert run("transactions", "resolve", desk.path, "--yes").returncode == 0
    assert desk.seen() == ["t0-0.done", "t0-1.done"]
    assert [link.kind for link in desk.log.chain(1)] == [LinkKind.ABORT, LinkKind.ABORT]


def test_what_was_decided_before_spark_went_on_is_committed(desk: Desk) -> None:
    desk.complete(0)
    desk.decide(1)
    desk.note(1)  # a foreachBatch function kept back that its commits failed
    desk.set_barrier(2)
    done = run("transactions", "resolve", desk.path, "--yes")
    assert done.returncode == 0, done.stderr
    assert desk.seen() == ["t0-0.done", "t0-1.done", "t1-0.done", "t1-1.done"]
    assert desk.log.receipt(1) is not None


def test_epochs_that_spark_noted_alone_are_told_apart(desk: Desk) -> None:
    desk.complete(0)
    offsets = desk.path / "offsets"
    (offsets / "1").write_bytes((offsets / "0").read_bytes())  # nothing new: Spark's state was repartitioned
    desk.note(1)
    desk.set_barrier(2)
    done = run("transactions", "resolve", desk.path, "--yes")
    assert done.returncode == 0, done.stderr
    assert "put SKIPPED link 1.0: Spark has noted chk-1 without a decision, and it has no rows" in done.stdout
    desk.note(2)  # by another sink
    desk.set_barrier(3)
    refused = run("transactions", "resolve", desk.path, "--yes")
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
def test_killed_at_any_step_it_is_run_again(desk: Desk, tmp_path: Path, point: str) -> None:
    decided(desk)
    name, _, nth = point.partition("@")
    killed = run(
        "transactions", "resolve", desk.path, "--yes",
        ONCEONLY_FAILPOINTS=f"{name}=kill@{nth or 1}", ONCEONLY_FAILPOINTS_DIR=str(tmp_path),
    )  # fmt: skip
    assert killed.returncode == -9
    again = run("transactions", "resolve", desk.path, "--yes")
    assert again.returncode == 0, again.stderr
    assert desk.seen() == _DECIDED
    assert desk.log.receipt(2) is not None


def test_a_living_run_is_named_and_left_alone(desk: Desk) -> None:
    decided(desk)
    before = desk.seen()
    presence = Presence.hold(str(desk.path), actor="driver")
    refused = run("transactions", "resolve", desk.path, "--yes", "--force")
    assert refused.returncode == 64
    assert "a run is alive" in refused.stderr
    assert "(driver)" in refused.stderr
    assert desk.seen() == before
    assert run("transactions", "list", desk.path).returncode == 0  # a run's own business
    presence.close()
    assert run("transactions", "resolve", desk.path, "--yes").returncode == 0


def test_a_run_that_starts_while_a_person_thinks_is_left_alone(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided(desk)
    before = desk.seen()
    started: list[Presence] = []

    def think(_question: str, *, yes: bool) -> bool:
        started.append(Presence.hold(str(desk.path), actor="driver"))
        return not yes

    monkeypatch.setattr(shared, "agreed", think)
    refused = run("transactions", "resolve", desk.path, "--json")
    started[0].close()
    assert refused.returncode == 64
    assert "a run is alive" in refused.stderr
    assert [item["code"] for item in json.loads(refused.stdout)["problems"]] == ["CONFIGURATION"]
    assert desk.seen() == before
    assert desk.log.chain(3) == ()


@pytest.mark.parametrize(("force", "status"), [([], 2), (["--force"], 0)])
def test_locks_that_fail_while_a_person_thinks_need_force(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, force: list[str], status: int
) -> None:
    decided(desk)
    Presence.hold(str(desk.path)).close()

    def think(_question: str, *, yes: bool) -> bool:
        monkeypatch.setattr(fcntl, "flock", no_locks)
        return not yes

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(shared, "agreed", think)
    told = run("transactions", "resolve", desk.path, *force)
    assert told.returncode == status
    assert ("cannot be told whether a run is alive" in told.stderr) is bool(status)
    assert (desk.seen() == _DECIDED) is not bool(status)


def test_without_a_terminal_and_without_yes_nothing_is_done(desk: Desk) -> None:
    decided(desk)
    before = desk.seen()
    refused = run("transactions", "resolve", desk.path)
    assert refused.returncode == 64
    assert "to commit: chk-2 box t2-0" in refused.stderr
    assert "add --yes" in refused.stderr
    assert desk.seen() == before
    assert desk.log.chain(3) == ()


def test_a_target_that_does_not_answer_changes_nothing(desk: Desk) -> None:
    decided(desk)
    desk.box.rename(desk.box.with_name("away"))
    failed = run("transactions", "resolve", desk.path, "--yes")
    assert failed.returncode == 2
    assert "the box is not there" in failed.stderr
    assert "nothing was changed" in failed.stdout
    assert "Traceback" not in failed.stderr
    desk.box.with_name("away").rename(desk.box)
    assert desk.log.receipt(2) is None
    assert desk.log.chain(3) == ()
    assert run("transactions", "resolve", desk.path, "--yes").returncode == 0


def test_what_the_log_says_is_shown_though_the_target_does_not_answer(desk: Desk) -> None:
    decided(desk)
    told = run(
        "transactions", "list", desk.path, "--ask", "--option", "folder=/proc/1/none", "--sink", "box=json:X"
    )
    assert told.returncode == 64
    assert "t2-0" in told.stdout
    assert "cannot be imported" in told.stderr


def test_what_is_in_doubt_stays_and_is_said(desk: Desk) -> None:
    decided(desk)
    (desk.box / "t2-1.open").unlink()
    told = run("transactions", "resolve", desk.path, "--yes")
    assert told.returncode == 1
    assert "in doubt: it is not in the box" in told.stdout
    assert "t2-0" in told.stdout
    assert "loser.open" in desk.seen()
    assert desk.log.receipt(2) is None


def test_what_the_target_does_not_take_now_stays_decided(desk: Desk) -> None:
    decided(desk)
    (desk.box / "t2-1.later").touch()
    told = run("transactions", "resolve", desk.path, "--yes", "--timeout", "0.1")
    assert told.returncode == 2
    assert "not taken now" in told.stdout
    (desk.box / "t2-1.later").unlink()
    assert run("transactions", "resolve", desk.path, "--yes").returncode == 0
    assert desk.seen() == _DECIDED


def test_what_is_lost_is_said_and_left_to_the_next_run(desk: Desk) -> None:
    decided(desk)
    (desk.box / "t2-1.open").rename(desk.box / "t2-1.lost")
    told = run("transactions", "resolve", desk.path, "--yes")
    assert told.returncode == 1
    assert "1 transactions were lost" in told.stderr
    assert "put GLOBAL_COMMIT link 2.1: what chk-2 has lost is still decided" in told.stdout
    last = desk.log.chain(2)[-1]
    assert [vote.handle.transaction for vote in last.votes if vote.handle] == ["t2-1"]
    assert [vote.handle.transaction for vote in last.carried if vote.handle] == ["t2-0"]
    listed = json.loads(run("transactions", "list", desk.path, "--json").stdout)
    assert [item["state"] for item in listed["checkpoints"][0]["transactions"]] == ["lost"]


def test_a_decision_whose_barrier_spark_lost_is_committed(desk: Desk) -> None:
    decided(desk)
    (desk.path / "offsets/2").unlink()  # Spark does not sync it
    assert run("transactions", "resolve", desk.path, "--yes").returncode == 0
    assert desk.seen() == _DECIDED


def test_several_checkpoints_are_resolved_and_a_damaged_one_hides_none(tmp_path: Path) -> None:
    desks = [Desk(tmp_path / name, query=name) for name in ("a", "b", "c")]
    for desk in desks:
        decided(desk)
    next((desks[1].path / "onceonly/links").glob("*1.0.json")).write_bytes(b"")
    done = run("transactions", "resolve", tmp_path, "--yes", "--json")
    assert done.returncode == 2
    told = json.loads(done.stdout)
    assert [item["query"] for item in told["checkpoints"]] == ["a", "c"]
    assert all(item["settled"] and item["receipt"] for item in told["checkpoints"])
    assert [item["code"] for item in told["problems"]] == ["LOG"]
    assert desks[0].seen() == desks[2].seen() == _DECIDED
    assert "t2-0.open" in desks[1].seen()


def test_a_link_that_it_put_is_shown_with_what_it_means(desk: Desk) -> None:
    decided(desk)
    told = run("transactions", "resolve", desk.path, "--yes")
    assert (
        "put ABORT link 3.0: older runs can write chk-3 no more; the next start goes on there by itself"
        in (told.stdout)
    )
    listed = run("checkpoints", "list", desk.path).stdout
    desk.set_barrier(3)
    told = run("transactions", "resolve", desk.path, "--yes")
    assert "put ABORT link 3.1" in told.stdout
    shown = run("checkpoints", "show", "chk-3", desk.path).stdout
    assert "aborted (closed to older runs; the next start goes on here by itself)" in listed
    assert "aborted (earlier tries are void; the next start writes it by itself)" in shown
    assert "claimed" not in listed + shown


# --- what machines are told -------------------------------------------------------------------------------


def told_json(desk: Desk, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = run("transactions", "resolve", desk.path, "--json", *arguments)
    told = json.loads(done.stdout)
    assert sorted(told) == ["checkpoints", "declined", "problems", "refused"]
    return done.returncode, told


def test_machines_are_told_what_was_done(desk: Desk) -> None:
    decided(desk)
    status, told = told_json(desk, "--yes")
    assert (status, told["refused"], told["declined"]) == (0, None, None)


def test_machines_are_told_that_there_was_nobody_to_ask(desk: Desk) -> None:
    decided(desk)
    status, told = told_json(desk)
    assert (status, told["checkpoints"], told["declined"]) == (64, [], None)
    assert told["refused"] == "there is no terminal to ask on, and nothing was done"


def test_machines_are_told_that_a_person_declined(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    decided(desk)
    monkeypatch.setattr(shared, "agreed", lambda _question, *, yes: yes)
    status, told = told_json(desk)
    assert (status, told["checkpoints"], told["refused"]) == (1, [], None)
    assert told["declined"] == "it was not agreed to, and nothing was done"


def test_machines_are_told_why_nothing_could_be_resolved(desk: Desk) -> None:
    decided(desk)
    presence = Presence.hold(str(desk.path), actor="driver")
    status, told = told_json(desk, "--yes")
    presence.close()
    assert (status, told["declined"], [item["code"] for item in told["problems"]]) == (
        64,
        None,
        ["CONFIGURATION"],
    )
    assert told["refused"] == "no checkpoint can be resolved: see problems"


# --- building the sinks again -----------------------------------------------------------------------------


def resolved_with(desk: Desk, *arguments: str, **env: str) -> tuple[int, str]:
    done = run("transactions", "resolve", desk.path, "--yes", *arguments, **env)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def test_a_class_that_cannot_be_imported_is_named_and_can_be_given(desk: Desk, tmp_path: Path) -> None:
    decided(desk)
    status, told = resolved_with(desk, PYTHONPATH=str(tmp_path))
    assert status == 64
    assert "operator_bench:BoxSink, which cannot be imported" in told
    assert "--sink box=package.module:Class" in told
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(
        __file__.replace("test_operations_resolve", "operator_bench"), tmp_path / "elsewhere/moved.py"
    )
    assert resolved_with(desk, "--sink", "box=moved:BoxSink", PYTHONPATH=str(tmp_path / "elsewhere"))[0] == 0
    assert desk.seen() == _DECIDED


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
    desk: Desk, arguments: list[str], words: str
) -> None:
    decided(desk)
    before = desk.seen()
    status, told = resolved_with(desk, *arguments)
    assert status == 64
    assert words in told
    assert "hunter2" not in told
    assert desk.seen() == before
    assert desk.log.chain(3) == ()


def test_options_come_from_the_command_line_over_a_file_over_the_log(desk: Desk, tmp_path: Path) -> None:
    decided(desk)
    moved = desk.box.rename(tmp_path / "moved")
    file = tmp_path / "options"
    file.write_text(
        f"# where the box is now\nfolder={tmp_path}/wrong\nbox:password=hunter2\n", encoding="utf-8"
    )
    assert resolved_with(desk, ONCEONLY_SINK_OPTIONS_FILE=str(file))[0] == 2
    status, told = resolved_with(desk, "--options-file", str(file), "--option", f"folder={moved}")
    assert (status, told.count("hunter2")) == (0, 0)
    assert sorted(path.name for path in moved.iterdir()) == _DECIDED
    assert not any(b"hunter2" in path.read_bytes() for path in desk.path.rglob("*") if path.is_file())


def test_a_log_without_a_link_has_nothing_to_resolve(desk: Desk) -> None:
    desk.set_barrier(0)
    status, told = resolved_with(desk)
    assert status == 2
    assert "no link yet" in told


def test_a_moved_checkpoint_is_not_resolved(desk: Desk, tmp_path: Path) -> None:
    decided(desk)
    shutil.move(desk.path, tmp_path / "moved")
    told = run("transactions", "resolve", tmp_path / "moved", "--yes")
    assert told.returncode == 1
    assert "accept-move" in told.stderr
    assert "t2-0.open" in desk.seen()
