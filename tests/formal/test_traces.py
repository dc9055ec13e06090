"""Real runs are behaviours of the model; the same runs with one event changed are not."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.test_runtime_coordinator import POINTS, SINKS, Job

from onceonly import errors, events, failpoints, files
from onceonly.model import LinkKind, Passed
from onceonly_proof import traces

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from onceonly.model import Plan, Vote
    from onceonly.ports import QueryContext

pytestmark = pytest.mark.integration

Line = dict[str, Any]
LIFE = Path(__file__).parent / "file_life.py"
# The first as a planner dies, then each process in the order of an epoch, then in recovery.
KILLED = (
    "plan.after_claim",
    "slot.after_prepare@3",
    "link.after_put",
    "commit.after_handle@2",
    "plan.after_recommit@2",
    "receipt.before_put",
    "receipt.after_put",
    "commit.before_return",
)


class Recorded:
    """A job in memory whose events are recorded."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        patch.setenv("ONCEONLY_EVENTS", str(folder))
        patch.setattr(events, "_writer", None)
        self.folder = folder
        self.patch = patch
        self.job = Job()

    def crash_at(self, spec: str, *, graceful: bool) -> None:
        self.job.graceful = graceful
        self.patch.setenv("ONCEONLY_FAILPOINTS", spec)
        self.patch.setattr(failpoints, "_counts", {})
        self.job.finish(self.job.finished + 1)
        self.patch.delenv("ONCEONLY_FAILPOINTS")

    def lose_a_part(self) -> None:
        """Die between decision and commits, and let a part of what one of the sinks holds expire."""
        self.patch.setenv("ONCEONLY_FAILPOINTS", "link.after_put=raise")
        self.patch.setattr(failpoints, "_counts", {})
        with pytest.raises(failpoints.FailpointError):
            self.job.live(self.job.finished + 1)
        self.patch.delenv("ONCEONLY_FAILPOINTS")
        self.job.store("b").expire(self.job.store("b").pending()[0])
        self.job.finish(self.job.finished + 1)

    def overtake(self) -> None:
        """A driver stands between its votes and its link while another one runs the epoch."""
        job, epoch = self.job, self.job.finished + 1
        paused = job.coordinator()
        plan = paused.plan(epoch, barrier=(str(epoch),), run="paused")
        votes = self.votes(plan)
        job.finish(epoch)
        with pytest.raises(errors.SupersededError):
            paused.decide(plan, votes)
        paused.abort(plan, votes, run="paused")

    def votes(self, plan: Plan) -> list[Vote]:
        slots = itertools.product(SINKS, range(len(self.job.dealt)))
        return [self.job.task(plan, sink, slot, run="paused") for sink, slot in slots]

    def lines(self) -> list[Line]:
        (found,) = traces.queries(events.read(self.folder)).values()
        return found


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return Recorded(tmp_path / "events", monkeypatch)


def test_a_run_that_crashes_everywhere_is_a_behaviour_of_the_model(recorded: Recorded) -> None:
    recorded.job.finish(0)
    for number, point in enumerate(POINTS):
        more = ", commit.before_handle=raise" if "recommit" in point else ""
        recorded.crash_at(f"{point}=raise{more}", graceful=number % 2 == 0)
    recorded.overtake()
    recorded.lose_a_part()
    recorded.job.finish(recorded.job.finished + 1)
    recorded.job.check()

    (verdict,) = traces.validate(recorded.folder)

    assert verdict.accepted, verdict
    assert verdict.events > 400
    kinds = Counter(line["kind"] for line in recorded.lines())
    assert {"link.taken", "swept", "handle.resolved", "handle.aborted", "epoch.aborted"} <= kinds.keys()


def test_a_driver_that_looks_at_its_sinks_while_another_claims_the_epoch_has_begun_before(
    recorded: Recorded,
) -> None:
    job = recorded.job
    slow = job.coordinator()
    sink, check = job.sinks["a"], job.sinks["a"].check

    def overtaken(context: QueryContext) -> Mapping[str, str | int]:
        sink.check = check  # type: ignore[method-assign]  # for this one time
        job.coordinator().plan(0, barrier=("0",), run="quick")
        return check(context)

    sink.check = overtaken  # type: ignore[method-assign]  # as above
    with pytest.raises(errors.UnavailableError, match="put a link of this epoch first"):
        slow.plan(0, barrier=("0",), run="slow")
    assert [line["kind"] for line in recorded.lines()][-1] == "link.taken"

    (verdict,) = traces.validate(recorded.folder)

    assert verdict.accepted, verdict


