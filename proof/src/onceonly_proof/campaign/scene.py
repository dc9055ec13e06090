"""A round while it runs: what its faults act upon, and how its query is fed, struck, drained and stopped."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceonly.errors import UnavailableError
from onceonly.model import Guarantee
from onceonly_proof.campaign import queries, watch, windows
from onceonly_proof.campaign.stores import Folders
from onceonly_proof.campaign.targets import by_sink
from onceonly_proof.campaign.values import FOLDER
from onceonly_proof.campaign.way import KAFKA
from onceonly_proof.process import is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from onceonly_proof.campaign.broker import Broker
    from onceonly_proof.campaign.display import Display
    from onceonly_proof.campaign.fault import Fault
    from onceonly_proof.campaign.lives import Life, Lives
    from onceonly_proof.campaign.plan import Blow, Plan
    from onceonly_proof.campaign.points import Points
    from onceonly_proof.campaign.sources import Flow, Source
    from onceonly_proof.campaign.stores import CheckpointStore
    from onceonly_proof.campaign.targets import Target
    from onceonly_proof.campaign.task import Task
    from onceonly_proof.campaign.watch import Watch
    from onceonly_proof.embedded.kafka import EmbeddedKafka

_POLL_S = 0.01
_LOOK_S = 0.5
# Bounds for a machine that many share; a healthy one needs a hundredth of them.
_FIRE_TIMEOUT_S = 90.0
_RECOVER_TIMEOUT_S = 180.0
_DRAIN_TIMEOUT_S = 480.0
# After which time without an epoch nothing more is waited for, where nobody can tell how much is to come.
_QUIET_S, _LOSSY_QUIET_S = 30.0, 6.0
_VISIBLE_TIMEOUT_S = 20.0
_END_TIMEOUT_S = 60.0
# What was visible at the crash reaches the watching reader a little later; one that polls a folder, later still.
_READER_LAG_S = {"kafka": 0.2, "files": 0.4}
# A table is read as a whole each time.
_TABLE_LAG_S = 1.2
_OWN_ENDS_MAX = 3
_BLOWS = "faults.jsonl"


@dataclass(slots=True)
class Arena:
    """What the rounds of one invocation share."""

    folder: Path
    kafka: Broker
    points: Points
    lives: Lives
    display: Display
    commit: str = ""
    broker: str = ""
    store: CheckpointStore = field(default_factory=Folders)
    """Where checkpoints are."""
    store_kind: str = FOLDER
    journals: CheckpointStore = field(default_factory=Folders)
    """Where journals and ranges are."""
    targets: Mapping[str, Target] = field(default_factory=dict)
    """Systems beside Kafka and files that sinks write to, by the sinks' names."""
    source: Source | None = None
    """What is read, where that is not Kafka."""
    source_kind: str = KAFKA
    visible: str = ""
    """When rows by key are seen; empty for when they are decided."""
    executors: int = 0
    """How many executors a job has in processes of their own."""
    speculation: bool = False
    """Whether Spark starts second attempts of slow tasks there."""
    trace: bool = False
    """Whether each round's event log is held against the model."""
    kept: list[Path] = field(default_factory=list)
    """Folders of rounds that were not clean."""


