"""Where a journal lies, what it is of, and reading one segment of it. Any process."""

from __future__ import annotations

import os
import shlex
import stat
import uuid
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from onceonly import background
from onceonly.durable import disk
from onceonly.errors import ConfigurationError, JournalError, UnavailableError
from onceonly.sources.journal.segments import (
    CLAIMS,
    FOLDS,
    SEGMENTS,
    Identity,
    Reading,
    Receiving,
    decode,
    decode_head,
    decode_note,
    encode_note,
    name_of,
    number_of,
)
from onceonly.stores.opened import address_of, folder_of, open_store
from onceonly.stores.port import put_once

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import pyarrow as pa

    from onceonly.sources.journal.segments import Segment
    from onceonly.stores.port import RewritableStore

Item = TypeVar("Item")
T = TypeVar("T")

IDENTITY: Final = "journal"
READING: Final = "reading"
RECEIVING: Final = "receiving"
AGAIN: Final = "again"
"""The file of the ids that came again, and are remembered since then."""
_HEAD_BYTES: Final = 4096
"""How much of a segment is read to know what it says of itself."""
_PRIVATE: Final = 0o700
_OTHERS: Final = 0o077


class Journal:
    """A journal by its address. Nothing is asked and nothing is held before a method is called."""

    def __init__(self, store: RewritableStore, where: str, folder: Path | None = None) -> None:
        self.store = store
        self.where = where
        self.folder = folder

    @classmethod
    def at(cls, text: str) -> Journal:
        """Open the journal at an address. Raises ``ConfigurationError`` for what is no address."""
        address = address_of(text, what="the journal")
        return cls(open_store(address, private=True), address.shown, folder_of(address))

    def identity(self) -> Identity | None:
        """Say what it is of; None where there is no journal. Raises ``JournalError``, ``UnavailableError``."""
        data = self.store.get(IDENTITY)
        if data is None:
            return None
        return decode_note(data, "journal", Identity, where=self.store.where(IDENTITY))

    def make(self, feed: str, of: str) -> Identity:
        """Make it, for its user alone, unless it is there; see that it is of this feed. Idempotent.

        Raises ``ConfigurationError`` for a folder that others can read, ``JournalError`` for a journal of another feed.
        """
        self._make_private()
        self.store.prepare((SEGMENTS.rstrip("/"), FOLDS.rstrip("/")))
        found = self.identity()
        if found is None:
            # Another journal would delete by what was read of this one, and leave out its ids.
            if rest := self.rest():
                raise JournalError(
                    f"the journal {self.where} has {rest} but its file {IDENTITY!r} is gone",
                    next_step="restore the folder as a whole, or give an empty one; or run `onceonly journal drop` on "
                    "it once more",
                )
            wanted = Identity(journal=uuid.uuid4().hex, feed=feed, of=of)
            data = put_once(self.store, IDENTITY, encode_note("journal", wanted))
            where = self.store.where(IDENTITY)
            found = wanted if data is None else decode_note(data, "journal", Identity, where=where)
        if (found.feed, found.of) != (feed, of):
            raise JournalError(
                f"the journal {self.where} holds rows of {found.feed} {found.of}, not of {feed} {of}",
                next_step="give each feed a journal of its own"
                + (
                    "; or, if it is the same one at another address: onceonly journal accept-move "
                    f"{shlex.quote(self.where)} {shlex.quote(of)}"
                    if found.feed == feed
                    else ""
                ),
            )
        return found

    def rest(self) -> str:
        """Say what of a journal is there besides its identity, in words; empty where nothing is."""
        found = [name.rstrip("/") for name in (SEGMENTS, FOLDS) if self.numbers(name)]
        found += [f"the file {name!r}" for name in (READING, AGAIN) if self.store.get(name) is not None]
        return " and ".join(found)

    def sync(self) -> None:
        """Make durable what was deleted, where a folder does not by itself. Raises ``UnavailableError``."""
        if self.folder is None:
            return
        try:
            for folder in (*(self.folder / name for name in (SEGMENTS, FOLDS, CLAIMS)), self.folder):
                if folder.is_dir():
                    disk.sync(folder)
        except OSError as error:
            raise UnavailableError(
                f"the journal {self.where} could not be synced: {os.strerror(error.errno or 0)}",
                next_step="see to this folder (permissions, mount) and run it again",
            ) from error

    def numbers(self, folder: str) -> list[int]:
        """Return the numbers of segments, or of folds, from the oldest on."""
        return sorted(n for n in map(number_of, self.store.list_names(folder)) if n >= 0)

    def read(self, number: int, journal: str) -> tuple[Segment, pa.Table, int]:
        """Return a segment, its rows, and the bytes that it takes. Raises ``JournalError``, ``UnavailableError``."""
        name = name_of(SEGMENTS, number)
        where = self.store.where(name)
        data = self.store.get(name)
        if data is None:
            raise _gone(where)
        segment, rows = decode(data, number, where=where)
        if segment.journal != journal:
            raise strange(where)
        return segment, rows, len(data)

    def head(self, number: int, journal: str) -> Segment:
        """Return what a segment says of itself; no more of it is read than that takes. Raises as ``read``."""
        name = name_of(SEGMENTS, number)
        where = self.store.where(name)
        data = self.store.get_first(name, _HEAD_BYTES)
        if data is None:
            raise _gone(where)
        segment = decode_head(data, number, where=where)
        if segment is None or segment.rows < 0:  # its mark is long, or an older version has not said how many
            found, rows, _ = self.read(number, journal)
            return msgspec.structs.replace(found, rows=rows.num_rows)
        if segment.journal != journal:
            raise strange(where)
        return segment

    def at_once(self, work: Callable[[Item], T], items: Sequence[Item]) -> list[T]:
        """Do work on segments, for as many at a time as the store takes; return what came, in order.

        One after the other, those of a long journal on a distant store would take hours.
        """
        return background.spread("onceonly-journal", work, items, threads_max=self.store.abreast)

    def reading(self) -> Reading | None:
        """Say who reads it and how far it has come; None where nobody has begun."""
        data = self.store.get(READING)
        if data is None:
            return None
        return decode_note(data, "reading", Reading, where=self.store.where(READING))

    def note_reading(self, reading: Reading) -> None:
        """Write down who reads it and how far it has come. Raises ``UnavailableError``."""
        self.store.replace(READING, encode_note("reading", reading))

    def receiving(self) -> Receiving:
        """Return what its receivers have noted. Raises ``JournalError``, ``UnavailableError``."""
        data = self.store.get(RECEIVING)
        if data is None:
            return Receiving(promises=())
        return decode_note(data, RECEIVING, Receiving, where=self.store.where(RECEIVING))

    def note_receiving(self, receiving: Receiving) -> None:
        """Write down what its receivers promise. Raises ``UnavailableError``."""
        self.store.replace(RECEIVING, encode_note(RECEIVING, receiving))

    def lock(self, name: str) -> Path | None:
        """Return the path of a lock; None on a store, which has none."""
        return None if self.folder is None else self.folder / f"{name}.lock"

    def _make_private(self) -> None:
        if self.folder is None:
            return
        try:
            disk.make_folder(self.folder, mode=_PRIVATE)
            found = self.folder.stat()
            if stat.S_IMODE(found.st_mode) & _OTHERS and not any(self.folder.iterdir()):
                self.folder.chmod(_PRIVATE)
                found = self.folder.stat()
        except OSError as error:
            raise UnavailableError(
                f"the journal {self.where} could not be made: {os.strerror(error.errno or 0)}",
                next_step="see to this folder (permissions, space, mount) and start again",
            ) from error
        if stat.S_IMODE(found.st_mode) & _OTHERS:
            raise ConfigurationError(
                f"the journal {self.where} can be read by other users, and it holds what the feed sends",
                next_step=f"chmod 700 {self.where}",
            )


def _gone(where: str) -> JournalError:
    return JournalError(
        f"{where} is gone, and it is not read yet: it was deleted by hand, or another query reads this journal",
        next_step="restore the folder; or begin on a new checkpoint, which reads what is still there",
    )


def strange(where: str) -> JournalError:
    """Make the error for a file that another journal has left."""
    return JournalError(
        f"{where} is of another journal: a file was moved by hand", next_step="restore the folder as a whole"
    )
