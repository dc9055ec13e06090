"""Makes the recordings anew, from real runs: ``python -m onceonly_proof.textbook.record [--only NAME] [--out FOLDER]``.

Real PySpark and a real broker; each crash is SIGKILL to the whole process tree. Takes a quarter of an hour, or more.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from onceonly import failpoints
from onceonly_proof.campaign import machine
from onceonly_proof.campaign.result import encode, save
from onceonly_proof.campaign.unaligned_plan import PARTITIONS, draw_plan
from onceonly_proof.embedded.kafka import EmbeddedKafka
from onceonly_proof.textbook import counts, crashes, growth
from onceonly_proof.textbook.fits import fits
from onceonly_proof.textbook.recordings import FOLDER
from onceonly_proof.textbook.values import Aligned, Counts, Crash, Crashes, Growth, Made
from onceonly_proof.textbook.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import msgspec

    from onceonly_proof.campaign.unaligned_audit import Counted

T = TypeVar("T")

SEED, EPOCHS, KILLS = 2, 9, 2
"""Of the run with and without alignment."""


class Recorder:
    """Runs worlds on one broker, one after the other. Its main thread; ``close`` ends the broker."""

    def __init__(
        self, kafka: EmbeddedKafka, folder: Path, say: Callable[[str], None], *, java: str = ""
    ) -> None:
        self._kafka = kafka
        self._folder = folder
        self._say = say
        self._java = java
        self._count = 0

    def crashes(self) -> Crashes:
        """Record a run that is killed at each crash point, one that nobody kills, and one that aborts."""
        began = time.monotonic()
        commits, ranges = self.run(
            "pass",
            crashes.PER_EPOCH,
            lambda world: (crashes.commits(world), crashes.ranges(world)),
            "the run that commits",
        )
        aborts = self.run("pass", crashes.PER_EPOCH, crashes.aborts, "the run that aborts")
        killed = tuple(self.crash(point) for point in failpoints.EVERYWHERE)
        return Crashes(
            made=_made(began),
            fits=fits(),
            partitions=crashes.UNEVEN,
            ranges=ranges,
            commits=commits,
            aborts=aborts,
            crashes=killed,
        )

    def crash(self, point: str) -> Crash:
        """Record the run that is killed at one crash point."""
        return self.run("pass", crashes.PER_EPOCH, lambda world: crashes.crash(world, point), point)

    def counts(self) -> Counts:
        """Record the snapshot, the crash and the return."""
        began = time.monotonic()

        def whole(world: World) -> Counts:
            counts.feed(world)
            lives = counts.lives(world)
            barriers = [world.barrier(epoch)[0] for epoch in world.numbers("offsets")]
            return Counts(
                made=_made(began),
                fits=fits(),
                records=counts.RECORDS,
                views=counts.VIEWS,
                barriers=tuple(barriers),
                states=counts.states(world),
                lives=lives,
            )

        return self.run("count", counts.SNAPSHOT, whole, "the run that counts")

    def growth(self) -> Growth:
        """Record the files of a state store."""
        began = time.monotonic()
        versions = self.run("grow", growth.PER_EPOCH, growth.versions, "the run whose state grows")
        return Growth(made=_made(began), fits=fits(), rows=growth.PER_EPOCH, versions=versions)

    def run(self, kind: str, per_epoch: int, record: Callable[[World], T], name: str) -> T:
        """Run something in a world of its own, which is gone afterwards."""
        self._count += 1
        began = time.monotonic()
        world = World(self._kafka, self._folder / f"world-{self._count}", kind, per_epoch, self._java)
        try:
            return record(world)
        finally:
            world.close()
            self._say(f"{name}: {time.monotonic() - began:.0f} s")


def aligned(say: Callable[[str], None]) -> Aligned:
    """Record what barrier alignment is for; no broker is needed."""
    from onceonly_proof.campaign.unaligned_run import ShownOptions, run_shown

    began = time.monotonic()
    found = run_shown(ShownOptions(seed=SEED, epochs=EPOCHS, kills=KILLS), say)
    plan = draw_plan(SEED, epochs=EPOCHS, kills=KILLS)
    return Aligned(
        made=_made(began),
        fits=fits(),
        rows=tuple(
            (sum(row.partition == 0 for row in rows), sum(row.partition == PARTITIONS - 1 for row in rows))
            for rows in plan.epochs
        ),
        kills=tuple(Aligned.Kill(epoch=kill.epoch, point=kill.point) for kill in found.kills),
        aligned=_operator(found.aligned),
        unaligned=_operator(found.unaligned),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Make all recordings, or one of them, and replace its file."""
    parser = argparse.ArgumentParser(prog="onceonly_proof.textbook.record", description=__doc__)
    parser.add_argument("--only", choices=("crashes", "counts", "growth", "aligned"))
    parser.add_argument("--out", type=Path, default=FOLDER)
    args = parser.parse_args(arguments)

    def keep(name: str, value: msgspec.Struct) -> None:
        save(args.out / f"{name}.json", encode(value))
        _say(f"recorded: {args.out / name}.json")

    if args.only in {None, "aligned"}:
        keep("aligned", aligned(_say))
    if args.only == "aligned":
        return 0
    with tempfile.TemporaryDirectory(prefix="onceonly-textbook-") as folder, EmbeddedKafka() as kafka:
        recorder = Recorder(kafka, Path(folder), _say)
        for name in ("counts", "growth", "crashes"):
            if args.only in {None, name}:
                keep(name, getattr(recorder, name)())
        kafka.kill()
    return 0


def _made(began: float) -> Made:
    versions = machine.versions()
    commit = versions.pop("commit")
    return Made(
        date=datetime.now(UTC).date().isoformat(),
        commit=commit,
        versions=versions,
        machine=machine.machine(),
        seconds=round(time.monotonic() - began, 1),
    )


def _operator(counted: Counted) -> Aligned.Operator:
    return Aligned.Operator(
        windows=tuple((each.name, each.expected, each.counted) for each in counted.windows.windows),
        again={str(epoch): count for epoch, count in counted.again.items()},
    )


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
