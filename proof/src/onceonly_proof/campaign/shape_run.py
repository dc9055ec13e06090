"""Runs the campaign in the shape of Kafka's ``transactions_test``. Blocks for minutes; needs Java and PySpark."""

from __future__ import annotations

import functools
import signal
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onceonly.jars.locked import ensure_jars
from onceonly.model import Guarantee
from onceonly.words import n
from onceonly_proof.auditor import judge
from onceonly_proof.campaign import machine as host
from onceonly_proof.campaign import shape, watch
from onceonly_proof.campaign.classes import ClassArchive
from onceonly_proof.campaign.feed import Feed
from onceonly_proof.campaign.lives import Lives
from onceonly_proof.campaign.result import encode, save
from onceonly_proof.campaign.sources.kafka import read_back
from onceonly_proof.campaign.stores import Folders
from onceonly_proof.campaign.task import Task
from onceonly_proof.campaign.watch import Watch
from onceonly_proof.embedded.kafka import EmbeddedKafka
from onceonly_proof.handover import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly_proof.campaign.lives import Life
    from onceonly_proof.campaign.shape import Bounce, Bounced, Shape

_PROGRESS_TIMEOUT_S = 120.0
_SETTLE_TIMEOUT_S = 30.0
_OWN_ENDS_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeOptions:
    """What is asked for, and the file that is written."""

    messages: int = shape.MESSAGES
    transaction: int = shape.TRANSACTION
    seed: int = 1
    json: Path | None = None


def run_shape(options: ShapeOptions, say: Callable[[str], None]) -> Shape:
    """Feed all messages, start the job, bounce it and its broker in turn, and audit what is visible in the end.

    Campaign's process, its main thread; every process that it starts has ended when it returns. ``say`` gets one line
    for each bounce. What is not clean is kept in a folder, which is named.

    Raises:
        SetupError: Java or PySpark is missing, or the broker or the job does not come up.
        UnavailableError: the broker did not take the input, or the output could not be read.
    """
    ensure_jars()
    machine, versions = host.machine(), host.versions()
    with ExitStack() as close:
        folder = Path(tempfile.mkdtemp(prefix="onceonly-like-kafka-"))
        kept: list[Path] = []
        close.callback(host.tidy, folder, kept)
        kafka = close.enter_context(EmbeddedKafka(folder / "kafka"))
        close.callback(kafka.kill)
        lives = Lives(folder / "lives", {}, ClassArchive.of(str(machine["java"])))
        close.callback(lives.close)
        task = _task(kafka, options, folder)
        Feed(task.servers, task.source, shape.SOURCE_PARTITIONS).grow(options.messages)
        reader = Watch.begin(task, {})
        close.callback(reader.close)
        stand = _Stand(options, kafka, lives, task, reader, say)
        started, begun = datetime.now(UTC), time.monotonic()
        stand.run()
        seconds = time.monotonic() - begun
        reader.close()
        went_in = read_back(task.servers, task.source)
        world = watch.world(task, went_in, reader, stand.lived, {}, drained=not stand.trouble)
        verdict = judge(world, Guarantee.EXACTLY_ONCE)
        found = shape.conclude(
            seed=options.seed,
            messages=options.messages,
            transaction=options.transaction,
            started=started.strftime("%Y-%m-%dT%H:%M:%SZ"),
            seconds=seconds,
            done=tuple(stand.done),
            rows=len(world.at_end),
            seen_meanwhile=len(world.during),
            epochs=Folders().newest(task.checkpoint, "commits") + 1,
            transactions=shape.sizes(world.decisions or ()),
            anomalies={str(name): count for name, count in verdict.anomalies.items()},
            examples=verdict.examples,
            trouble=stand.trouble,
        )
        if found.verdict != "clean":
            kept += [folder / "lives", Path(task.checkpoint)]
            say(f"logs and checkpoint are kept in {folder}")
    found = msgspec.structs.replace(found, machine=machine, versions=versions)
    if options.json is not None:
        save(options.json, encode(found))
    return found


