"""Each fault arms what it says, fires once it has happened, and leaves the world whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import psutil
import pytest

from onceonly import failpoints
from onceonly_proof.campaign.faults import (
    AtPoint,
    CutTarget,
    FreezeWorker,
    KillBroker,
    KillDriver,
    KillDriverAt,
    KillExecutorAt,
    KillSource,
    KillStore,
    KillTarget,
    KillWorker,
    Pause,
    RemoveWaitingAt,
    StopBroker,
    TakeFilesAt,
    WakeLateAt,
)
from onceonly_proof.campaign.points import Points

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from onceonly_proof.campaign.fault import Fault
    from onceonly_proof.campaign.sources import Source
    from onceonly_proof.campaign.stores import CheckpointStore
    from onceonly_proof.campaign.targets import Target
    from onceonly_proof.embedded.kafka import EmbeddedKafka

POINT = "link.before_put"


@dataclass
class Recorder:
    """A broker, or a store, that notes what is done to it."""

    done: list[str]
    what: str = "broker"
    has_server: bool = True
    at: float | None = None

    def cut_next(self) -> None:
        self.done.append(f"{self.what} armed")

    def spare(self) -> None:
        self.done.append(f"{self.what} spared")

    def cut_at(self) -> float | None:
        return self.at

    def kill(self, *_: float) -> None:
        self.done.append(f"{self.what} killed")

    def stop(self) -> None:
        self.done.append("broker stopped")

    def start(self) -> None:
        self.done.append(f"{self.what} started")


@dataclass
class FakeStage:
    """A stage with real crash points and real processes for workers, and a clock of its own."""

    points: Points
    pids: list[int] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    time: float = 1000.0
    cut_s: float | None = None

    @property
    def kafka(self) -> EmbeddedKafka:
        return cast("EmbeddedKafka", Recorder(self.done))

    @property
    def store(self) -> CheckpointStore:
        return cast("CheckpointStore", Recorder(self.done, "store"))

    @property
    def targets(self) -> Mapping[str, Target]:
        file = Recorder(self.done, "file", has_server=False)
        return {
            "sqlite": cast("Target", file),
            "mysql": cast("Target", Recorder(self.done, "database", at=self.cut_s)),
        }

    @property
    def source(self) -> Source:
        return cast("Source", Recorder(self.done, "source"))

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.done.append("slept")

    def workers(self) -> list[int]:
        return self.pids

    def kill_driver(self) -> None:
        self.done.append("driver killed")

    def strand(self, pid: int) -> None:
        self.pids.append(pid)
        self.done.append("stranded")

    def kill_executor(self, worker: int) -> None:
        psutil.Process(worker).kill()
        self.done.append("executor killed")

    def await_epochs(self, count: int) -> None:
        self.done.append(f"{count} epochs")

    def await_end(self, pid: int) -> None:
        assert pid == self.pids[-1]
        assert psutil.Process(pid).wait(60) is not None
        self.done.append("ended")

    def remove_waiting(self) -> None:
        self.done.append("removed")

    def take_files(self, *, moves: bool) -> None:
        self.done.append("files moved" if moves else "files deleted")


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeStage:
    stage = FakeStage(Points(tmp_path / "points"))
    for name, value in stage.points.env.items():
        monkeypatch.setenv(name, value)
    return stage


@contextmanager
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        yield process
    finally:
        process.kill()
        process.wait(60)


@contextmanager
def standing(fault: Fault, stage: FakeStage) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Arm a fault, and have a process stand still where it has fired."""
    arming = fault.arm(stage)
    process = subprocess.Popen(
        [sys.executable, "-c", f"from onceonly import failpoints; failpoints.hit({POINT!r})"]
    )
    try:
        deadline = time.monotonic() + 60
        while fault.fired(stage, arming) is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert process.poll() is None
        yield arming, process
    finally:
        process.kill()
        process.wait(60)


def test_a_point_that_raises_fires_when_it_is_passed(stage: FakeStage) -> None:
    fault = AtPoint(point=POINT, action="raise", nth=2)
    arming = fault.arm(stage)
    failpoints.hit(POINT)
    assert fault.fired(stage, arming) is None
    with pytest.raises(failpoints.FailpointError):
        failpoints.hit(POINT)

    assert fault.fired(stage, arming) == pytest.approx(time.time(), abs=30)


