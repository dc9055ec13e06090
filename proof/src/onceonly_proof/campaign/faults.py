"""The faults: values with a name that are armed, fire, and are healed, one after the other.

A new kind is a frozen dataclass with the methods of ``fault.Fault``, and an entry in ``kinds.KINDS`` that draws one.
Everything random is drawn when the value is made, so that a plan is a list of values and the same seed gives
the same one. Campaign's process.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly_proof.campaign.fault import Stage

# Passed only while a decided handle is committed again: something must fail before it is committed the first time. An
# epoch without rows has no handle, so its link alone leads nowhere.
_RECOVERY = ("plan.before_recommit", "plan.after_recommit")
# Passed only in the first epoch after a start.
_AT_START = ("plan.after_claim",)
OPENER: Final = {
    **dict.fromkeys(_RECOVERY, "commit.before_handle"),
    **dict.fromkeys(_AT_START, "link.before_put"),
}
"""What has to fail before a point is passed, by the point."""
_LATE_EPOCHS = 2


class _Fault:
    """What most faults have in common: somebody dies, and the job recovers from it; there is nothing to heal."""

    __slots__ = ()
    crashes: ClassVar[int] = 1
    measured: ClassVar[bool] = True

    def heal(self, stage: Stage, arming: str) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class _AtStep(_Fault):
    """What begins when a process stands still at a crash point."""

    point: str
    nth: int = 1

    @property
    def opener(self) -> AtPoint | None:
        return _opener(self.point, "raise")

    def arm(self, stage: Stage) -> str:
        return stage.points.arm(self.point, "pause", self.nth)

    def fired(self, stage: Stage, arming: str) -> float | None:
        return stage.points.fired_at(arming)


@dataclass(frozen=True, slots=True, kw_only=True)
class AtPoint(_AtStep):
    """A Python process is killed, or raises, at a crash point; the query, or the task, is run again in its driver."""

    action: str = "kill"

    @property
    def name(self) -> str:
        return f"{self.action} {self.point}"

    @property
    def crashes(self) -> int:  # type: ignore[override]  # of all others it is known beforehand
        return 1 if self.action == "kill" else 0

    @property
    def opener(self) -> AtPoint | None:
        return _opener(self.point, self.action)

    def arm(self, stage: Stage) -> str:
        return stage.points.arm(self.point, self.action, self.nth)


@dataclass(frozen=True, slots=True, kw_only=True)
class _AtMoment(_Fault):
    """What begins a while after it was armed. ``arming`` is the moment."""

    delay_s: float
    opener: ClassVar[None] = None

    def arm(self, stage: Stage) -> str:
        return _due(stage, self.delay_s)

    def fired(self, stage: Stage, arming: str) -> float | None:
        return float(arming) if stage.now() >= float(arming) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause(_AtStep):
    """A process stands still at a crash point for a while, and goes on."""

    seconds: float
    crashes: ClassVar[int] = 0

    @property
    def name(self) -> str:
        return f"pause {self.point}"

    def heal(self, stage: Stage, arming: str) -> None:
        stage.sleep(self.seconds)
        stage.points.resume(arming)


@dataclass(frozen=True, slots=True, kw_only=True)
class KillDriverAt(_AtStep):
    """The whole process tree of the job dies while a step stands still."""

    @property
    def name(self) -> str:
        return f"kill driver at {self.point}"

    def heal(self, stage: Stage, arming: str) -> None:  # noqa: ARG002  the contract
        stage.kill_driver()


@dataclass(frozen=True, slots=True, kw_only=True)
class KillExecutorAt(_AtStep):
    """An executor dies, its JVM and all that it has started, while one of its workers stands still at a step."""

    @property
    def name(self) -> str:
        return f"kill executor at {self.point}"

    def heal(self, stage: Stage, arming: str) -> None:
        stage.kill_executor(stage.points.pid_at(arming))


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeFilesAt(_AtStep):
    """A consumer takes what it sees while a commit stands still; then the whole process tree of the job dies."""

    moves: bool
    measured: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return f"{'move' if self.moves else 'load and delete'} files at {self.point}"

    def heal(self, stage: Stage, arming: str) -> None:  # noqa: ARG002  the contract
        stage.take_files(moves=self.moves)
        stage.kill_driver()


@dataclass(frozen=True, slots=True, kw_only=True)
class KillDriver(_AtMoment):
    """The whole process tree of the job dies at a random moment."""

    name: ClassVar[str] = "kill driver at a random moment"

    def heal(self, stage: Stage, arming: str) -> None:  # noqa: ARG002  the contract
        stage.kill_driver()


@dataclass(frozen=True, slots=True, kw_only=True)
class KillWorker(_AtMoment):
    """One of the job's Python workers dies at a random moment. ``which`` chooses, in [0, 1)."""

    which: float
    name: ClassVar[str] = "kill worker at a random moment"

    def fired(self, stage: Stage, arming: str) -> float | None:
        return _signal_worker(stage, arming, self.which, signal.SIGKILL) and stage.now()


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeWorker(_AtMoment):
    """One of the job's Python workers is stopped (SIGSTOP) for a while, and goes on."""

    which: float
    seconds: float
    name: ClassVar[str] = "freeze worker"
    crashes: ClassVar[int] = 0

    def fired(self, stage: Stage, arming: str) -> float | None:
        pid = _signal_worker(stage, arming, self.which, signal.SIGSTOP)
        if pid is None:
            return None
        struck = stage.now()
        try:
            stage.sleep(self.seconds)
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        return struck


