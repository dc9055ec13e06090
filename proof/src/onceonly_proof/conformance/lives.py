"""Lives of a query in processes of their own, one after the other or at a time, and a reader that watches them all."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from onceonly import failpoints
from onceonly.errors import LogError
from onceonly.log.opening import look
from onceonly.model import Guarantee, LinkKind
from onceonly_proof.conformance.forker import LIFE_TIMEOUT_S
from onceonly_proof.conformance.workload import Workload, difference, rows_of
from onceonly_proof.conformance.world import World, broken, wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from onceonly_proof.conformance.forker import Child, Ending, Forker
    from onceonly_proof.conformance.subject import Subject
    from onceonly_proof.conformance.workload import Row

RECOVERY: Mapping[str, str] = {
    "plan.before_recommit": "link.after_put",
    "plan.after_recommit": "link.after_put",
}
"""Points that only a recovery passes, each with the crash before it."""
FIRST = tuple(sorted(set(failpoints.EVERYWHERE) - RECOVERY.keys()))
"""Points that a first life passes."""
_NEVER = 1_000_000
_BREATH_S = 0.005
_EPOCHS = 2


@dataclass
class Life:
    """A life that has begun. ``fired`` is its folder of crash points."""

    child: Child
    fired: Path
    log: Path

    def resume(self) -> None:
        """Let a paused life go on."""
        (self.fired / "resume").touch()

    def passed(self) -> Counter[str]:
        """Count the passes of each armed point."""
        names = (path.name.rpartition(".") for path in self.fired.iterdir())
        return Counter(name for name, _, number in names if number.isdigit())

    def tail(self) -> str:
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:])


@dataclass
class Lives:
    """One world, its lives, and the reader that watches the target all the time."""

    world: World
    forker: Forker
    slots: int = 1
    companion: bool = False
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    count: int = 0
    left: list[Child] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._watcher = _Watcher(self)
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._watcher.stop()
        for child in self.left:
            child.kill()

    # --- lives ----------------------------------------------------------------------------------------------

    def killed_at(self, point: str, nth: int = 1) -> None:
        """Live until the point is passed for the n-th time, and die there."""
        life = self._start("life", f"{point}=kill@{nth}")
        self._expect_killed(self._wait(life), life, point, nth)
        self._watcher.look()

    def fails_at(self, point: str, *, attempts: int) -> None:
        """Live to the end with an exception at the point."""
        life = self._start("life", f"{point}=raise", attempts=attempts)
        ending = self._wait(life)
        self._expect_fired(life, point)
        self._expect_well(ending, life)

    def paused_at(self, point: str) -> Life:
        """Live until the point is passed, and stand still there."""
        life = self._start("life", f"{point}=pause")
        if not wait_for(lambda: point in failpoints.fired(life.fired), seconds=LIFE_TIMEOUT_S / 2):
            life.child.kill()
            self._expect_fired(life, point)
        self.left.append(life.child)
        self._watcher.look()
        return life

    def ended(self, life: Life) -> Ending:
        """Wait for the end of a life that was paused: it may have been told to stop, but not be killed."""
        self.left.remove(life.child)
        ending = self._wait(life)
        if ending.signal:
            raise broken("a run that was overtaken stops by itself", f"it {ending}\n{life.tail()}")
        return ending

    def dry(self) -> Counter[str]:
        """Live to the end; count the passes of every crash point."""
        life = self._start("life", ",".join(f"{point}=raise@{_NEVER}" for point in failpoints.EVERYWHERE))
        self._expect_well(self._wait(life), life)
        return life.passed()

    def finish(self, *, epochs: int = _EPOCHS) -> None:
        """Live to the end."""
        life = self._start("life", epochs=epochs)
        self._expect_well(self._wait(life), life)

    def step(self, job: str, *, arm: str = "", **more: Any) -> Ending:  # noqa: ANN401  the job's own arguments
        """Take one step of an epoch in a process of its own; ``arm`` kills it at a point."""
        life = self._start(job, f"{arm}=kill" if arm else "", **more)
        ending = self._wait(life)
        if arm:
            self._expect_killed(ending, life, arm, 1)
        else:
            self._expect_well(ending, life)
        return ending

    # --- what must be so ------------------------------------------------------------------------------------

    def check(self, *, epochs: int = _EPOCHS) -> None:
        """See each row once, nothing left, and a reader that has seen nothing wrong."""
        numbers = Workload(epochs=epochs, slots=self.slots).numbers()
        self.world.expect(numbers, "after the recovery, every row is visible, once")
        if self.companion:
            wanted = self.world.rows(numbers)
            seen = self.world.rows_beside()
            if seen != wanted:
                raise broken(
                    "after the recovery, the second sink has every row, once", difference(seen, wanted)
                )
        if self.world.suite.sink.capabilities.recovers:
            self.world.expect_no_orphans("after the recovery, nothing is left open")
        self._watcher.stop()
        self._watcher.expect_nothing_wrong()

    def _start(self, job: str, arm: str = "", **more: Any) -> Life:  # noqa: ANN401  fields of ``Work`` and of the job
        self.count += 1
        fired = self.world.folder / f"fired-{self.count}"
        fired.mkdir()
        log = self.world.folder / f"life-{self.count}.log"
        work = asdict(self.world.work(guarantee=self.guarantee.value, slots=self.slots))
        if self.companion:
            work["companion"] = str(self.world.companion)
        env = {"ONCEONLY_FAILPOINTS": arm, "ONCEONLY_FAILPOINTS_DIR": str(fired)}
        return Life(self.forker.start(self.world.suite, job, {**work, **more}, env=env, log=log), fired, log)

    @staticmethod
    def _wait(life: Life) -> Ending:
        return life.child.wait()

    def _expect_well(self, ending: Ending, life: Life) -> None:
        if ending.signal or ending.error:
            raise broken("a life goes on where the one before has died", f"it {ending}\n{life.tail()}")

    def _expect_killed(self, ending: Ending, life: Life, point: str, nth: int) -> None:
        self._expect_fired(life, point, nth)
        if not ending.killed:
            raise broken(f"the life is killed at {point}", f"it {ending}\n{life.tail()}")

    @staticmethod
    def _expect_fired(life: Life, point: str, nth: int = 1) -> None:
        if point not in failpoints.fired(life.fired):
            raise broken(f"the crash point {point} fires at its pass {nth}", f"it did not\n{life.tail()}")


class _Watcher(threading.Thread):
    """Reads the target all the time: what is seen was decided before, and is never there twice."""

    def __init__(self, lives: Lives) -> None:
        super().__init__(name="conformance-watcher", daemon=True)
        self._lives = lives
        self._ended = threading.Event()
        self._lock = threading.Lock()
        load = Workload(epochs=_EPOCHS + 1, slots=lives.slots)
        suite = lives.world.suite
        self._epochs: dict[Row, int] = {
            row: epoch
            for epoch in range(load.epochs)
            for row in rows_of(suite.batch(load.numbers([epoch]) or [0]))
        }
        self._decided: set[int] = set()
        self.looks = 0
        self.wrong = ""
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._ended.is_set() and not self.wrong:
                started = time.monotonic()
                self.look()
                # A reader that is always there would keep a target that locks from being written.
                self._ended.wait(max(_BREATH_S, 3 * (time.monotonic() - started)))
        except BaseException as error:  # noqa: BLE001  raised where the test looks
            self.failure = error

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def expect_nothing_wrong(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self.wrong:
            raise broken("a reader never sees an undecided row, nor one twice", self.wrong)
        if not self.looks:
            raise broken("a reader watches all the time", "it never looked")

    def look(self) -> None:
        """Look once. From any thread."""
        with self._lock:
            self._look()

    def _look(self) -> None:
        # The rows first: what is visible now was decided before.
        seen = self._lives.world.visible()
        self.looks += 1
        if not seen:
            return
        is_early = self._lives.world.suite.early
        exactly = self._lives.guarantee is Guarantee.EXACTLY_ONCE and not is_early
        for row, count in seen.items():
            if row not in self._epochs:
                self.wrong = f"the row {row} is foreign"
            elif count > 1 and self._lives.guarantee is not Guarantee.AT_LEAST_ONCE:
                self.wrong = f"the row {row} is visible {count} times"
        for epoch in (
            {self._epochs[row] for row in seen if row in self._epochs} - self._decided if exactly else ()
        ):
            if not self._is_decided(epoch):
                self.wrong = f"rows of chk-{epoch} are visible, and it is not decided"
            self._decided.add(epoch)

    def _is_decided(self, epoch: int) -> bool:
        try:
            log, _ = look(self._lives.world.work().checkpoint)
            chain = log.chain(epoch)
        except LogError:
            return False
        return bool(chain) and chain[-1].kind is LinkKind.COMMIT


_known: dict[tuple[type[Subject], int], Counter[str]] = {}


def passes(suite: Subject, forker: Forker, folder: Path, point: str, *, slots: int) -> list[int]:
    """Say at which passes of a point a life is to be killed: at every one, or at the second where it is slow."""
    if point in RECOVERY:
        # As many as handles of the epoch that is decided: the other points of a recovery are like those of a run.
        found = slots
    else:
        key = (type(suite), slots)
        if key not in _known:
            with World(suite, folder / "passes") as world, Lives(world, forker, slots=slots) as lives:
                _known[key] = lives.dry()
        found = _known[key][point]
    if not found:
        raise broken(f"a life passes the crash point {point}", "it does not")
    return list(range(1, found + 1)) if suite.every_pass else [min(2, found)]