def test_a_second_arming_of_the_same_point_fires_by_itself(stage: FakeStage) -> None:
    fault = AtPoint(point=POINT, action="raise")
    for _ in range(2):
        arming = fault.arm(stage)
        assert fault.fired(stage, arming) is None
        with pytest.raises(failpoints.FailpointError):
            failpoints.hit(POINT)
        assert fault.fired(stage, arming)
        stage.points.disarm()
        failpoints.hit(POINT)


@pytest.mark.parametrize(
    ("point", "opener"),
    [("plan.after_claim", "link.before_put"), ("plan.before_recommit", "commit.before_handle")],
)
def test_what_is_passed_in_recovery_only_is_led_to_by_another_failure(
    point: str, opener: str, stage: FakeStage
) -> None:
    fault = AtPoint(point=point, action="raise")
    assert fault.opener == AtPoint(point=opener, action="raise")
    opening = fault.opener.arm(stage)
    arming = fault.arm(stage)
    with pytest.raises(failpoints.FailpointError):
        failpoints.hit(opener)
    assert fault.opener.fired(stage, opening)
    assert fault.fired(stage, arming) is None
    with pytest.raises(failpoints.FailpointError):
        failpoints.hit(point)
    assert fault.fired(stage, arming)


@pytest.mark.parametrize(
    ("fault", "done"),
    [
        (Pause(point=POINT, nth=1, seconds=1), ["slept"]),
        (KillBroker(point=POINT, nth=1, down_s=1), ["broker killed", "slept", "broker started"]),
        (KillStore(point=POINT, nth=1, which=0, down_s=1), ["store killed", "slept", "store started"]),
        (
            KillTarget(point=POINT, nth=1, after_s=1, down_s=1),
            ["slept", "database killed", "slept", "database started"],
        ),
        (KillDriverAt(point=POINT, nth=1), ["driver killed"]),
        (RemoveWaitingAt(point=POINT), ["removed"]),
        (KillSource(point=POINT, down_s=1), ["source killed", "slept", "source started"]),
        (WakeLateAt(point=POINT), ["stranded", "2 epochs", "ended"]),
    ],
)
def test_a_step_stands_still_until_the_fault_is_over(
    fault: Pause
    | KillBroker
    | KillStore
    | KillSource
    | KillTarget
    | KillDriverAt
    | RemoveWaitingAt
    | WakeLateAt,
    done: list[str],
    stage: FakeStage,
) -> None:
    with standing(fault, stage) as (arming, process):
        fault.heal(stage, arming)
        stage.points.disarm()
        assert process.wait(60) == 0
    assert stage.done == done


def test_the_executor_dies_whose_worker_stands_at_the_step(stage: FakeStage) -> None:
    fault = KillExecutorAt(point=POINT)
    with standing(fault, stage) as (arming, process):
        fault.heal(stage, arming)
        assert process.wait(60) == -signal.SIGKILL
    assert (stage.done, fault.crashes, fault.name) == (["executor killed"], 1, f"kill executor at {POINT}")


OUTAGES = (
    KillBroker(point=POINT, down_s=1),
    KillStore(point=POINT, which=0, down_s=1),
    KillSource(point=POINT, down_s=1),
    KillTarget(point=POINT, after_s=1, down_s=1),
)