@dataclass(slots=True)
class Scene:
    """One round while it runs; what its faults act upon. Campaign's process, its main thread."""

    arena: Arena
    plan: Plan
    guarantee: Guarantee
    task: Task
    watch: Watch
    flow: Flow
    life: Life
    lives: list[Life] = field(default_factory=list)
    armed: Counter[str] = field(default_factory=Counter)
    fired: Counter[str] = field(default_factory=Counter)
    crashes: int = 0
    died: float = 0.0
    """When the last driver was killed."""
    recovery_s: list[float] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    is_drained: bool = True
    """Whether all that was fed was read and written in time: if not, rows that no epoch has are not lost."""
    own_ends: int = 0
    """How often the job has ended by itself."""

    # --- what faults ask for: see fault.Stage --------------------------------------------------------------

    @property
    def points(self) -> Points:
        return self.arena.points

    @property
    def kafka(self) -> EmbeddedKafka:
        return self.arena.kafka

    @property
    def store(self) -> CheckpointStore:
        return self.arena.store

    @property
    def source(self) -> Source:
        assert self.arena.source is not None  # noqa: S101  no plan of Kafka's asks
        return self.arena.source

    @property
    def targets(self) -> Mapping[str, Target]:
        """Those that this round's sinks write to."""
        return by_sink(self.task.connector, self.arena.targets)

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def workers(self) -> Sequence[int]:
        return self.life.workers()

    def kill_driver(self) -> None:
        self.life.kill()
        self._died()
        self._live_again()

    def strand(self, pid: int) -> None:
        self.life.kill(spared=pid)
        self._died()
        self._live_again()

    def kill_executor(self, worker: int) -> None:
        if not self.life.kill_executor(worker):
            self.trouble.append(f"there was no executor to kill at {self.arena.display.step}")

    def await_epochs(self, count: int) -> None:
        store, checkpoint = self.arena.store, self.task.checkpoint
        wanted = store.newest(checkpoint, "commits") + count
        if not self.until(lambda: store.newest(checkpoint, "commits") >= wanted, _RECOVER_TIMEOUT_S):
            self.trouble.append(f"chk-{wanted} was not complete {_RECOVER_TIMEOUT_S:g} s after a death")

    def await_end(self, pid: int) -> None:
        if not self.until(lambda: not is_alive(pid), _END_TIMEOUT_S):
            self.trouble.append(f"a worker that woke up late still ran {_END_TIMEOUT_S:g} s later")

    def remove_waiting(self) -> None:
        if not watch.remove_waiting(self.task, self.targets):
            self.trouble.append(f"no row waited at {self.arena.display.step}")

    def take_files(self, *, moves: bool) -> None:
        watch.take_files(self.task, moves=moves)

    # --- the round ------------------------------------------------------------------------------------------

    def play(self, crashes_max: int | None) -> None:
        """Feed the job, carry out the plan's faults up to so many crashes, and let the job come to its end."""
        self.flow.start()
        self.begin()
        for blow in self.plan.blows:
            self.arena.display.armed = len(self.plan.blows)
            if crashes_max is not None and self.crashes >= crashes_max:
                break
            self.strike(blow)
        self.settle()
        self.end()

    def begin(self) -> None:
        """Wait until every sink shows a row."""
        if not self.until(lambda: self.watch.holds(1), _RECOVER_TIMEOUT_S):
            self.trouble.append(f"nothing was visible {_RECOVER_TIMEOUT_S:g} s after the start")

    def strike(self, blow: Blow) -> None:
        """Carry out one fault, and wait until the query shows new rows again."""
        fault = blow.fault
        time.sleep(blow.gap_s)
        self.arena.display.step = fault.name
        begun = self.now()
        opener = fault.opener
        opening = opener.arm(self) if opener else ""
        arming = fault.arm(self)
        self.armed[fault.name] += 1
        struck: list[float] = []

        def has_fired() -> bool:
            moment = fault.fired(self, arming)
            struck.extend([] if moment is None else [moment])
            return moment is not None

        if self.until(has_fired, _FIRE_TIMEOUT_S):
            fault.heal(self, arming)
            self._count(fault)
        self.points.disarm()
        if opener:
            was_open = opener.fired(self, opening) is None
            # A job that is just recovering comes to the fault by itself, and nothing had to lead there.
            if not (was_open and struck):
                self.armed[opener.name] += 1
            if not was_open:
                self._count(opener)
        healed = self.now()
        if struck:
            # A driver dies after its step has stood still for a moment.
            self._recover(max(struck[0], self.died), crash=fault.crashes > 0 and fault.measured)
        # Not before: a recovery needs the machine for itself.
        self.arena.lives.warm()
        self._note(
            blow,
            armed_s=begun,
            fired_s=struck[0] if struck else None,
            healed_s=healed,
            recovered_s=self.now(),
        )

    def settle(self) -> None:
        """Wait until everything that was fed is in an epoch that Spark has noted, and visible."""
        self.arena.display.step = "draining"
        self.flow.stop()
        store, checkpoint = self.arena.store, self.task.checkpoint
        due, is_lossy = self._due(), self.arena.source is not None and self.arena.source.is_lossy
        quiet_s = _LOSSY_QUIET_S if is_lossy else _QUIET_S
        # All windows may be shown before all rows of them are read.
        comes_again = self.arena.source is not None and self.arena.source.comes_again
        shown_s = _LOSSY_QUIET_S if comes_again or self.task.query == queries.WINDOW else 0.0
        last = (0, 0.0)

        def drained() -> bool:
            nonlocal last
            newest = store.newest(checkpoint, "offsets")
            if newest != last[0]:
                last = newest, time.monotonic()
            if newest != store.newest(checkpoint, "commits"):
                return False
            is_read = self.flow.is_read(store.text(checkpoint, f"offsets/{newest}"))
            if is_read is not None:
                return is_read
            rest_s = time.monotonic() - last[1]
            return (rest_s >= shown_s and self.watch.holds(due)) or rest_s > quiet_s

        self.is_drained = self.until(drained, _DRAIN_TIMEOUT_S)
        if not self.is_drained:
            self.trouble.append(f"not drained {_DRAIN_TIMEOUT_S:g} s after the last fault")
        elif self.guarantee is not Guarantee.AT_MOST_ONCE and not is_lossy:
            # What is missing after that is for the audit to say.
            self.until(lambda: self.watch.holds(due), _VISIBLE_TIMEOUT_S)

    def _due(self) -> int:
        """Count the rows that every sink shows when all that was fed is read."""
        if self.task.query != queries.WINDOW:
            return self.flow.distinct
        return windows.shown(self.flow.numbers(), queries.delay_s(self.task.per_epoch))

    def end(self) -> None:
        """Stop the job in order."""
        if not self.life.stop():
            self.trouble.append(f"the job did not stop in order: {self.life.error()}")

    def _count(self, fault: Fault) -> None:
        self.fired[fault.name] += 1
        self.crashes += fault.crashes

    def _recover(self, struck: float, *, crash: bool) -> None:
        """Wait until every sink shows something new; note how long that took."""
        seen: list[float] = []
        lag_s = max(_READER_LAG_S.get(sink, _TABLE_LAG_S) for sink in self.task.sinks)

        def new_rows() -> bool:
            moment = self.watch.first_after(struck + lag_s)
            seen.extend([] if moment is None else [moment])
            return moment is not None

        if not self.until(new_rows, _RECOVER_TIMEOUT_S):
            self.trouble.append(
                f"nothing new was visible {_RECOVER_TIMEOUT_S:g} s after {self.arena.display.step}"
            )
        elif crash:
            self.recovery_s.append(round(seen[0] - struck, 3))

    def _died(self) -> None:
        """Between two lives, have those look whom a job shuts out."""
        self.trouble += [f"{sink} could not be read while the job was down" for sink in self.watch.look_now()]
        self.died = self.now()

    def _note(self, blow: Blow, **times: float | None) -> None:
        """Write down what was done when, for whoever reads a round that was kept."""
        line = {"fault": blow.fault.name, "what": str(blow.fault), **times}
        with (self.task.audited.parent / _BLOWS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def until(self, condition: Callable[[], object], timeout_s: float) -> bool:
        """Wait for a condition while the job is kept alive; say whether it came true."""
        deadline = time.monotonic() + timeout_s
        look = 0.0
        while not condition():
            now = time.monotonic()
            if now > deadline:
                return False
            if now > look:
                look = now + _LOOK_S
                self._look()
            time.sleep(_POLL_S)
        return True

    def _look(self) -> None:
        """Show how far it is, and start the job again if it has ended by itself."""
        display = self.arena.display
        display.fired, display.rows = self.fired.total(), self._shown()
        display.crashes_now = self.crashes
        self.flow.ahead_of = display.rows
        if self.life.process.exit_code is not None:
            self.trouble.append(f"the job ended by itself: {self.life.error()}")
            self.own_ends += 1
            if self.own_ends > _OWN_ENDS_MAX:
                raise UnavailableError(
                    f"the job ended by itself again and again: {self.trouble[-1]}",
                    next_step="read the job's log in the kept folder",
                )
            self._live_again()

    def _shown(self) -> int:
        """Count the rows that every sink shows; if none can be counted, those that Spark has noted.

        Of windows, count those up to the newest, with what may be lost on its way to a source.
        """
        if self.task.query == queries.WINDOW:
            return (self.watch.newest() + 1) * queries.WINDOW_S
        least = self.watch.least()
        if least is not None:
            return least
        store, checkpoint = self.arena.store, self.task.checkpoint
        newest = store.newest(checkpoint, "commits")
        return self.flow.rows_until(store.text(checkpoint, f"offsets/{newest}"))

    def _live_again(self) -> None:
        self.life = self.arena.lives.next(self.task)
        self.lives.append(self.life)
