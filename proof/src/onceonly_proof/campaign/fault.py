"""What a fault is, and what it acts upon. Campaign's process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onceonly_proof.campaign.points import Points
    from onceonly_proof.campaign.sources import Source
    from onceonly_proof.campaign.stores import CheckpointStore
    from onceonly_proof.campaign.targets import Target
    from onceonly_proof.embedded.kafka import EmbeddedKafka


class Stage(Protocol):
    """What faults act upon: the job of a round and the servers around it."""

    @property
    def source(self) -> Source:
        """What the query reads, where that is not Kafka."""
        ...

    @property
    def points(self) -> Points:
        """The crash points of every job."""
        ...

    @property
    def kafka(self) -> EmbeddedKafka:
        """The broker of source, target and transactions."""
        ...

    @property
    def store(self) -> CheckpointStore:
        """Where the checkpoint is."""
        ...

    @property
    def targets(self) -> Mapping[str, Target]:
        """What the sinks write to beside Kafka and files, by their names."""
        ...

    def now(self) -> float:
        """Seconds since 1970."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...

    def workers(self) -> Sequence[int]:
        """Return the pids of the job's Python workers, planner and commit process among them, in a stable order."""
        ...

    def kill_driver(self) -> None:
        """SIGKILL the job's whole tree, and start its next life."""
        ...

    def strand(self, pid: int) -> None:
        """SIGKILL the job's whole tree but for one process, which nobody waits for any more; start its next life."""
        ...

    def kill_executor(self, worker: int) -> None:
        """SIGKILL the executor that one of the job's workers belongs to, with all that it has started."""
        ...

    def await_epochs(self, count: int) -> None:
        """Let the job go on until so many more epochs are complete."""
        ...

    def await_end(self, pid: int) -> None:
        """Wait until a process has ended by itself."""
        ...

    def remove_waiting(self) -> None:
        """Remove all rows that wait for their commit, as somebody who tidies up."""
        ...

    def take_files(self, *, moves: bool) -> None:
        """Take all visible files out of the file sink's target, as a landing zone's consumer does."""
        ...


class Fault(Protocol):
    """One fault. ``arm`` gives what ``fired`` and ``heal`` are asked with; each is called in this order.

    ``crashes`` is how many processes or process trees have died when it has fired.
    """

    @property
    def name(self) -> str: ...

    @property
    def crashes(self) -> int: ...

    @property
    def measured(self) -> bool:
        """Whether the time until new rows are visible is the job's recovery, and not a broker's start."""
        ...

    @property
    def opener(self) -> Fault | None:
        """The fault that leads to this one, where it has to be led to: armed before it, counted by itself."""
        ...

    def arm(self, stage: Stage) -> str:
        """Prepare it. Gives a crash point's key, or the moment at which it is due."""
        ...

    def fired(self, stage: Stage, arming: str) -> float | None:
        """Say when it fired. Asked again and again; what is due at a moment is done here."""
        ...

    def heal(self, stage: Stage, arming: str) -> None:
        """After it has fired: the rest of it, and what makes the world whole again."""
        ...