def test_a_run_goes_on_past_epochs_that_were_skipped(recorded: Recorded) -> None:
    job = recorded.job
    job.finish(1)
    later = job.coordinator().plan(
        4, barrier=("4",), run="later", passed=lambda epoch: Passed(epoch=epoch, unchanged=True)
    )
    recorded.job.coordinator().decide(later, recorded.votes(later))
    assert [job.disk.links[epoch][-1].kind for epoch in (2, 3)] == [LinkKind.SKIPPED] * 2
    lines = recorded.lines()
    after = at(lines, "link.persisted", link=LinkKind.SKIPPED)

    verdict, *doctored = traces.judge(
        [
            lines,
            without(lines, after),
            without(lines, at(lines, "receipt.persisted", epoch=3)),
            moved(lines, at(lines, "handle.committed", epoch=4), at(lines, "votes.collected", epoch=4)),
        ]
    )

    assert verdict.accepted, verdict
    assert verdict.events > after + 10
    assert [each.accepted for each in doctored] == [False] * 3


# --- one event changed ------------------------------------------------------------------------------------------


def at(lines: list[Line], kind: str, nth: int = 0, **fields: object) -> int:
    """Find the n-th event of a kind."""
    found = [
        number
        for number, line in enumerate(lines)
        if line["kind"] == kind and all(line.get(name) == value for name, value in fields.items())
    ]
    return found[nth]


def moved(lines: list[Line], source: int, target: int) -> list[Line]:
    rest = [*lines[:source], *lines[source + 1 :]]
    return [*rest[:target], lines[source], *rest[target:]]


def without(lines: list[Line], number: int) -> list[Line]:
    return [*lines[:number], *lines[number + 1 :]]


def changed(lines: list[Line], number: int, **fields: object) -> list[Line]:
    return [*lines[:number], {**lines[number], **fields}, *lines[number + 1 :]]


def added(lines: list[Line], number: int, *more: Line) -> list[Line]:
    return [*lines[:number], *more, *lines[number:]]


def decision(lines: list[Line]) -> int:
    return at(lines, "link.persisted", link="GLOBAL_COMMIT")


def second_decision(lines: list[Line]) -> list[Line]:
    first = decision(lines)
    return added(lines, first + 1, {**lines[first], "index": lines[first]["index"] + 1})


def sweep_of_a_decided_handle(lines: list[Line]) -> list[Line]:
    first = decision(lines)
    sink, _, name = lines[first]["names"].split()[0].partition(":")
    swept = {**lines[first], "kind": "swept", "sink": sink, "transaction": name}
    return added(lines, first + 1, swept)


def abort_after_a_failed_commit(lines: list[Line]) -> list[Line]:
    committed = at(lines, "handle.committed")
    given_up = [{**lines[committed], "kind": kind} for kind in ("epoch.aborted", "handle.aborted")]
    return added(lines, committed, *given_up)


def vote_of_an_older_run(lines: list[Line]) -> list[Line]:
    older = next(line for line in lines if line["kind"] == "slot.prepared")
    later = next(
        number
        for number, line in enumerate(lines)
        if line["kind"] == "votes.collected"
        and line["epoch"] == older["epoch"]
        and line["plan"] != older["plan"]
    )
    mine, *rest = lines[later]["names"].split()
    assert mine.startswith(older["sink"])
    return changed(lines, later, names=" ".join([f"{older['sink']}:{older['transaction']}", *rest]))


def drain_that_writes(lines: list[Line]) -> list[Line]:
    drain = at(lines, "epoch.planned", mode="drain")
    begun = next(line for line in lines if line["kind"] == "slot.begun")
    where = {name: lines[drain][name] for name in ("plan", "epoch", "incarnation")}
    return added(lines, drain + 1, {**begun, **where})


def overtaken_driver_decides(lines: list[Line]) -> list[Line]:
    votes = lines[at(lines, "votes.collected")]
    claim = at(lines, "link.persisted", 1, link="ABORT")
    link = {**lines[claim], "link": "GLOBAL_COMMIT", "index": lines[claim]["index"] + 1}
    return added(lines, claim + 1, {**link, "plan": votes["plan"], "names": votes["names"]})