@pytest.mark.parametrize("fault", OUTAGES)
def test_a_step_goes_on_while_a_server_is_down(
    fault: KillBroker | KillStore | KillSource | KillTarget, stage: FakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with standing(fault, stage) as (arming, process):
        monkeypatch.setattr(stage, "sleep", lambda _: process.wait(10))
        fault.heal(stage, arming)
    assert stage.done[-1].endswith("started")


@pytest.mark.parametrize("fault", [*OUTAGES, StopBroker(delay_s=0, down_s=1)])
def test_a_server_comes_back_though_its_campaign_is_interrupted(
    fault: KillBroker | KillStore | KillSource | KillTarget | StopBroker,
    stage: FakeStage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arming = fault.arm(stage)

    def sleep(_: float) -> None:
        if stage.done:  # the server is down
            raise KeyboardInterrupt

    monkeypatch.setattr(stage, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        fault.heal(stage, arming)
    assert stage.done[-1].endswith("started")


def test_a_connection_is_cut_at_the_next_commit_of_any_target(stage: FakeStage) -> None:
    fault = CutTarget()
    assert (fault.crashes, fault.opener) == (0, None)
    arming = fault.arm(stage)
    assert fault.fired(stage, arming) is None
    stage.cut_s = 1001.5
    assert fault.fired(stage, arming) == 1001.5
    fault.heal(stage, arming)
    assert stage.done == ["file armed", "database armed", "file spared", "database spared"]


def test_a_worker_dies_when_it_is_time(stage: FakeStage) -> None:
    fault = KillWorker(delay_s=1.0, which=0.99)
    arming = fault.arm(stage)
    with child() as first, child() as second:
        stage.pids = [first.pid, second.pid]
        assert fault.fired(stage, arming) is None
        stage.time += 2
        assert fault.fired(stage, arming)
        assert second.wait(60) == -signal.SIGKILL
        assert first.poll() is None


def test_a_worker_is_not_said_to_be_dead_where_there_is_none(stage: FakeStage) -> None:
    fault = KillWorker(delay_s=0.0, which=0.5)
    arming = fault.arm(stage)

    assert fault.fired(stage, arming) is None
    with child() as gone:
        pass
    stage.pids = [gone.pid]
    assert fault.fired(stage, arming) is None


def test_a_frozen_worker_goes_on(stage: FakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = FreezeWorker(delay_s=0.0, which=0.0, seconds=1.0)
    arming = fault.arm(stage)
    seen: list[str] = []
    with child() as process:
        stage.pids = [process.pid]

        def look(_: float) -> None:
            deadline = time.monotonic() + 60
            while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
                assert time.monotonic() < deadline
            seen.append("stopped")

        monkeypatch.setattr(stage, "sleep", look)
        assert fault.fired(stage, arming)
        deadline = time.monotonic() + 60
        while psutil.Process(process.pid).status() == psutil.STATUS_STOPPED:
            assert time.monotonic() < deadline
    assert seen == ["stopped"]


@pytest.mark.parametrize(
    ("fault", "done"),
    [
        (KillDriver(delay_s=1.0), ["driver killed"]),
        (StopBroker(delay_s=1.0, down_s=0.1), ["broker stopped", "slept", "broker started"]),
    ],
)
def test_what_is_due_at_a_moment_waits_for_it(
    fault: KillDriver | StopBroker, done: list[str], stage: FakeStage
) -> None:
    arming = fault.arm(stage)
    assert fault.fired(stage, arming) is None
    stage.time += 1.5
    assert fault.fired(stage, arming) == 1001.0
    fault.heal(stage, arming)

    assert stage.done == done


def test_each_fault_counts_its_own_deaths_and_what_leads_to_it_counts_by_itself() -> None:
    kill = AtPoint(point="plan.after_claim")
    assert kill.opener == AtPoint(point="link.before_put")
    assert (kill.crashes, kill.opener.crashes) == (1, 1)
    assert AtPoint(point="plan.after_claim", action="raise").crashes == 0
    driver = KillDriverAt(point="plan.before_recommit", nth=1)
    assert driver.opener == AtPoint(point="commit.before_handle", action="raise")
    assert (driver.crashes, driver.opener.crashes) == (1, 0)
    for free in (
        AtPoint(point="link.after_put"),
        KillDriver(delay_s=0.0),
        StopBroker(delay_s=0.0, down_s=0.0),
    ):
        assert free.opener is None


def test_disarming_lets_go_what_stands_and_fires_no_more(stage: FakeStage) -> None:
    stage.points.arm(POINT, "raise")
    stage.points.disarm()
    failpoints.hit(POINT)
    key = stage.points.arm(POINT, "pause")
    stage.points.disarm()

    assert (stage.points.folder / "fired" / f"resume#{key.partition('#')[2]}").exists()
    assert os.listdir(stage.points.folder / "fired")  # noqa: PTH208  the names alone


@pytest.mark.parametrize("moves", [True, False])
def test_files_are_taken_before_the_driver_dies(stage: FakeStage, *, moves: bool) -> None:
    fault = TakeFilesAt(point="receipt.before_put", nth=1, moves=moves)
    assert fault.crashes == 1
    fault.heal(stage, "")
    assert stage.done == ["files moved" if moves else "files deleted", "driver killed"]
