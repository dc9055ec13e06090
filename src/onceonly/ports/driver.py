"""What the coordinator is given: a decision log, a reader of Spark's files and a clock. Driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onceonly.model import Around, InputFile, Inputs, Link, Plan, Receipt


class DecisionLog(Protocol):
    """The durable chains of a query. Driver only. Every ``put`` is put-if-absent and durable when it returns."""

    @property
    def query(self) -> str: ...

    @property
    def abreast(self) -> int:
        """How many requests to make at the same time: 1 where each is over sooner than a thread is woken."""
        ...

    def chain(self, epoch: int) -> tuple[Link, ...]:
        """Read the links N.0, N.1, … of an epoch, oldest first; checks versions, checksums and gaps."""
        ...

    def receipt(self, epoch: int) -> Receipt | None: ...

    def around(self, epoch: int, *, owners: bool) -> Around:
        """Read what stands around an epoch, such that what others put meanwhile does not look like a gap.

        ``owners`` asks for the applications that put the links that are not folded, neighbours named once.
        """
        ...

    def put_link(self, link: Link) -> Link:
        """Append; return the link that now stands at this place: equal to ``link`` if the put is ours.

        Raises ``UnavailableError`` where neither can be told: the chain must be read again.
        """
        ...

    def sync(self, standing: Link | Receipt) -> None:
        """Make a link or receipt that was read durable, as its writer may have died before it synced. Idempotent."""
        ...

    def put_receipt(self, receipt: Receipt) -> None: ...

    def fold(self) -> None:
        """Turn details beyond the limit into summary lines. Idempotent; safe to be killed in."""
        ...


class InputFiles(Protocol):
    """What Spark's checkpoint says of the input of each epoch. Driver, planner or commit process."""

    def read(self, epoch: int, *, lists: bool = True) -> Inputs:
        """Return the files that say what an epoch reads, or the one alone that says its end.

        Raises ``UnavailableError``.
        """
        ...

    def barrier(self, epoch: int, found: Inputs) -> tuple[str, ...]:
        """Return the end offsets of what was read of an epoch in flight. Raises ``LogError`` where there are none."""
        ...

    def restore(
        self, links: Sequence[Link], discard: InputFile | None, is_mine: Callable[[], bool]
    ) -> tuple[str, ...]:
        """Take one file away that is still as it was found, and write the files as decided, durably.

        ``is_mine`` looks whether the epoch of that file is still claimed by this run. Says in a sentence each what was
        done.

        Raises ``LogError`` where a decision does not hold what is needed, and ``UnavailableError``.
        """
        ...

    def begin_sync(self, plan: Plan) -> None:
        """Begin to make durable what a replay of a planned epoch reads of the checkpoint, beside its tasks."""
        ...

    def synced(self, plan: Plan) -> str:
        """Wait until that is done; say what kept it from being done, empty where all is durable."""
        ...

    def sync_state(self) -> str:
        """Make durable the state that an epoch's tasks have left, and wait; say what kept it from being."""
        ...

    def sync(self) -> str:
        """Make all that is there now durable, and wait; say what kept it from being. Where no task runs meanwhile."""
        ...


class Clock(Protocol):
    """Seconds, for waits and pictures only; nothing depends on them for safety. Python's module ``time`` is one."""

    def monotonic(self) -> float: ...
    def sleep(self, seconds: float, /) -> None: ...
