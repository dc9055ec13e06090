"""What the sink asks of a kind of place: where files wait unseen, and how they come into sight, once."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from onceonly.model import Handle, Outcome
    from onceonly.ports import Leftover, QueryContext
    from onceonly.ports.standing import Stands
    from onceonly.sinks.files.manifests.manifest import DataFile
    from onceonly.sinks.files.prepared import Prepared, Upload
    from onceonly.sinks.files.store import Files


class UnsureError(Exception):
    """What is found is neither published nor prepared."""


class Stage(Protocol):
    """Where the files of one attempt wait. Executor, one thread. Errors are ``OSError``, or stand in a sentence."""

    @property
    def folder(self) -> Path:
        """What it is called; that of the transaction alone, below the folder of its query's sink."""
        ...

    @property
    def open_max(self) -> int:
        """How many files may be open at a time."""
        ...

    def begin(self) -> None:
        """Make the place, so that a sweep finds it from now on, and so that its removal is noticed."""
        ...

    def see(self) -> None:
        """See that nobody has removed it. Raises ``FileNotFoundError``."""
        ...

    def is_shared(self) -> bool:
        """Tell whether the places of all attempts of its query are there, so that this one alone may be missing."""
        ...

    def create(self, path: str) -> BinaryIO:
        """Begin a file that is to get this path below the target. Raises where the place was removed."""
        ...

    def finish(self, file: BinaryIO) -> None:
        """Make the content of a file durable, and close it."""
        ...

    def prepare(self, files: Sequence[DataFile]) -> tuple[Upload, ...]:
        """See that all is there and durable; return what a commit needs besides the files' names."""
        ...

    def drop(self) -> None:
        """Remove it with what is in it. Idempotent."""
        ...


class Target(Protocol):
    """One target of one sink. Driver, from several threads, except for ``stage``."""

    @property
    def files(self) -> Files:
        """Its small files: the books of the sink."""
        ...

    def make_ready(self, context: QueryContext) -> bool:
        """Make what is missing and try what every commit does; say whether case is ignored in names.

        Once a run, idempotent. Raises ``OSError``, ``ConfigurationError``.
        """
        ...

    def stage(self, query: str, sink: str, transaction: str) -> Stage:
        """Return the place of an attempt; nothing is made yet. Executor."""
        ...

    def commit(self, prepared: Prepared) -> Outcome:
        """Give every file its final name, once, and never over another. Any process; idempotent.

        Raises ``UnsureError`` for what cannot be told, ``OSError`` and ``UnavailableError`` for what is asked again.
        """
        ...

    def published(self, prepared: Prepared) -> list[DataFile]:
        """List the files that have, or had, their final names; for what is tried once: the others never will."""
        ...

    def standing(self, prepared: Prepared) -> tuple[Stands, str]:
        """Say how it stands, where no manifest lists its files, and in words why. Only looks. Raises ``OSError``."""
        ...

    def hindrance(self, prepared: Prepared) -> str:
        """Say why what waits, or is gone, ends a commit in doubt, though nobody has begun; else empty. Only looks.

        Raises ``OSError``.
        """
        ...

    def recover(self, context: QueryContext) -> list[Leftover]:
        """List this query's transactions that have left something. Changes nothing. Raises ``UnavailableError``."""
        ...

    def is_begun(self, folder: Path) -> bool:
        """Say whether a transaction's commit was begun, by the ``folder`` that ``recover`` names. Only looks."""
        ...

    def by_hand(self, folder: Path) -> tuple[float, str]:
        """Return for how many seconds nobody has touched what waits of a transaction, and how a person removes it.

        ``folder`` is what ``recover`` names. Only looks. Raises ``OSError``, ``UnavailableError``.
        """
        ...

    def abort(self, handle: Handle, *, root: Path | None) -> None:
        """Remove what a handle or a leftover names, so that nobody commits it; never a final name. Idempotent.

        ``root`` is the folder of this query's transactions, None where nobody has said yet which query it is.
        """
        ...
