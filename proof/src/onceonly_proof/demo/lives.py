"""The lives of the job, one after the other: each is started, watched, and killed where the plan says."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceonly import errors, events, failpoints
from onceonly.model import Guarantee
from onceonly.words import n
from onceonly_proof.demo.follow import Event, EventLog
from onceonly_proof.demo.job import JobOptions
from onceonly_proof.demo.killer import RANDOM_MOMENT, Kill, plan_kills
from onceonly_proof.demo.options import DemoError, DemoOptions
from onceonly_proof.handover import until
from onceonly_proof.process import JobProcess

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.errors import OnceonlyError
    from onceonly_proof.demo.report import Display
    from onceonly_proof.demo.watch import Watch

_POLL_S = 0.02
_STALLED_S = 90.0  # no line in the event log for so long: something hangs
_OWN_FAILURES_MAX = 3
_OURS = {"job.started", "job.killed", "job.exited", "visible"}


@dataclass(slots=True)
class Lives:
    """The job's lives. Parent process; not shared between threads."""

    options: DemoOptions
    folder: Path
    servers: str
    display: Display
    watch: Watch
    started: float
    kills: Counter[str] = field(default_factory=Counter)
    lines: list[Event] = field(default_factory=list)
    lives: int = 0
    failures: int = 0
    log: EventLog = field(init=False)
    _moved: float = 0.0
    _done: set[tuple[str, int]] = field(default_factory=set)
    _done_in_life: int = 0

    def __post_init__(self) -> None:
        self.log = EventLog(self.folder / "events")

    def to_the_end(self) -> None:
        """Run the job, kill after kill, until it has ended by itself."""
        options = self.options
        kills = plan_kills(
            options.kills, epochs=options.epochs, guarantee=options.guarantee, seed=options.seed
        )
        for kill in kills:
            while not self._live(kill):
                self._count_failure()
        while not self._live(None):
            self._count_failure()
        if options.guarantee is not Guarantee.AT_MOST_ONCE:
            until(lambda: self.watch.count >= options.events, 2.0)
        self._follow()

    def _live(self, kill: Kill | None) -> bool:
        """Run the job until it is killed (or, without a kill, ends). False if it failed by itself."""
        self.lives += 1
        fired = self.folder / "failpoints" / str(self.lives)
        fired.mkdir(parents=True)
        env = {
            "ONCEONLY_FAILPOINTS": kill.failpoint if kill else "",
            "ONCEONLY_FAILPOINTS_DIR": str(fired),
        }
        job = JobProcess.start(
            JobOptions(
                servers=self.servers,
                folder=self.folder,
                guarantee=self.options.guarantee.value,
                per_epoch=self.options.per_epoch,
            ).command(),
            log=self.folder / "job.log",
            env=env,
            cwd=self.folder,
        )
        self._note("job.started", step=kill.step if kill else "")
        self._done_in_life = 0
        self._moved = time.monotonic()
        self.display.kills(sum(self.kills.values()), f"life {self.lives}: {_intent(kill)}")
        try:
            return self._until_over(job, kill, fired)
        finally:
            job.kill()

    def _until_over(self, job: JobProcess, kill: Kill | None, fired: Path) -> bool:
        due: float | None = None
        while True:
            self._follow()
            now = time.monotonic()
            if kill and not kill.is_armed and due is None and self._done_in_life >= kill.epochs:
                due = now + kill.delay_s
            if kill and (kill.step in failpoints.fired(fired) or (due is not None and now >= due)):
                self._note("job.killed", step=kill.step)
                job.kill()
                self.kills[kill.step] += 1
                self.display.kills(sum(self.kills.values()), "")
                return True
            code = job.exit_code
            if code is not None:
                self._note("job.exited", status=code)
                return self._ended(job, kill, code)
            self._check_time(job)
            time.sleep(_POLL_S)

    def _ended(self, job: JobProcess, kill: Kill | None, code: int) -> bool:
        if code == 0 and kill is None:
            return True
        if code == 0 and kill is not None:
            raise DemoError(
                f"the job was done after {sum(self.kills.values())} of {n(self.options.kills, 'kill')}: it never came "
                f"to the kill at {kill.step}, pass {kill.nth}",
                next_step="run again with more --events, fewer --kills or another --seed",
            )
        if self.failures >= _OWN_FAILURES_MAX:
            path = self.folder / "job-error.json"
            if path.is_file():
                raise _typed(path)
            raise DemoError(
                f"the job failed {self.failures + 1} times by itself, at last with status {code}:\n{job.last_lines()}",
                next_step="run again with --keep DIR and read job.log there",
            )
        return False

    def _count_failure(self) -> None:
        self.failures += 1
        self.display.say(f"The job failed by itself and is started again ({self.failures}).")

    def _follow(self) -> None:
        fresh = self.log.fresh()
        self.lines += fresh
        if any(line["kind"] not in _OURS for line in fresh):
            self._moved = time.monotonic()
        for line in fresh:
            if line["kind"] == "epoch.done":
                self._done.add((line["query"], line["epoch"]))
                self._done_in_life += 1
        self.display.epochs(len(self._done))
        self.display.visible(self.watch.count)

    def _check_time(self, job: JobProcess) -> None:
        now = time.monotonic()
        if now - self.started > self.options.timeout_s:
            what = f"the demo was not done within {self.options.timeout_s:g} s"
        elif now - self._moved > _STALLED_S:
            what = f"the job did nothing for {_STALLED_S:g} s"
        else:
            return
        raise DemoError(
            f"{what}; the last lines of its log:\n{job.last_lines()}",
            next_step="run again with --keep DIR and read job.log there, or with a longer --timeout",
        )

    def _note(self, kind: str, **more: str | int) -> None:
        events.record(kind, actor="parent", life=self.lives, **more)  # type: ignore[arg-type]  # fields by name


def _intent(kill: Kill | None) -> str:
    if kill is None:
        return "runs to the end"
    return "to be killed at a random moment" if kill.step == RANDOM_MOMENT else f"to be killed at {kill.step}"


def _typed(path: Path) -> OnceonlyError:
    failure = json.loads(path.read_text(encoding="utf-8"))
    text = f"[ONCEONLY:{failure['code']}] {failure['what']} [next: {failure['next_step']}]"
    return errors.find_error(text) or DemoError(failure["what"], next_step=failure["next_step"])
