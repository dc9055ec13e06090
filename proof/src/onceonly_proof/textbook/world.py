"""One world of a recorded run: topics, a checkpoint, the lives of a job in it, and what is seen from outside.

Recorder's process, one thread. Who looks is the auditor, which shares no code with the sink or the log.
"""

from __future__ import annotations

import json
import shutil
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceonly import events, failpoints
from onceonly.errors import SetupError
from onceonly_proof.auditor import KafkaReader, query_id, read_decisions
from onceonly_proof.embedded.feeding import feed
from onceonly_proof.handover import until
from onceonly_proof.process import JobProcess
from onceonly_proof.textbook.job import AT, GO, Told
from onceonly_proof.textbook.values import Look

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from onceonly_proof.embedded.kafka import EmbeddedKafka

_LIFE_TIMEOUT_S = 240.0
_SETTLE_S = 1.0


@dataclass(slots=True)
class Running:
    """One life that runs."""

    told: Told
    job: JobProcess
    fired: Path
    killed: str = ""
    """Where it was killed; empty where nobody did."""

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for something that this life does.

        Raises:
            SetupError: it has ended before, or takes too long.
        """
        if not until(lambda: condition() or self.job.exit_code is not None, _LIFE_TIMEOUT_S):
            raise self._wrong(f"was not {what} within {_LIFE_TIMEOUT_S:g} s")
        if not condition():
            raise self._wrong(f"ended with status {self.job.exit_code} before it was {what}")

    def until_over(self, *, fails: bool = False) -> None:
        """Wait for its end. Raises ``SetupError`` where it has ended otherwise than it was to."""
        self.until(lambda: self.job.exit_code is not None, "over")
        if (self.job.exit_code != 0) is not fails:
            raise self._wrong(f"ended with status {self.job.exit_code}")

    def stand(self) -> None:
        """Wait until it stands before its epoch, or its offset."""
        self.until((self.told.folder / AT).exists, "where it was to stand")

    def go(self, *armings: str) -> None:
        """Arm crash points, and let it go on."""
        failpoints.arm(self.fired.parent / "armed", armings)
        (self.told.folder / GO).touch()

    def has_fired(self, point: str) -> bool:
        """Say whether a crash point has acted."""
        return point in failpoints.fired(self.fired)

    def kill(self, at: str) -> None:
        """SIGKILL its whole process tree."""
        self.job.kill()
        self.killed = at

    def _wrong(self, what: str) -> SetupError:
        return SetupError(
            f"life {self.told.life} of the textbook's job {what}; the last lines of its log:\n{self.job.last_lines()}",
            next_step="see whether Java and PySpark work here, and whether memory is short",
        )


@dataclass(slots=True)
class World:
    """Where a run takes place. ``close`` ends what still runs."""

    kafka: EmbeddedKafka
    folder: Path
    kind: str
    per_epoch: int
    java: str = ""
    name: str = field(default_factory=lambda: f"textbook-{uuid.uuid4().hex[:8]}")
    lives: list[Running] = field(default_factory=list)

    def feed(self, partitions: Sequence[Sequence[tuple[str, str]]]) -> None:
        """Make the topics, and write each partition's rows, a key and a value each."""
        for topic in (self.source, self.target):
            self.kafka.create_topic(topic, partitions=len(partitions))
        rows = [
            (number, key, value.encode()) for number, each in enumerate(partitions) for key, value in each
        ]
        feed(self.kafka.bootstrap_servers, self.source, rows)

    @property
    def source(self) -> str:
        """The topic that the job reads."""
        return f"{self.name}-in"

    @property
    def target(self) -> str:
        """The topic that it writes."""
        return f"{self.name}-out"

    @property
    def checkpoint(self) -> Path:
        """The query's checkpoint."""
        return self.folder / "checkpoint"

    def start(self, *, stop: int = -1, stand: int = -1) -> Running:
        """Start the next life; it goes on where the checkpoint ends."""
        told = Told(
            kind=self.kind,
            world=self.folder,
            life=len(self.lives) + 1,
            servers=self.kafka.bootstrap_servers,
            source=self.source,
            target=self.target,
            per_epoch=self.per_epoch,
            stop=stop,
            stand=stand,
            java=self.java,
        )
        fired = told.folder / "fired"
        fired.mkdir(parents=True)
        env = {
            "ONCEONLY_FAILPOINTS": f"@{told.folder / 'armed'}",
            "ONCEONLY_FAILPOINTS_DIR": str(fired),
            "ONCEONLY_EVENTS": str(told.folder / "events"),
        }
        job = JobProcess.start(told.command(), log=told.folder / "job.log", env=env, cwd=told.folder)
        self.lives.append(Running(told, job, fired))
        return self.lives[-1]

    def events(self, life: int) -> list[dict[str, object]]:
        """Return what a life's processes have noted, in the order of their clocks."""
        folder = self.lives[life - 1].told.folder / "events"
        return list(events.read(folder)) if folder.exists() else []

    def numbers(self, folder: str) -> list[int]:
        """Return the epochs of which Spark has a file."""
        found = (self.checkpoint / folder).glob("[0-9]*")
        return sorted(int(path.name) for path in found if path.name.isdecimal())

    def barrier(self, epoch: int) -> dict[int, int]:
        """Return the offset behind each partition's last record, as ``offsets/N`` has it."""
        lines = (self.checkpoint / "offsets" / str(epoch)).read_text(encoding="utf-8").splitlines()
        ends = json.loads(lines[-1])[self.source]
        return {int(partition): int(end) for partition, end in sorted(ends.items())}

    def links(self, epoch: int) -> list[str]:
        """Return the words of an epoch's chain, in their order."""
        folder = self.checkpoint / "onceonly" / "links"
        names = sorted(folder.glob(f"{epoch:020d}.*.json"), key=lambda path: int(path.name.split(".")[1]))
        # Behind the header, which seals it.
        return [str(json.loads(path.read_bytes().partition(b"\n")[2])["kind"]) for path in names]

    def look(self, epoch: int) -> Look:
        """See what anybody sees now: readers of the topic, the broker's transactions, the files of an epoch."""
        mine = query_id(self.checkpoint)
        reader = KafkaReader(
            "kafka", self.kafka.bootstrap_servers, self.target, transactions="", settle_s=_SETTLE_S
        )
        is_open = [each for each in reader.orphans() if mine in each.what]
        decided = next((each for each in read_decisions(self.checkpoint) if each.epoch == epoch), None)
        return Look(
            visible=tuple(sorted((row.value or b"").decode() for row in reader.rows())),
            waiting=tuple(sorted((row.value or b"").decode() for row in reader.uncommitted())),
            open=len(is_open),
            barrier=epoch in self.numbers("offsets"),
            link=str(decided.kind.value) if decided and decided.kind else "",
            receipt=bool(decided and decided.receipt),
            noted=epoch in self.numbers("commits"),
        )

    def close(self) -> None:
        """End what runs, and remove what is on disk. Idempotent."""
        for each in self.lives:
            each.job.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
