"""Where a target's data files lie: what the family asks of a place, and which kind of place an address means.

In every place an attempt has a folder of its own, and a note in ``_open`` that says that it may not be committed. It is
gone, durably, before the epoch's receipt stands: one of an older epoch than the newest in the target's log tells of an
attempt that never will be. Tables' own readers, and a vacuum, pass over names that begin with an underscore.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from onceonly.stores.address import Kind, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onceonly.families.loaded.load import DataFile, Load


class Stage(Protocol):
    """The folder of one attempt, as its writer uses it. Executor, one thread.

    What fails is an ``OSError`` of a file system, or a typed error of a store.
    """

    @property
    def open_max(self) -> int:
        """How many files may be open at a time."""
        ...

    @property
    def where(self) -> str:
        """What people call it."""
        ...

    def stands(self) -> bool:
        """Tell whether it is still there, as far as that can be told at once: no sweep has taken it away."""
        ...

    def is_shared(self) -> bool:
        """Tell whether the place above it is there: what is missing below it was swept then."""
        ...

    def create(self, path: str) -> BinaryIO:
        """Begin a file by its path in the folder, which is given once."""
        ...

    def finish(self, file: BinaryIO) -> None:
        """Close a file, so that its content is durable; its name need not be yet."""
        ...

    def drop_file(self, file: BinaryIO) -> None:
        """Throw away a file that was begun, best effort."""
        ...

    def seal(self, files: Sequence[DataFile]) -> bool:
        """Make names durable and see that these files are as they were written; False where a sweep was quicker."""
        ...

    def drop(self) -> None:
        """Take the folder away, with its note. Idempotent. Raises a typed error."""
        ...


class Home(Protocol):
    """The place of a target's data files. Driver, but for ``begin``. Raises ``UnavailableError`` and typed errors."""

    @property
    def text(self) -> str:
        """Its address, by which any process finds it again."""
        ...

    @property
    def identity(self) -> str:
        """The same for every way to write the same place."""
        ...

    def prepare(self) -> None:
        """See that the place is fit for what is put there, before the first record. Leaves nothing behind."""
        ...

    def require_rights(self, app: str, *, user: int | None, who: str) -> str:
        """See that files may be put here; return why that cannot be seen. Operator's process; only looks.

        ``user`` is the job's on this machine. Raises ``ConfigurationError``.
        """
        ...

    def begin(self, app: str, name: str) -> Stage:
        """Begin an attempt such that a sweep finds it from now on. Executor. Raises ``OSError`` or a typed error."""
        ...

    def whole(self, loads: Sequence[Load]) -> set[str]:
        """Return the names of those loads that stand, with all files as they were written."""
        ...

    def gone(self, loads: Sequence[Load]) -> set[str]:
        """Return the names of those of which a file is not there, or not as it was written, whatever they stand for."""
        ...

    def sizes(self, folder: str, paths: Sequence[str]) -> list[int | None]:
        """Return the length of each of these files in an attempt's folder, None where it is not there."""
        ...

    def open(self, path: str) -> BinaryIO:
        """Open a data file below this place to read it. Raises ``OSError``, or a store's typed errors."""
        ...

    def known(self, names: Iterable[str]) -> set[str]:
        """Return what a table's log calls its data files, as ``called`` calls them; others are left out."""
        ...

    def called(self, path: str) -> str:
        """Return what a file below this place is called, whatever links lead there."""
        ...

    def unmark(self, app: str, names: Iterable[str]) -> None:
        """Note that attempts are open no more. Idempotent."""
        ...

    def sync_marks(self, app: str) -> None:
        """Make it durable which attempts are open."""
        ...

    def marked(self, app: str) -> list[str]:
        """List the attempts that are noted as open, rather than a part of them."""
        ...

    def below(self, folder: str) -> list[str]:
        """List the folders in a folder of this place; none where it is not there."""
        ...

    def by_hand(self, app: str, name: str) -> tuple[float | None, str]:
        """Return since when an attempt is noted as open, in seconds, and what a person does to take it away."""
        ...

    def drop(self, folder: str) -> None:
        """Take away an attempt's folder with its files; its writer notices it. Idempotent."""
        ...


def home_at(text: str) -> Home:
    """Open the place of an address in full, as a plan has it. Any process; nothing is asked yet.

    Raises ``ConfigurationError``, ``SetupError``.
    """
    address = parse(text, what="the table")
    if address.kind is Kind.FOLDER:
        from onceonly.families.loaded.folders import FolderHome

        return FolderHome(Path(address.path))
    from onceonly.families.loaded.objects import ObjectHome

    return ObjectHome.at(address)