DOCTORED: dict[str, Callable[[list[Line]], list[Line]]] = {
    "commit before its link": lambda lines: moved(lines, at(lines, "handle.committed"), decision(lines)),
    "decision left out": lambda lines: without(lines, decision(lines)),
    "second decision": second_decision,
    "receipt without one commit": lambda lines: without(lines, at(lines, "handle.committed", 1)),
    "receipt before a commit": lambda lines: moved(
        lines, at(lines, "receipt.persisted"), at(lines, "handle.committed", 1)
    ),
    "receipt though an outcome is unknown": lambda lines: changed(
        lines, at(lines, "handle.committed"), outcome="Unknown"
    ),
    "receipt left out": lambda lines: without(lines, at(lines, "receipt.persisted")),
    "sweep of a decided handle": sweep_of_a_decided_handle,
    "claim left out": lambda lines: without(lines, at(lines, "link.persisted", link="ABORT")),
    "vote that was not prepared": lambda lines: without(lines, at(lines, "slot.prepared")),
    "abort after a failed commit taken literally": abort_after_a_failed_commit,
    "vote of an older run": vote_of_an_older_run,
    "decision without one vote": lambda lines: changed(
        lines, decision(lines), names=lines[decision(lines)]["names"].partition(" ")[2]
    ),
    "committed handle taken for lost": lambda lines: changed(
        lines, at(lines, "handle.resolved"), outcome="Lost"
    ),
    "drain that writes": drain_that_writes,
    "an overtaken driver decides": overtaken_driver_decides,
}


def test_a_run_with_one_event_changed_is_none(recorded: Recorded) -> None:
    # Killed with all votes in, then with everything committed: three drivers, claims, a sweep, a drain.
    recorded.crash_at("link.before_put=raise", graceful=False)
    recorded.crash_at("receipt.before_put=raise", graceful=False)
    lines = recorded.lines()
    names = list(DOCTORED)
    assert all(DOCTORED[name](lines) != lines for name in names)

    first, *verdicts = traces.judge([lines, *(DOCTORED[name](lines) for name in names)])

    assert first.accepted, first
    assert [name for name, verdict in zip(names, verdicts, strict=True) if verdict.accepted] == []
    assert all("not this one: kind=" in str(verdict) for verdict in verdicts)


# --- processes --------------------------------------------------------------------------------------------------


def start(folder: Path, spec: str = "") -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "ONCEONLY_EVENTS": str(folder / "events"),
        "ONCEONLY_FAILPOINTS": spec,
    }
    return subprocess.Popen(
        [sys.executable, str(LIFE), str(folder), "5"], env=environment, stderr=subprocess.DEVNULL
    )


def explained(folder: Path) -> None:
    for name in ("left", "right"):
        assert [epoch.rows for epoch in files.committed(str(folder / name))] == [2] * 5
    (verdict,) = traces.validate(folder / "events")
    assert verdict.accepted, verdict


def test_drivers_killed_one_after_another_leave_a_log_that_the_model_explains(tmp_path: Path) -> None:
    for point in KILLED:
        name, _, nth = point.partition("@")
        assert start(tmp_path, f"{name}=kill@{nth or 1}").wait(120) == -signal.SIGKILL, point
    assert start(tmp_path).wait(120) == 0

    explained(tmp_path)
    assert len(list((tmp_path / "events").iterdir())) == len(KILLED) + 1


def test_drivers_that_race_on_one_checkpoint_leave_a_log_that_the_model_explains(tmp_path: Path) -> None:
    racing = [start(tmp_path), start(tmp_path)]
    ends = [driver.wait(120) for driver in racing]
    assert set(ends) <= {0, 1}, "each is done, or was overtaken"
    assert start(tmp_path).wait(120) == 0

    explained(tmp_path)


def test_a_link_is_not_before_the_one_that_it_follows_whatever_the_clocks_say() -> None:
    def line(incarnation: str, t: float, kind: str, index: int) -> Line:
        return {
            "incarnation": incarnation, "seq": t, "t": t, "kind": kind, "index": index,
            "query": "q", "plan": incarnation, "epoch": 0,
        }  # fmt: skip

    lines = [
        line("late", 1.0, "link.persisted", 1),
        line("early", 1.1, "link.persisted", 0),
        line("early", 1.2, "link.taken", 2),
        line("late", 1.3, "link.persisted", 2),
    ]
    told = [(each["kind"], each["index"]) for each in traces.queries(lines)["q"]]
    assert told == [*(("link.persisted", index) for index in range(3)), ("link.taken", 2)]


def test_a_folder_without_events_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="was ONCEONLY_EVENTS set"):
        traces.validate(tmp_path)