@dataclass(frozen=True, slots=True, kw_only=True)
class KillBroker(_AtStep):
    """The broker gets SIGKILL while a step of the protocol stands still, and comes back."""

    down_s: float
    measured: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return f"kill broker at {self.point}"

    def heal(self, stage: Stage, arming: str) -> None:
        _bounce(stage, arming, stage.kafka.kill, stage.kafka.start, self.down_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class KillStore(_AtStep):
    """A server of the checkpoint's store gets SIGKILL while a step of the protocol stands still, and comes back.

    ``which`` chooses among several, in [0, 1).
    """

    which: float
    down_s: float
    measured: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return f"kill store at {self.point}"

    def heal(self, stage: Stage, arming: str) -> None:
        _bounce(stage, arming, lambda: stage.store.kill(self.which), stage.store.start, self.down_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class KillSource(_AtStep):
    """The server that the query reads gets SIGKILL while a step stands still, and comes back when it has gone on."""

    down_s: float
    measured: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return f"kill source at {self.point}"

    def heal(self, stage: Stage, arming: str) -> None:
        _bounce(stage, arming, stage.source.kill, stage.source.start, self.down_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class KillTarget(_AtStep):
    """The servers of the sinks' targets get SIGKILL a moment after a step has gone on, and come back."""

    after_s: float
    down_s: float
    measured: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return f"kill target at {self.point}"

    def heal(self, stage: Stage, arming: str) -> None:
        served = [target for target in stage.targets.values() if target.has_server]
        stage.points.resume(arming)
        stage.sleep(self.after_s)
        for target in served:
            target.kill()
        try:
            stage.sleep(self.down_s)
        finally:
            for target in served:
                target.start()


@dataclass(frozen=True, slots=True, kw_only=True)
class CutTarget(_Fault):
    """The connection to a sink's target is cut when its server has carried out a commit, and the answer is lost."""

    name: ClassVar[str] = "cut connection after commit"
    crashes: ClassVar[int] = 0
    opener: ClassVar[None] = None

    def arm(self, stage: Stage) -> str:
        for target in stage.targets.values():
            target.cut_next()
        return ""

    def fired(self, stage: Stage, arming: str) -> float | None:  # noqa: ARG002  the contract
        return next((at for target in stage.targets.values() if (at := target.cut_at()) is not None), None)

    def heal(self, stage: Stage, arming: str) -> None:  # noqa: ARG002  the contract
        for target in stage.targets.values():
            target.spare()


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveWaitingAt(_AtStep):
    """Somebody removes the rows that wait for their commit while a step stands still."""

    crashes: ClassVar[int] = 0

    @property
    def name(self) -> str:
        return f"remove waiting rows at {self.point}"

    def heal(self, stage: Stage, arming: str) -> None:
        stage.remove_waiting()
        stage.points.resume(arming)


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeLateAt(_AtStep):
    """A worker stands still while its job dies, and goes on when the next life has completed two epochs more."""

    measured: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return f"wake late at {self.point}"

    def heal(self, stage: Stage, arming: str) -> None:
        pid = stage.points.pid_at(arming)
        stage.strand(pid)
        try:
            stage.await_epochs(_LATE_EPOCHS)
        finally:
            stage.points.resume(arming)
        stage.await_end(pid)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopBroker(_AtMoment):
    """The broker is shut down in order at a random moment, and comes back."""

    down_s: float
    name: ClassVar[str] = "stop broker"
    crashes: ClassVar[int] = 0

    def heal(self, stage: Stage, arming: str) -> None:  # noqa: ARG002  the contract
        stage.kafka.stop()
        try:
            stage.sleep(self.down_s)
        finally:
            stage.kafka.start()


def _opener(point: str, action: str) -> AtPoint | None:
    opener = OPENER.get(point)
    return AtPoint(point=opener, action=action) if opener else None


def _bounce(
    stage: Stage, arming: str, kill: Callable[[], None], start: Callable[[], None], down_s: float
) -> None:
    """Kill a server while a step stands still, let the step go on, and start the server again after a while."""
    kill()
    try:
        stage.points.resume(arming)
        stage.sleep(down_s)
    finally:
        start()


def _due(stage: Stage, delay_s: float) -> str:
    return repr(stage.now() + delay_s)


def _signal_worker(stage: Stage, arming: str, which: float, number: signal.Signals) -> int | None:
    """Signal one of the workers when it is time; return its pid, None while there is nobody to be signalled."""
    if stage.now() < float(arming):
        return None
    workers = stage.workers()
    if not workers:
        return None
    pid = workers[int(which * len(workers))]
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return None
    return pid
