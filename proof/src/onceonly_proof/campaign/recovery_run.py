"""Measures recovery: the same query on the same input with our sink and with Spark's own, killed in turns.

Blocks for some minutes; needs Java and PySpark.
"""

from __future__ import annotations

import random
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onceonly.errors import UnavailableError
from onceonly.jars.locked import ensure_jars
from onceonly.model import Guarantee
from onceonly_proof.auditor import KafkaWatcher
from onceonly_proof.campaign import machine as host
from onceonly_proof.campaign import recovery
from onceonly_proof.campaign.classes import ClassArchive
from onceonly_proof.campaign.feed import Feed
from onceonly_proof.campaign.lives import Lives
from onceonly_proof.campaign.recovery import OURS, Kill, Recovery
from onceonly_proof.campaign.result import encode, save
from onceonly_proof.campaign.task import READY, SPARK, Task
from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly_proof.campaign.classes import Members
    from onceonly_proof.campaign.lives import Life

_PARTITIONS = 2
_PER_EPOCH = 500
# The input never runs dry, so that every epoch is a full one.
_AHEAD = 60_000
_EPOCHS_BEFORE = 4
_DELAY_MAX_S = 0.8
# What was on its way when the job died is visible by then, and no Python and JVM can have started.
_IN_FLIGHT_S = 1.0
_VISIBLE_TIMEOUT_S = 180.0
_POLL_S = 0.1
# An installed package is compiled; from a source tree, every process would compile it anew where this is set.
_COMPILED = {"PYTHONDONTWRITEBYTECODE": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryOptions:
    """What is asked for, and the file that is written. ``kills`` of each sink."""

    kills: int = recovery.KILLS
    seed: int = 1
    json: Path | None = None


def run_recovery(options: RecoveryOptions, say: Callable[[str], None]) -> Recovery:
    """Kill the job of each sink so many times, and measure until its restart shows a row that was not there.

    Campaign's process, its main thread; every process that it starts has ended when it returns. One job runs at a
    time, started anew as a supervisor would: no process is kept warm. ``say`` gets one line for each kill.

    Raises:
        SetupError: Java or PySpark is missing, or the broker or a job does not come up.
        UnavailableError: a job showed nothing new in time.
    """
    ensure_jars()
    # What else the machine has to do is in every time.
    machine = host.before()
    versions = host.versions()
    draw = random.Random(options.seed)
    kills: list[Kill] = []
    with ExitStack() as close:
        folder = Path(tempfile.mkdtemp(prefix="onceonly-recovery-"))
        close.callback(host.tidy, folder, [])
        kafka = close.enter_context(EmbeddedKafka(folder / "kafka"))
        close.callback(kafka.kill)
        lives = Lives(folder / "lives", _COMPILED, _NoArchive(folder), early=False)
        close.callback(lives.close)
        kafka.create_topic("input", partitions=_PARTITIONS)
        feed = Feed(kafka.bootstrap_servers, "input", _PARTITIONS)
        sides: dict[str, _Side] = {}
        for sink in recovery.SINKS:
            task = _task(kafka, sink, folder)
            watcher = KafkaWatcher(sink, task.servers, task.target)
            close.callback(watcher.close)
            sides[sink] = _Side(sink, task, lives, watcher, feed)
        started, begun = datetime.now(UTC), time.monotonic()
        for sink, share in recovery.turns(options.kills):
            for kill in sides[sink].turn(share, draw):
                kills.append(kill)
                say(f"{sink}: {kill.seconds:.1f} s, of which {kill.ready_s:.1f} s until Spark was up")
        repeated = {sink: recovery.again(side.watcher.seen()) for sink, side in sides.items()}
        seconds = time.monotonic() - begun
    found = recovery.conclude(
        kills,
        repeated,
        wanted=options.kills,
        seed=options.seed,
        started=started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=seconds,
        per_epoch=_PER_EPOCH,
    )
    found = msgspec.structs.replace(found, machine=machine, versions=versions)
    if options.json is not None:
        save(options.json, encode(found))
    return found


class _NoArchive(ClassArchive):
    """A JVM as users start theirs: an archive would hold the classes of the one sink, and not the other's."""

    def option(self, life: Path) -> str:  # noqa: ARG002  the contract
        return ""

    def finish(self, process: Members, life: Path) -> None:
        """Nothing is written."""


@dataclass(slots=True)
class _Side:
    """The job of one sink, and who watches its output. Campaign's process, its main thread."""

    sink: str
    task: Task
    lives: Lives
    watcher: KafkaWatcher
    feed: Feed

    def turn(self, kills: int, draw: random.Random) -> list[Kill]:
        """Start the job, and kill it so many times; it is down in the end."""
        life = self.lives.next(self.task)
        measured: list[Kill] = []
        for _ in range(kills):
            self._run_a_while(life, draw)
            struck = time.time()
            life.kill()
            dead, dead_s = life, time.time()
            life = self.lives.next(self.task)
            ready = (life.folder / READY).stat().st_mtime
            visible = self._first_new(life, dead_s + _IN_FLIGHT_S)
            self.lives.forget(dead)
            measured.append(
                Kill(sink=self.sink, ready_s=round(ready - struck, 3), seconds=round(visible - struck, 3))
            )
        self.lives.forget(life)
        return measured

    def _run_a_while(self, life: Life, draw: random.Random) -> None:
        """Let some epochs pass, and go on to any moment of one."""
        seen = len(self.watcher.seen())
        self.feed.grow(seen + _AHEAD)
        deadline = time.monotonic() + _VISIBLE_TIMEOUT_S
        while not self.watcher.wait_for(seen + _EPOCHS_BEFORE * _PER_EPOCH, _POLL_S):
            self._check(life, deadline)
        time.sleep(draw.uniform(0, _DELAY_MAX_S))

    def _first_new(self, life: Life, after_s: float) -> float:
        deadline = time.monotonic() + _VISIBLE_TIMEOUT_S
        while True:
            rows = self.watcher.seen()
            moment = recovery.first_new(rows, after_s)
            if moment is not None:
                return moment
            self._check(life, deadline)
            self.watcher.wait_for(len(rows) + 1, _POLL_S)

    def _check(self, life: Life, deadline: float) -> None:
        if life.process.exit_code is None and time.monotonic() < deadline:
            return
        said = "ended by itself" if life.process.exit_code is not None else "showed nothing new in time"
        raise UnavailableError(
            f"the job with the sink {self.sink} {said}: {life.error()}",
            next_step="run it again on a quieter machine, or read the job's last lines above",
        )


def _task(kafka: EmbeddedKafka, sink: str, folder: Path) -> Task:
    target = f"output-{sink}"
    kafka.create_topic(target, partitions=_PARTITIONS)
    return Task(
        servers=kafka.bootstrap_servers,
        source="input",
        target=target,
        files="",
        checkpoint=str(folder / f"checkpoint-{sink}"),
        connector="kafka" if sink == OURS else SPARK,
        guarantee=Guarantee.EXACTLY_ONCE.value,
        per_epoch=_PER_EPOCH,
    )
