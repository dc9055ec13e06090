"""``onceonly doctor``: each fault trips its probe and no other, a healthy checkpoint none, and nothing is changed."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import threading
from collections import namedtuple
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.unit.doctor_bench import BOX, sick, well
from tests.unit.operator_bench import BoxSink, QueryCoordinator, run

from onceonly.cli.doctor import CATEGORIES
from onceonly.log import lag_state
from onceonly.log.actions import Action, ActionFiles
from onceonly.log.files import encode
from onceonly.log.lag_state import LagState
from onceonly.log.place import log_store
from onceonly.log.presence import Presence
from onceonly.model import Stamp
from onceonly.operations import doctor, doctor_targets
from onceonly.operations.given import Given
from onceonly.operations.probes import Health
from onceonly.ports import Standing, Stands

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onceonly.model import Handle

LATE = Stamp(at="2099-01-01T00:00:00.000Z", host="spark-1", pid=1)
GATE = threading.Event()


class Hanging(BoxSink):
    """A sink whose target hangs."""

    def identity(self) -> dict[str, str | int]:
        GATE.wait()
        return {}


class Unreachable(BoxSink):
    """A sink that must connect to name its target, and cannot."""

    def identity(self) -> dict[str, str | int]:
        message = "nobody answers"
        raise ConnectionError(message)


class Silent(BoxSink):
    """A sink that knows the name of its target, as that of a database does, and cannot connect."""

    def look_up(self, handle: Handle) -> Standing:
        message = f"nobody answers for {handle.transaction}"
        raise ConnectionError(message)


class Hurt(BoxSink):
    """A sink a part of whose waiting files is gone."""

    def look_up(self, handle: Handle) -> Standing:
        return Standing(stands=Stands.OPEN, told="it waits", hindered="a file of it is gone")


@pytest.fixture
def coordinator(tmp_path: Path) -> QueryCoordinator:
    return well(tmp_path / "cp")


def test_nothing_is_wrong_with_a_healthy_checkpoint_up_or_down(coordinator: QueryCoordinator) -> None:
    assert sick(coordinator) == set()
    coordinator.set_barrier(25)
    assert sick(coordinator) == set()
    presence = Presence.hold(str(coordinator.path), actor="driver")
    coordinator.decide(25)
    coordinator.open("another")
    assert sick(coordinator) == set(), "what a living run has open is its own business"
    presence.close()


def _links(coordinator: QueryCoordinator, epoch: int) -> Path:
    return coordinator.path / f"onceonly/links/{epoch:020d}.0.json"


def _receipt(coordinator: QueryCoordinator, epoch: int) -> Path:
    return coordinator.path / f"onceonly/receipts/{epoch:020d}.json"


def _damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def _foreign_field(path: Path) -> None:
    path.write_bytes(encode("link", {"epoch": 24, "nonsense": 1}))


def _action(coordinator: QueryCoordinator) -> None:
    stamp = Stamp(at="2026-11-27T10:00:00.000Z", host="h", pid=1)
    ActionFiles(log_store(str(coordinator.path))).put(
        Action(command="commit", epoch=24, who="me", stamp=stamp, before="decided")
    )


def _in_the_future(coordinator: QueryCoordinator) -> None:
    coordinator.set_barrier(25)
    link = coordinator.link(25, votes=[coordinator.vote(25)])
    coordinator.log.put_link(replace(link, stamp=LATE))
    coordinator.open("t25-0")
    coordinator.settle(link)


def _lag(coordinator: QueryCoordinator) -> None:
    state = LagState(group="g", told="the group g has members", next_step="stop them", since="2026-11-27")
    lag_state.write(log_store(str(coordinator.path)), state)


def _lost(coordinator: QueryCoordinator) -> None:
    coordinator.decide(25, slots=1)
    (coordinator.box / "t25-0.open").rename(coordinator.box / "t25-0.lost")


def _left_in_flight(coordinator: QueryCoordinator) -> None:
    coordinator.set_barrier(25)
    coordinator.open("loser")


def _ahead_of_a_claim(coordinator: QueryCoordinator) -> None:
    coordinator.set_barrier(25)
    coordinator.claim(25)
    (coordinator.box / "t25-0.done").touch()


FAULTS: dict[str, tuple[Callable[[QueryCoordinator], object], tuple[str, str]]] = {
    "a damaged identity": (
        lambda each: _damaged(each.path / "onceonly/identity.json"), ("checkpoint", "opens")
    ),
    "no identity": (lambda each: (each.path / "onceonly/identity.json").unlink(), ("checkpoint", "opens")),
    "a missing receipt": (lambda each: _receipt(each, 23).unlink(), ("checkpoint", "opens")),
    "a missing link": (lambda each: _links(each, 23).unlink(), ("checkpoint", "opens")),
    "no log": (lambda each: shutil.rmtree(each.path / "onceonly"), ("checkpoint", "opens")),
    "another query's log": (
        lambda each: (each.path / "metadata").write_text('{"id": "other"}'), ("checkpoint", "opens")
    ),
    "a damaged link": (lambda each: _damaged(_links(each, 24)), ("log", "whole")),
    "an empty link": (lambda each: _links(each, 24).write_bytes(b""), ("log", "whole")),
    "a link with a foreign field": (lambda each: _foreign_field(_links(each, 24)), ("log", "whole")),
    "a link of another epoch": (
        lambda each: _links(each, 24).write_bytes(_links(each, 23).read_bytes()), ("log", "whole")
    ),
    "a damaged receipt": (lambda each: _damaged(_receipt(each, 24)), ("log", "whole")),
    "a receipt of another epoch": (
        lambda each: _receipt(each, 24).write_bytes(_receipt(each, 23).read_bytes()), ("log", "whole")
    ),
    "damaged history": (
        lambda each: _damaged(next((each.path / "onceonly/history").iterdir())), ("log", "whole")
    ),
    "a command that was broken off": (_action, ("log", "actions")),
    "torn offsets": (lambda each: (each.path / "offsets/24").write_bytes(b""), ("spark", "offsets")),
    "half of the offsets": (lambda each: (each.path / "offsets/24").write_text("v1\n{}"), ("spark", "offsets")),
    "other offsets": (
        lambda each: (each.path / "offsets/24").write_bytes((each.path / "offsets/23").read_bytes()),
        ("spark", "follows the log"),
    ),
    "an epoch that the log does not know": (lambda each: each.note(25), ("spark", "follows the log")),
    "no permission for Spark's offsets": (
        lambda each: (each.path / "offsets").chmod(0o500), ("disk", "permissions")
    ),
    "no permission for the log": (lambda each: (each.path / "onceonly").chmod(0o500), ("disk", "permissions")),
    "a clock that is ahead": (_in_the_future, ("clocks", "stamps")),
    "an epoch in doubt": (lambda each: each.decide(25), ("transactions", "settled")),
    "a decided transaction that was lost": (_lost, ("transactions", "settled")),
    "a group that is not kept": (_lag, ("lag", "is shown")),
    "a target that is ahead": (
        lambda each: (each.box / "t25-0.done").touch(), ("targets", "hold nothing else")
    ),
    "a target that is ahead of a claim": (_ahead_of_a_claim, ("targets", "hold nothing else")),
    "a leftover": (lambda each: each.open("loser"), ("targets", "nothing is left open")),
    "a leftover of the epoch in flight": (
        _left_in_flight, ("targets", "nothing is left open")
    ),
}  # fmt: skip


def test_what_a_run_may_have_in_flight_that_leaves_no_word_is_no_alarm(coordinator: QueryCoordinator) -> None:
    """As one on Spark Connect, which is seen alive only while it plans or decides."""
    coordinator.open("loser")
    assert sick(coordinator) == {("targets", "nothing is left open")}
    shutil.rmtree(coordinator.path / "onceonly/runs")
    assert sick(coordinator) == set()
    found = doctor.examine(str(coordinator.path), Given(classes={"box": BOX}), only=["targets"], within_s=10)
    (told,) = (each for each in found if each.probe == "nothing is left open")
    assert (told.health, "Spark Connect" in told.told) == (Health.UNASKED, True)


def test_what_is_to_be_typed_is_a_command_also_where_names_have_spaces(tmp_path: Path) -> None:
    each = QueryCoordinator(tmp_path / "a cp")
    each.complete(0)
    rescaled = Action(
        command="rescale", epoch=0, who="ann", stamp=Stamp(at="2026-01-02T03:04:05.678Z"), before="2"
    )
    ActionFiles(log_store(str(each.path))).put(rescaled)
    said = run("doctor", each.path, "--only", "log").stdout
    assert f"next: onceonly rescale '{each.path}' --partitions N --savepoint PLACE" in said
    each.decide(1)
    said = run("doctor", each.path, "--only", "transactions").stdout
    assert f"onceonly transactions explain t1-0 '{each.path}'" in said


def test_a_folder_that_another_user_has_made_is_told_with_the_jobs_user(
    coordinator: QueryCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_targets, "jobs_user", lambda _checkpoint: os.getuid() + 4711)
    assert sick(coordinator) == {("disk", "permissions")}
    said = run("doctor", coordinator.path, "--only", "disk").stdout
    assert f"chown -R {os.getuid() + 4711} {coordinator.path}" in said
    for folder in (coordinator.path / "offsets", coordinator.path / "commits", coordinator.path / "onceonly"):
        for each in (folder, *(below for below in folder.rglob("*") if below.is_dir())):
            each.chmod(0o775)
    assert sick(coordinator) == set()


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_each_fault_trips_its_probe_and_no_other(coordinator: QueryCoordinator, fault: str) -> None:
    inject, probe = FAULTS[fault]
    inject(coordinator)
    found = sick(coordinator)
    for folder in (coordinator.path / "offsets", coordinator.path / "onceonly"):
        if folder.is_dir():
            folder.chmod(0o700)
    assert found == {probe}


def test_a_checkpoint_that_was_moved(coordinator: QueryCoordinator, tmp_path: Path) -> None:
    shutil.move(coordinator.path, tmp_path / "new")
    assert sick(coordinator, at=tmp_path / "new") == {("checkpoint", "at home")}


@pytest.mark.parametrize("more", [(), ("--only", "disk"), ("--json",)])
def test_a_path_that_leads_to_no_checkpoint_or_several_is_wrong_usage(
    coordinator: QueryCoordinator, tmp_path: Path, more: tuple[str, ...]
) -> None:
    (tmp_path / "empty").mkdir()
    QueryCoordinator(tmp_path / "more" / "one").complete(0)
    QueryCoordinator(tmp_path / "more" / "two").complete(0)
    for path, says in (
        (tmp_path / "none", "there is no folder"),
        (tmp_path / "empty", "there is no checkpoint"),
        (tmp_path / "more", "leads to 2 checkpoints"),
    ):
        told = run("doctor", path, *more)
        assert (told.returncode, says in told.stderr, told.stdout) == (64, True, "")
    assert run("doctor", coordinator.path, "--sink", f"box={BOX}").returncode == 0


def test_a_disk_that_is_full(coordinator: QueryCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")  # noqa: PYI024  as shutil's own
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(1, 1, 1 << 20))
    assert sick(coordinator) == {("disk", "room")}


def test_a_sink_that_nobody_has_named(coordinator: QueryCoordinator) -> None:
    assert sick(coordinator, box="") == {("targets", "answer")}


def test_a_sink_that_cannot_be_imported(coordinator: QueryCoordinator) -> None:
    assert sick(coordinator, box="nowhere:Sink") == {("targets", "answer")}


def test_an_option_that_no_sink_knows(coordinator: QueryCoordinator) -> None:
    assert sick(coordinator, nonsense="1") == {("targets", "answer")}


def test_a_target_whose_name_is_known_and_that_does_not_answer(coordinator: QueryCoordinator) -> None:
    assert sick(coordinator, box=f"{__name__}:Silent") == {("targets", "answer")}


def test_a_target_that_does_not_answer(coordinator: QueryCoordinator) -> None:
    assert sick(coordinator, box=f"{__name__}:Unreachable") == {("targets", "answer")}


def test_a_target_that_hangs_is_unknown_within_the_time_out(coordinator: QueryCoordinator) -> None:
    found = doctor.examine(
        str(coordinator.path), Given(classes={"box": f"{__name__}:Hanging"}), only=["targets"], within_s=0.1
    )
    GATE.set()
    assert [(each.probe, each.health) for each in found] == [("answer", Health.UNKNOWN)]
    assert "no answer within 0.1 s" in found[0].told


def test_each_category_can_be_asked_for_alone(coordinator: QueryCoordinator) -> None:
    found = doctor.examine(str(coordinator.path), Given(classes={"box": BOX}), within_s=10.0)
    # Jars and time-outs are Kafka's.
    wanted = tuple(each for each in CATEGORIES if each not in {"jars", "timeouts"})
    assert tuple(dict.fromkeys(each.category for each in found)) == wanted


def test_the_command_line_says_it_by_its_exit_status(coordinator: QueryCoordinator) -> None:
    box = ("--sink", "box=operator_bench:BoxSink")
    assert run("doctor", coordinator.path, *box).returncode == 0
    told = run("doctor", coordinator.path, *box, "--json", "--only", "log", "--only", "disk")
    assert {each["category"] for each in json.loads(told.stdout)["findings"]} == {"log", "disk"}
    coordinator.decide(25)
    told = run("doctor", coordinator.path, *box)
    assert told.returncode == 1
    assert "next: start the query, or onceonly transactions explain t25-0" in told.stdout


@pytest.mark.parametrize(
    "fault",
    [
        "a command that was broken off", "a leftover of the epoch in flight",
        "an epoch in doubt", "no permission for Spark's offsets",
        "no permission for the log",
    ],
)  # fmt: skip
def test_a_command_that_a_probe_names_cures_when_it_is_typed(
    coordinator: QueryCoordinator, fault: str
) -> None:
    FAULTS[fault][0](coordinator)
    given = Given(classes={"box": BOX})
    [ill] = [
        each
        for each in doctor.examine(str(coordinator.path), given, within_s=10.0)
        if each.health is Health.SICK
    ]
    command = ill.next_step[ill.next_step.index("chmod" if "chmod" in ill.next_step else "onceonly") :]
    # Explaining names the command that ends it; the rest is typed as it is told.
    typed = shlex.split(command.replace("transactions explain t25-0", "transactions commit chk-25"))
    if typed[0] == "chmod":
        subprocess.run(typed, check=True)
    else:
        done = run(*typed[1:], "--yes")
        assert done.returncode == 0, done.stderr
    assert sick(coordinator) == set()


def test_a_move_is_accepted_by_the_command_that_is_told(
    coordinator: QueryCoordinator, tmp_path: Path
) -> None:
    shutil.move(coordinator.path, tmp_path / "new")
    [ill] = [
        each
        for each in doctor.examine(str(tmp_path / "new"), Given(classes={"box": BOX}), within_s=10.0)
        if each.health is Health.SICK
    ]
    command = re.search(r"run: onceonly (.*?);", ill.next_step)
    assert command is not None
    done = run(*shlex.split(command[1]), "--yes")
    assert done.returncode == 0, done.stderr
    assert sick(coordinator, at=tmp_path / "new") == set()


@pytest.mark.parametrize("seconds", ["0", "-1"])
def test_a_time_out_that_no_probe_can_keep_is_wrong_usage(tmp_path: Path, seconds: str) -> None:
    assert run("doctor", tmp_path, "--timeout", seconds).returncode == 64


def test_what_is_decided_and_cannot_be_committed_is_told_with_the_way_out(
    coordinator: QueryCoordinator,
) -> None:
    coordinator.decide(25)
    given = Given(classes={"box": f"{__name__}:Hurt"})
    found = doctor.examine(str(coordinator.path), given, within_s=10.0)
    (ill,) = [each for each in found if each.health is Health.SICK]
    assert "cannot be committed: a file of it is gone" in ill.told
    assert "abort t25-0" in ill.next_step
