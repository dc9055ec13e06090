"""One life of a driver or of a task, for the tests of late epochs; ``late_bench.Lives`` starts it.

``slow``: time passes between the votes and their decision. ``one-slot-elsewhere``: plan, leave the plan in the folder,
and be the task of slot 0. ``given-up``: take up that plan as the commit process does when Spark gives a try up, with
the vote of slot 1.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from onceonly.coordinator.coordinator import Coordinator, Participant
from onceonly.errors import EpochTimeoutError, OnceonlyError
from onceonly.executor.deadline import in_time
from onceonly.executor.slot import Deadline, run_slot
from onceonly.log import open_log
from onceonly.model import Guarantee, Plan, Vote
from onceonly.ports import WriteContext
from onceonly.settings.query import SinkSettings
from onceonly.settings.registry import build, find

if TYPE_CHECKING:
    from onceonly.ports import Clock

COLUMNS = (("id", "bigint"), ("value", "string"))


class FileClock:
    """The time that a test has written into a file: the same for all processes, as a machine's is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ahead_s = 0.0

    def monotonic(self) -> float:
        return float(self._path.read_text(encoding="utf-8")) + self._ahead_s

    def sleep(self, seconds: float) -> None:
        self._ahead_s += seconds


class Life:
    def __init__(self, given: dict[str, Any]) -> None:
        self.folder = Path(given["folder"])
        self.query = given["query"]
        clock = self.folder / "clock"
        self.clock: Clock = FileClock(clock) if clock.exists() else time
        self.name, kind = find(given["sink"])
        self.sink = build(SinkSettings(name=self.name, options=given["options"]), kind)
        self.coordinator = Coordinator(
            log=open_log(str(self.folder / "checkpoint"), query=self.query, create=True),
            actor="driver",
            epoch_timeout_s=given["limit_s"],
            clock=self.clock,
        )
        participant = Participant(sink=self.sink, guarantee=Guarantee.EXACTLY_ONCE, columns=COLUMNS)
        self.coordinator.join(self.name, participant)

    def plan(self) -> Plan:
        return self.coordinator.plan(0, run="r")

    def task(self, plan: Plan, slot: int) -> Vote:
        context = WriteContext(
            query=self.query, sink=self.name, run="r", epoch=0, plan=plan.id, slot=slot, attempt="0",
            guarantee=plan.guarantee, mode=plan.mode, facts=plan.facts[self.name],
        )  # fmt: skip
        ids = [2 * slot, 2 * slot + 1]
        batches = [pa.record_batch({"id": ids, "value": [str(each) for each in ids]})]
        deadline = Deadline(plan.limit_s, context, self.clock)
        return in_time(deadline, lambda: run_slot(self.sink, plan, context, batches, deadline).vote)

    def decide(self, plan: Plan, votes: list[Vote]) -> None:
        """As Spark does: an epoch whose commit failed is given up."""
        try:
            self.coordinator.decide(plan, votes)
        except OnceonlyError:
            self.coordinator.abort(plan, votes, run="r")
            raise


def main(given: dict[str, Any]) -> None:
    life, word = Life(given), given["word"]
    if word == "given-up":
        plan = pickle.loads((life.folder / "plan").read_bytes())  # noqa: S301  written by this same script
        life.coordinator.abort(plan, [life.task(plan, 1)], run="r")
        raise EpochTimeoutError("slot 0 was late", next_step="run it again")
    plan = life.plan()
    if word == "one-slot-elsewhere":
        (life.folder / "plan").write_bytes(pickle.dumps(plan))
        life.task(plan, 0)
        return
    votes = [life.task(plan, slot) for slot in range(2)]
    if word == "slow":
        life.clock.sleep(given["limit_s"] + 1)
    life.decide(plan, votes)
    say(plan.mode.value)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except OnceonlyError as error:
        told = ("code", "what", "next_step", "restartable")
        say(json.dumps({name: getattr(error, name) for name in told}))
        sys.exit(3)