@dataclass(slots=True)
class _Stand:
    """The job and its broker while the run goes on. Campaign's process, its main thread."""

    options: ShapeOptions
    kafka: EmbeddedKafka
    lives: Lives
    task: Task
    watch: Watch
    say: Callable[[str], None]
    lived: list[Life] = field(default_factory=list)
    done: list[Bounced] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)

    def run(self) -> None:
        """From the first start to the ordered end."""
        self._start()
        for bounce in shape.plan_bounces(self.options.messages, self.options.seed):
            if not self._shows(bounce.at_rows):
                return
            time.sleep(bounce.delay_s)
            before = len(self.watch.seen())
            if before >= self.options.messages:
                return  # nothing is left that it could disturb: it was not done
            begun = time.monotonic()
            self._bounce(bounce)
            if not self._shows(min(len(self.watch.seen()) + 1, self.options.messages)):
                return
            seconds = round(time.monotonic() - begun, 3)
            self.done.append(shape.Bounced(kind=bounce.kind, at_rows=before, seconds=seconds))
            self.say(
                f"{bounce.kind} bounced at {n(before, 'message')}; new ones are visible after {seconds:.1f} s"
            )
        self._shows(self.options.messages)
        self._end()

    def _bounce(self, bounce: Bounce) -> None:
        how, what = bounce.kind.split()
        life, broker = self.lived[-1], self.kafka.pid
        if what == "job":
            if how == "hard":
                life.kill()
            else:
                life.stop()
            if life.process.exit_code != (-signal.SIGKILL if how == "hard" else 0):
                self.trouble.append(f"{bounce.kind}: it ended with {life.process.exit_code}: {life.error()}")
            self._start()
            return
        if how == "hard":
            self.kafka.kill()
        else:
            self.kafka.stop()
        self.kafka.start()
        if self.kafka.pid == broker:
            self.trouble.append(f"{bounce.kind}: it is the same process as before")

    def _start(self) -> None:
        self.lived.append(self.lives.next(self.task))

    def _shows(self, rows: int) -> bool:
        """Wait until so many messages are visible, with a job that runs; say whether they were in time."""
        deadline = time.monotonic() + _PROGRESS_TIMEOUT_S
        while not self.watch.holds(rows):
            life = self.lived[-1]
            if life.process.exit_code is not None:
                self.trouble.append(f"the job ended by itself: {life.error()}")
                if len(self.trouble) > _OWN_ENDS_MAX:
                    return False
                self._start()
            if time.monotonic() > deadline:
                self.trouble.append(f"{n(rows, 'message was')} not visible after {_PROGRESS_TIMEOUT_S:g} s")
                return False
        return True

    def _end(self) -> None:
        """Stop the job in order, when Spark has noted its last epoch."""
        newest = functools.partial(Folders().newest, self.task.checkpoint)
        if not until(lambda: newest("offsets") == newest("commits"), _SETTLE_TIMEOUT_S):
            self.trouble.append(f"the last epoch was not noted after {_SETTLE_TIMEOUT_S:g} s")
        if not self.lived[-1].stop():
            self.trouble.append(f"the job did not stop in order: {self.lived[-1].error()}")


def _task(kafka: EmbeddedKafka, options: ShapeOptions, folder: Path) -> Task:
    task = Task(
        servers=kafka.bootstrap_servers,
        source="input",
        target="output",
        files="",
        checkpoint=str(folder / "checkpoint"),
        connector="kafka",
        guarantee=Guarantee.EXACTLY_ONCE.value,
        per_epoch=options.transaction * shape.SOURCE_PARTITIONS,
    )
    kafka.create_topic(task.source, partitions=shape.SOURCE_PARTITIONS)
    kafka.create_topic(task.target, partitions=shape.TARGET_PARTITIONS)
    return task
