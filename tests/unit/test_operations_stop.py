"""``onceonly stop``: what it asks, of which run, and what it says became of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.unit.operator_bench import QueryCoordinator, here

from onceonly import savepoints
from onceonly.errors import UnavailableError
from onceonly.log.dated import KEEP
from onceonly.log.presence import Presence
from onceonly.log.runs import Run, RunFiles
from onceonly.log.stops import StopFiles
from onceonly.model import Stamp
from onceonly.operations.find import open_checkpoint
from onceonly.operations.stop import Ended, Outcome, stop

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onceonly.log.heartbeat import Heartbeat


class World:
    """A checkpoint whose driver is played by steps, one each time that the command waits, as is its clock."""

    def __init__(self, folder: Path) -> None:
        self.coordinator = QueryCoordinator(folder / "cp")
        self.coordinator.complete(0)
        self.path = self.coordinator.path
        self.runs, self.stops = RunFiles(self.path), StopFiles(self.path)
        self.now = 0.0
        self.steps: list[Callable[[], object]] = []
        self.presence: Presence | Heartbeat | None = None

    def begin(self, name: str, *, minute: int = 0, alive: bool = True) -> Run:
        run = Run(run=name, began=Stamp(at=f"2026-11-26T20:{minute:02}:00.000Z", host="spark-1", pid=7))
        self.runs.put(run)
        if alive and self.presence is None:
            self.presence = Presence.hold(str(self.path))
        return run

    def let_go(self) -> None:
        if self.presence is not None:
            self.presence.close()
            self.presence = None

    def end(self, run: Run) -> None:
        self.let_go()
        self.runs.put(Run(run=run.run, began=run.began, ended="2026-11-26T21:00:00.000Z"))

    def see(self, run: Run) -> None:
        found = self.stops.of(run)
        assert found is not None
        self.stops.put(replace(found, seen="now"))

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.steps:
            self.steps.pop(0)()

    def stop(self, because: str = "", within_s: float = 30) -> Outcome:
        self.told: list[str] = []
        checkpoint = open_checkpoint(self.path)
        return stop(checkpoint, because=because, within_s=within_s, tell=self.told.append, clock=self)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_runs_that_a_clock_named_far_ahead_push_no_later_one_out(world: World) -> None:
    for second in range(KEEP):
        world.runs.put(
            Run(
                run=f"ahead-{second}",
                began=Stamp(at=f"2999-11-26T20:{second // 60:02}:{second % 60:02}.000Z"),
            )
        )
    run = world.begin("now")
    assert world.runs.newest(1) == [run], "the clock is right again"
    assert world.stop().run == run
    assert world.stops.of(run) is not None


def test_the_run_that_is_alive_is_asked_and_its_end_is_told(world: World) -> None:
    run = world.begin("one")
    world.steps += [lambda: world.see(run), lambda: world.end(run)]
    outcome = world.stop("an upgrade")
    assert (outcome.ended, outcome.is_down, outcome.is_settled) == (Ended.STOPPED, True, True)
    assert outcome.sentence == "run one has ended; chk-0 is complete"
    (asked,) = world.stops.newest()
    assert (asked.run, asked.because, asked.seen) == ("one", "an upgrade", "now")
    assert "run one was asked to end" in world.told[0]


def test_a_run_that_hears_of_nothing_is_not_waited_for_to_the_end(world: World) -> None:
    """As one on Spark Connect: it is alive, decides epochs, and leaves no word of itself."""
    world.presence = Presence.hold(str(world.path))
    outcome = world.stop(within_s=600)
    assert (outcome.ended, outcome.is_down) == (Ended.UNHEARD, False)
    assert world.now < 60
    assert "Spark Connect" in outcome.next_step
    world.steps += [lambda: world.begin("late")] + [lambda: None] * 10
    world.now = 0
    assert world.stop(within_s=120).ended is Ended.UNHEARD
    assert world.now > 100, "one that has left word meanwhile is waited for"
    world.let_go()


def test_a_process_that_ends_at_once_when_its_query_has_is_no_crash(world: World) -> None:
    run = world.begin("one")
    world.steps += [lambda: world.see(run), world.let_go]
    assert world.stop().ended is Ended.STOPPED


def test_where_nobody_is_alive_it_says_so_and_what_is_left(world: World) -> None:
    world.begin("one", alive=False)
    assert (world.stop().ended, world.told) == (Ended.DOWN, []), "who is dead was not asked"
    world.coordinator.set_barrier(1)
    decided = world.coordinator.decide(1)
    outcome = world.stop()
    assert (outcome.ended, outcome.is_settled) == (Ended.DOWN, False)
    assert "chk-1 is decided" in outcome.sentence
    assert outcome.next_step == f"start the query, or: onceonly transactions commit chk-1 {world.path}"
    world.coordinator.settle(decided)
    world.coordinator.set_barrier(2)
    assert world.stop().next_step == f"start the query, or: onceonly transactions abort chk-2 {world.path}"
    world.coordinator.lose_one(2)
    assert world.stop().next_step == "start the query: no command writes again what was lost"


def test_what_runs_without_a_word_as_on_spark_connect_is_not_taken_for_down(world: World) -> None:
    outcome = world.stop()
    assert (outcome.ended, outcome.is_down, world.now) == (Ended.UNHEARD, False, 0.0)
    assert "Spark Connect" in outcome.next_step
    world.end(world.begin("one", alive=False))
    assert world.stop().ended is Ended.DOWN
    world.coordinator.set_barrier(1)
    link = world.coordinator.link(1, votes=[world.coordinator.vote(1)])
    world.coordinator.log.put_link(replace(link, stamp=Stamp(at="2026-11-26T22:00:00.000Z")))
    assert world.stop().ended is Ended.UNHEARD


@pytest.mark.parametrize("is_begun", [False, True])
def test_on_spark_connect_the_run_of_the_newest_link_is_asked_and_its_planner_ends_it(
    world: World,
    is_begun: bool,  # noqa: FBT001
) -> None:
    """Its planner hears before it begins an epoch; Spark has then set its barrier."""
    asked: list[Run] = []
    link = world.coordinator.link(1, votes=[world.coordinator.vote(1)])
    world.coordinator.set_barrier(1)
    link = replace(link, stamp=Stamp(at="2026-11-26T22:00:00.000Z"))
    world.coordinator.log.put_link(link)
    world.coordinator.open("t1-0")
    world.coordinator.settle(link)

    def see() -> None:
        [stop] = world.stops.newest()
        asked.append(Run(run=stop.run, began=stop.began))
        world.see(asked[0])

    def end() -> None:
        if is_begun:
            world.coordinator.set_barrier(2)
        world.runs.put(Run(run=asked[0].run, began=asked[0].began, ended="2999-11-26T21:00:00.000Z"))

    world.steps += [lambda: None] * 3 + [see] + [lambda: None] * 100 + [end]
    outcome = world.stop("an upgrade", within_s=600)
    assert (outcome.ended, outcome.is_settled, outcome.next_step) == (Ended.STOPPED, True, "")
    told = "chk-2 has not begun" if is_begun else "chk-1 is committed"
    assert outcome.sentence == f"run {asked[0].run} has ended; {told}"
    assert world.now > 50, "one that has heard is waited for"
    assert world.stop().ended is Ended.DOWN


def test_a_run_that_is_killed_meanwhile_is_told(world: World) -> None:
    world.begin("one")
    world.steps += [world.let_go]
    outcome = world.stop()
    assert (outcome.ended, outcome.is_down) == (Ended.DIED, True)


def test_a_run_that_took_the_place_of_the_one_asked_is_not_asked(world: World) -> None:
    world.begin("one")
    world.steps += [lambda: world.begin("two", minute=1)]
    outcome = world.stop()
    assert (outcome.ended, outcome.is_down) == (Ended.DIED, False)
    assert [each.run for each in world.stops.newest()] == ["one"]


@pytest.mark.parametrize("is_seen", [False, True])
def test_one_that_goes_on_is_told_with_what_stands_in_the_way(world: World, is_seen: bool) -> None:  # noqa: FBT001
    run = world.begin("one")
    world.steps += [lambda: world.see(run)] if is_seen else []
    outcome = world.stop(within_s=5)
    assert (outcome.ended, outcome.is_down) == (Ended.RUNNING if is_seen else Ended.UNHEARD, False)
    assert outcome.next_step
    world.let_go()


def test_a_driver_that_is_about_to_start_its_query_is_waited_for_and_asked(world: World) -> None:
    first = world.begin("one")
    world.end(first)
    world.presence = Presence.hold(str(world.path))
    begun: list[Run] = []
    world.steps += [
        lambda: begun.append(world.begin("two", minute=1)),
        lambda: None,
        lambda: world.see(begun[0]),
        lambda: world.end(begun[0]),
    ]
    outcome = world.stop()
    assert (outcome.ended, outcome.run and outcome.run.run) == (Ended.STOPPED, "two")


def test_who_asked_first_stays_in_the_record(world: World) -> None:
    run = world.begin("one")
    world.stop("first", within_s=1)
    world.stop("second", within_s=1)
    found = world.stops.of(run)
    assert found is not None
    assert found.because == "first"
    world.let_go()


def test_the_command_says_it_in_words_and_by_its_exit_status(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.begin("one")
    assert here("stop", str(world.path), "--wait", "1s") == 2
    told = capsys.readouterr()
    assert (told.out, "nobody has heard" in told.err) == ("", True)
    world.let_go()
    assert here("stop", str(world.path)) == 0
    assert "no driver is alive" in capsys.readouterr().out
    world.coordinator.set_barrier(1)
    assert here("stop", str(world.path), "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["ended"], found["down"], found["settled"]) == ("down", True, False)
    assert found["request"]["seen"] is None


def test_a_savepoint_is_made_of_what_has_ended_whole_and_of_nothing_else(
    world: World, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    places = tmp_path / "savepoints"
    world.end(world.begin("one", alive=False))
    assert here("stop", str(world.path), "--savepoint", str(places), "--json") == 0
    made = json.loads(capsys.readouterr().out)["savepoint"]
    assert (made["epoch"], made["path"].startswith(str(places))) == (0, True)
    world.coordinator.set_barrier(1)
    world.coordinator.decide(1)
    assert here("stop", str(world.path), "--savepoint", str(places)) == 1
    assert "no savepoint was made" in capsys.readouterr().err
    assert len(list(places.iterdir())) == 1


def test_after_a_commit_by_hand_nothing_is_owed_and_the_start_that_a_savepoint_needs_is_named(
    world: World, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    places = tmp_path / "savepoints"
    world.begin("one", alive=False)
    world.coordinator.set_barrier(1)
    world.coordinator.settle(world.coordinator.decide(1))
    world.coordinator.claim(2, reason="claimed before a drain")
    outcome = world.stop()
    assert (outcome.is_settled, outcome.next_step) == (True, "")
    assert "chk-2 has not begun" in outcome.sentence

    assert here("stop", str(world.path), "--savepoint", str(places)) == 1
    told = capsys.readouterr().err
    assert "chk-1 is committed, and Spark has not noted its end" in told
    assert f"start the query once, then: onceonly stop {world.path} --savepoint {places}" in told
    assert not places.exists()
    assert here("savepoint", "create", str(world.path), str(places)) == 64
    assert "chk-1 is committed, and Spark has not noted its end" in capsys.readouterr().err
    assert not places.exists()
    assert here("savepoint", "create", str(world.path), str(places), "--epoch", "chk-0") == 0
    capsys.readouterr()

    world.coordinator.note(1)
    assert here("stop", str(world.path), "--savepoint", str(places), "--json") == 0
    assert json.loads(capsys.readouterr().out)["savepoint"]["epoch"] == 1


def test_the_place_of_a_savepoint_is_looked_at_before_the_query_is_asked_to_end(
    world: World, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "afile").write_text("", encoding="utf-8")
    run = world.begin("one")
    for place, why in (
        (tmp_path / "afile" / "x", "it is no folder"),
        (world.path / "sp", "is in the checkpoint"),
    ):
        assert here("stop", str(world.path), "--savepoint", str(place), "--wait", "1s") == 64
        assert why in capsys.readouterr().err
        assert here("savepoint", "create", str(world.path), str(place)) == 64
        assert why in capsys.readouterr().err
    assert here("savepoint", "create", str(world.path), str(world.path)) == 64
    assert world.stops.of(run) is None
    world.let_go()


def test_that_it_has_ended_is_told_whatever_becomes_of_the_savepoint(
    world: World, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_given: object, **_named: object) -> None:
        raise UnavailableError("the disk is full", next_step="make room")

    monkeypatch.setattr(savepoints, "create", full)
    world.end(world.begin("one", alive=False))
    assert here("stop", str(world.path), "--savepoint", str(tmp_path / "sp"), "--json") == 2
    told = capsys.readouterr()
    assert (json.loads(told.out)["down"], json.loads(told.out)["savepoint"]) == (True, None)
    assert "no savepoint was made: the disk is full" in told.err
