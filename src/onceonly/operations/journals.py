"""What a person sees of journals, and giving one up. Beside a running query or without one; needs no Spark."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError, JournalError
from onceonly.operations import records
from onceonly.sources.journal.claims import Claim
from onceonly.sources.journal.lock import Hold, holder_of
from onceonly.sources.journal.place import AGAIN, IDENTITY, READING, RECEIVING, Journal
from onceonly.sources.journal.segments import CLAIMS, FOLDS, SEGMENTS, Identity, encode_note, name_of
from onceonly.stores.opened import address_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onceonly.operations.find import Checkpoint
    from onceonly.operations.records import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A journal as it is now. ``unread`` counts rows that the query may still ask for."""

    where: str
    feed: str
    of: str
    segments: int
    newest: int
    unread: int
    bytes: int
    writer: str
    reader: str


def look(address: str) -> Seen:
    """Look at a journal; every segment is read, and one that is damaged is named. Raises ``ConfigurationError``."""
    journal = _there(address)
    identity = journal.identity()
    assert identity is not None  # noqa: S101  it is there
    numbers = journal.numbers(SEGMENTS)
    upto = _upto(journal)

    def one(number: int) -> tuple[int, int] | None:
        try:
            _, rows, taken = journal.read(number, identity.journal)
        except JournalError:
            if number <= _upto(journal) and number not in journal.numbers(SEGMENTS):
                return None  # its writer has taken it away meanwhile
            raise
        return rows.num_rows if number > upto else 0, taken

    found = [each for each in journal.at_once(one, numbers) if each is not None]
    return Seen(
        where=journal.where,
        feed=identity.feed,
        of=identity.of,
        segments=len(found),
        newest=max(numbers or journal.numbers(FOLDS), default=0),
        unread=sum(rows for rows, _ in found),
        bytes=sum(taken for _, taken in found),
        writer=_holder(journal, "writer"),
        reader=_holder(journal, "reader"),
    )


def as_json(seen: Seen) -> dict[str, Any]:
    """Return it as JSON."""
    return asdict(seen)


def drop(address: str, *, checkpoint: Checkpoint | None = None, because: str = "") -> Entry:
    """Give up a journal with all that is in it. Killed in between, it is simply run again.

    A journal does not say whose checkpoint reads it: its record goes into the log of ``checkpoint``, or beside it.
    Raises ``ConfigurationError`` where a job or receiver uses it.
    """
    journal = _there(address, is_rest=True)
    with (
        _unused(journal),
        _recorded(journal, address, checkpoint, because, "dropped, with all that was in it") as entry,
    ):
        # Its identity goes last, also where the power fails, so that a drop that was killed can be run again.
        for folder in (SEGMENTS, FOLDS, CLAIMS):
            names = [name_of(folder, number) for number in journal.numbers(folder)]
            journal.at_once(journal.store.delete, names)
        for name in (READING, RECEIVING, AGAIN):
            journal.store.delete(name)
        journal.sync()
        journal.store.delete(IDENTITY)
        journal.sync()
        journal.store.drop_leftovers(
            lambda name: "/" not in name or name.startswith((SEGMENTS, FOLDS, CLAIMS))
        )
        if journal.folder is not None:
            _remove_folders(journal, journal.folder)
    return entry


def drop_reader(address: str, *, checkpoint: Checkpoint | None = None, because: str = "") -> Entry:
    """Forget who reads a journal: the next query begins at the oldest segment that is kept. Raises as ``drop``."""
    journal = _there(address)
    with (
        _unused(journal, "reader"),
        _recorded(journal, address, checkpoint, because, "its reader is forgotten") as entry,
    ):
        Claim.put(journal)  # where no lock refuses this, the query that reads it stops
        journal.store.delete(READING)
        journal.sync()
    return entry


def accept_move(address: str, of: str, *, checkpoint: Checkpoint | None = None, because: str = "") -> Entry:
    """Say that the feed of a journal is at another address now, and goes on where it was. Idempotent.

    ``of`` is the address as the feed's refusal of this journal shows it. Raises as ``drop``.
    """
    journal = _there(address)
    identity = journal.identity()
    assert identity is not None  # noqa: S101  it is there
    with (
        _unused(journal),
        _recorded(
            journal, address, checkpoint, because, f"it is of {identity.feed} {of}, and was of {identity.of}",
            command="journal accept-move",
        ) as entry,
    ):  # fmt: skip
        moved = Identity(journal=identity.journal, feed=identity.feed, of=of)
        journal.store.replace(IDENTITY, encode_note("journal", moved))
    return entry


def _remove_folders(journal: Journal, folder: Path) -> None:
    """Remove the journal's folders and locks; what is not its own stays where it is, and so does its folder."""
    for name in ("writer", "reader"):
        lock = journal.lock(name)
        if lock is not None:
            lock.unlink(missing_ok=True)
    for each in (folder / SEGMENTS, folder / FOLDS, folder / CLAIMS, folder):
        with suppress(OSError):
            each.rmdir()


@contextmanager
def _recorded(
    journal: Journal,
    address: str,
    checkpoint: Checkpoint | None,
    because: str,
    after: str,
    *,
    command: str = "journal drop",
) -> Iterator[Entry]:
    book = records.beside(address_of(address)) if checkpoint is None else records.of_checkpoint(checkpoint)
    before = f"the journal {journal.where} was there"
    with records.kept(book, command=command, because=because, before=before) as entry:
        yield entry
        entry.after = after


@contextmanager
def _unused(journal: Journal, *names: str) -> Iterator[None]:
    with ExitStack() as stack:
        for name in names or ("writer", "reader"):
            hold = Hold.take(
                journal.lock(name),
                refusal=f"the journal {journal.where} is in use",
                next_step="stop the query, and the receiver beside it, first",
                wait_s=0,
            )
            stack.callback(hold.close)
        yield


def _upto(journal: Journal) -> int:
    reading = journal.reading()
    return reading.upto if reading is not None else 0


def _there(address: str, *, is_rest: bool = False) -> Journal:
    """Return a journal that is there, or what a writer has left of one that was dropped."""
    journal = Journal.at(address)
    if journal.store.get(IDENTITY) is None and not (is_rest and journal.rest()):
        raise ConfigurationError(
            f"there is no journal at {journal.where}",
            next_step="give the folder that the option journal names",
        )
    return journal


def _holder(journal: Journal, name: str) -> str:
    path = journal.lock(name)
    return "" if path is None else holder_of(path)
