"""Two supervised drivers on one checkpoint, stopped and woken in many orders: one works on, the other ends for good.

An operator who acts though a driver lives takes over from it.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest
from harness import Run

from onceonly import cli
from onceonly.log import owners
from onceonly_proof.auditor import FilesReader, Input, audit
from onceonly_proof.power.inputs import key, write_file

if TYPE_CHECKING:
    from collections.abc import Callable

    import psutil

pytestmark = pytest.mark.acceptance

JOB = Path(__file__).with_name("duel_job.py")
ENDED_WITHIN_S = 30.0
STEP_S = 90.0
FEED_EVERY_S = 0.25

ORDERS = (
    # The old one sleeps while the new one takes over.
    "pause old, go, works new, wake old",
    # None sleeps.
    "go",
    "go, works new",
    # The new one sleeps once it has taken over, and the old one is at it meanwhile.
    "go, works new, pause new, some time, wake new",
    "pause old, go, works new, pause new, wake old, some time, wake new",
    "pause old, go, works new, pause new, wake new, wake old",
    # The new one sleeps in the middle of its start.
    "go, some time, pause new, goes on old, wake new",
    "pause old, go, some time, pause new, wake old, goes on old, wake new",
    # Both sleep, somewhere.
    "go, some time, pause old, some time, pause new, some time, wake old, wake new",
    "go, some time, pause new, some time, pause old, some time, wake new, some time, wake old",
)  # fmt: skip


@dataclass
class Driver:
    name: str
    run: Run
    application: str = ""
    asleep: list[psutil.Process] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return self.run.process.poll() is not None

    def pause(self) -> None:
        if not self.ended:
            self.asleep = self.run.tree()

    def wake(self) -> None:
        for process in reversed(self.asleep):
            if process.is_running():
                process.resume()
        self.asleep = []


class Duel:
    """A checkpoint, what goes in all the time, the driver that works on it, and its challengers."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.drivers: list[Driver] = []
        self.values: list[str] = []
        self._random = random.Random(seed)
        self._fed = threading.Event()
        self._feeder = threading.Thread(target=self._feed, name="feeder")
        for name in ("in", "out"):
            (folder / name).mkdir()

    def __enter__(self) -> Self:
        self._feeder.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._fed.set()
        self._feeder.join()
        for driver in self.drivers:
            driver.run.kill_tree()

    def _feed(self) -> None:
        number = 0
        while not self._fed.wait(FEED_EVERY_S):
            self.values += write_file(self.folder / "in", number, again=False)
            number += 1

    def start(self, armed: str = "") -> Driver:
        """Start a process, up to where it would begin its query; crash points may be armed in it."""
        name = f"driver-{len(self.drivers)}"
        (self.folder / name).mkdir()
        log = self.folder / f"{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", str(JOB), str(self.folder), name],
                stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, "ONCEONLY_FAILPOINTS": armed, "ONCEONLY_FAILPOINTS_DIR": str(self.folder)},
            )  # fmt: skip
        driver = Driver(name, Run(process, log, self.folder))
        self.drivers.append(driver)
        ready = self.folder / f"{name}.ready"
        driver.run.until(ready.exists, "it is ready")
        driver.application = ready.read_text(encoding="utf-8")
        return driver

    def go(self, driver: Driver) -> None:
        (self.folder / f"{driver.name}.go").touch()

    def is_last(self, driver: Driver) -> bool:
        links = self.folder / "checkpoint" / "onceonly" / "links"
        if not links.is_dir() or not any(links.glob("*.json")):
            return False
        return owners(str(self.folder / "checkpoint"))[-1:] == (driver.application,)

    def noted(self) -> int:
        commits = self.folder / "checkpoint" / "commits"
        found = commits.iterdir() if commits.is_dir() else iter(())
        return max((int(path.name) for path in found if path.name.isdecimal()), default=-1)

    def until(self, condition: Callable[[], object], what: str, timeout_s: float = STEP_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"waited {timeout_s:g} s until {what}\n{self.tails()}"
            time.sleep(0.05)

    def goes_on(self, driver: Driver) -> None:
        """See that it has decided and noted more than now."""
        before = self.noted()
        self.until(
            lambda: driver.ended or (self.noted() > before + 1 and self.is_last(driver)),
            f"{driver.name} goes on",
        )

    def challenge(self, old: Driver, order: str) -> tuple[Driver, float]:
        """Let a new driver loose beside the old one; give the one that is left, and the seconds that it took."""
        new = self.start()
        named = {"old": old, "new": new}
        for step in order.split(", "):
            verb, _, name = step.rpartition(" ")
            match verb or step:
                case "go":
                    self.go(new)
                case "pause":
                    named[name].pause()
                case "wake":
                    named[name].wake()
                case "works":
                    self.until(lambda: new.ended or self.is_last(new), "the new one has put a link")
                case "goes on":
                    self.goes_on(named[name])
                case _:
                    time.sleep(self._random.uniform(0, 3))
        since = time.monotonic()
        self.until(
            lambda: old.ended or new.ended, f"one of both has ended ({order})", timeout_s=ENDED_WITHIN_S
        )
        took = time.monotonic() - since
        ended, left = (old, new) if old.ended else (new, old)
        error = self.folder / f"{ended.name}.error"
        assert ended.run.process.poll() == 3, ended.run.tail()
        assert error.read_text(encoding="utf-8").startswith("SUPERSEDED"), ended.run.tail()
        self.goes_on(left)
        assert not left.ended, left.run.tail()
        return left, took

    def end(self, left: Driver) -> None:
        """Feed no more, drain, and ask the auditor."""
        self._fed.set()
        self._feeder.join()
        (self.folder / "stop").touch()
        assert left.run.wait(STEP_S) == 0, left.run.tail()
        inputs = [
            Input(number, f"input/{value.rpartition('-')[0]}", number, key(value).encode(), value.encode())
            for number, value in enumerate(self.values)
        ]
        reader = FilesReader("files", self.folder / "out")
        verdict = audit(inputs, sinks={"files": reader}, checkpoint=self.folder / "checkpoint")
        reader.close()
        assert {each for each, count in verdict.anomalies.items() if count} == set(), verdict.examples

    def tails(self) -> str:
        return "\n".join(f"--- {each.name}\n{each.run.tail(15)}" for each in self.drivers[-2:])


@pytest.mark.parametrize(
    "orders",
    [
        pytest.param(ORDERS[:1], id="one", marks=pytest.mark.timeout(600)),
        pytest.param(ORDERS * 2, id="twenty", marks=[pytest.mark.long, pytest.mark.timeout(3_000)]),
    ],
)
def test_two_supervised_drivers_on_one_checkpoint_one_works_and_the_other_ends_for_good(
    orders: tuple[str, ...], tmp_path: Path
) -> None:
    with Duel(tmp_path, seed=len(orders)) as duel:
        left = duel.start()
        duel.go(left)
        duel.goes_on(left)
        for order in orders:
            left, took = duel.challenge(left, order)
            sys.stdout.write(f"{took:4.1f} s, {left.name} is left: {order}\n")
        duel.end(left)


@pytest.mark.timeout(600)
def test_an_operators_command_in_the_middle_of_an_epoch_ends_a_run_that_lives_after_all(
    tmp_path: Path,
) -> None:
    with Duel(tmp_path, seed=1) as duel:
        driver = duel.start(armed="link.before_put=pause@3")
        duel.go(driver)
        driver.run.wait_for("link.before_put")
        # Now nobody can tell that a run is alive, as on a file system without locks.
        (tmp_path / "checkpoint" / "onceonly" / "alive").unlink()
        assert cli.run(["transactions", "abort", "chk-2", "--yes", str(tmp_path / "checkpoint")]) == 0
        (tmp_path / "resume").touch()
        duel.until(lambda: driver.ended, "the driver that lives after all has ended")
        error = (tmp_path / f"{driver.name}.error").read_text(encoding="utf-8")
        assert error.startswith("SUPERSEDED"), driver.run.tail()
        after = duel.start()
        duel.go(after)
        duel.goes_on(after)
        assert "was ended by hand" in after.run.tail(200)
        duel.end(after)
