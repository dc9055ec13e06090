"""Taking back what was committed to a table: one entry of its log leaves our files out, and nobody else's. Operator's.

The entry is made on the state that was read, so that who changes one of these files meanwhile is noticed. It says that
the newest epoch of ours is an earlier one, and as of when what was prepared before is entered no more. The files stay
where they are, for readers of older versions, until the table's own vacuum.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.families.loaded.load import Load, app_of
from onceonly.families.loaded.sink import TRIES_MAX, ConflictError, LoadedSink
from onceonly.ports.standing import TakenBack
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceonly.families.loaded.sink import Books
    from onceonly.model import Handle
    from onceonly.ports import QueryContext


class WithdrawableSink(LoadedSink):
    """A loaded sink out of whose table epochs can be taken back. Define its abstract methods, too."""

    @property
    @abstractmethod
    def shown(self) -> str:
        """What people call the table, at the beginning of a sentence."""

    @abstractmethod
    def leave_out(self, books: Books, app: str, epoch: int, loads: Sequence[Load]) -> None:
        """Make one entry without the files of these loads, in which ``epoch`` is the newest of ours.

        All or nothing. Raises ``ConflictError`` where one of them was changed since the books were read,
        ``UnavailableError``.
        """

    @abstractmethod
    def left_out_in(self, books: Books, app: str) -> str:
        """Name the newest entry that ``leave_out`` has made; empty where the log does not have it any more."""

    def keeps_all(self, books: Books) -> str:  # noqa: ARG002  most give back what they took
        """Say why nothing may be taken out of the table; empty where it may."""
        return ""

    @abstractmethod
    def sync(self, since: int) -> None:
        """Make the log durable, from an entry on: its client does not. Driver. Raises ``UnavailableError``."""

    def make_durable(self, handles: Sequence[Handle]) -> None:
        self.sync(min(Load.of(handle).since for handle in handles))

    def complete(self, context: QueryContext, epoch: int, handles: Sequence[Handle]) -> None:
        super().complete(context, epoch, handles)
        self.make_durable(handles)

    def withdraw(
        self, context: QueryContext, epoch: int, handles: Sequence[Handle], *, only_look: bool = False
    ) -> TakenBack:
        """Take back all epochs after one, whose ``handles`` are all that they committed; return which files that was.

        One entry of the log, however many epochs; nothing of it where the table is as if it had been made. Idempotent,
        safe to be killed in. Operator's process. Raises ``ConfigurationError`` where others have changed these files,
        and nothing is taken back; ``UnavailableError``.
        """
        app, loads = app_of(context.query, context.sink), [Load.of(handle) for handle in handles]
        names, reason = tuple(f"{load.folder}/{file.path}" for load in loads for file in load.files), ""
        for _ in range(TRIES_MAX):
            # The books before the files: what is changed after them is a conflict.
            books = self.books(app, epoch)
            there = self._there(loads)
            if why := self.keeps_all(books):
                raise ConfigurationError(
                    f"{self.shown} {why}: nothing can be taken back",
                    next_step="take that away for now, or take the newest savepoint",
                )
            if left := len(names) - sum(len(load.files) for load in there):
                self._refuse_changed(app, epoch, left, len(names))
            if only_look:
                return TakenBack(files=names)
            if not there and (books.newest is None or books.newest <= epoch):
                self.sync(books.withdrawn)
                return TakenBack(files=names, entry=self.left_out_in(books, app))
            try:
                self.leave_out(books, app, epoch, there)
            except ConflictError as conflict:
                reason = str(conflict)
        raise UnavailableError(
            f"{self.shown}: others were quicker {TRIES_MAX} times: {reason}", next_step="run this again"
        )

    def _there(self, loads: Sequence[Load]) -> list[Load]:
        """Return the loads with those of their files that the table has, whole."""
        home = self.home
        now = home.known(self.files_now() or ())
        kept = [
            replace(load, files=tuple(f for f in load.files if home.called(f"{load.folder}/{f.path}") in now))
            for load in loads
        ]
        return [load for load in kept if load.files]

    def _refuse_changed(self, app: str, epoch: int, left: int, count: int) -> None:
        standing = self.standing(app)
        if standing is None or standing <= epoch:
            return  # an entry of ours, or an older version that was restored, has left them out before
        raise ConfigurationError(
            f"{self.shown} has {left} of the {n(count, 'file')} of epochs after chk-{epoch} no more, or rows of theirs "
            "were deleted: others have compacted or changed it since, and nobody could tell which rows are ours",
            next_step="take the rows away yourself and say --output again, or take a newer savepoint",
        )
