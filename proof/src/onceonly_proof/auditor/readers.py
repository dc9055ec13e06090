"""What the auditor asks of a reader of a sink. Bring your own for a system that is not here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onceonly_proof.auditor.world import Orphan, Seen


class Reader(Protocol):
    """Reads one sink's target as any other program would. Changes nothing there; used by one thread."""

    def rows(self) -> Iterator[Seen]:
        """Return every row that a careful reader gets now, in the order of each place. Callable again."""
        ...

    def orphans(self) -> Iterable[Orphan]:
        """Return what the sink has left open or lying about."""
        ...

    def close(self) -> None:
        """Let go of connections and threads. Idempotent."""
        ...


@runtime_checkable
class LooksBehind(Protocol):
    """A reader that can also tell what is in the target and is kept from careful readers."""

    def uncommitted(self) -> Iterator[Seen]:
        """Return the rows that lie beyond the point where careful readers stand now."""
        ...


class Watcher(Protocol):
    """Reads a sink's target all the time in a thread of its own, through crashes of what it reads."""

    def seen(self) -> list[Seen]:
        """Return what it got until now, each with the time when it was first seen. Any thread."""
        ...

    def close(self) -> None:
        """Stop the thread; ``seen`` stays. Idempotent."""
        ...
