"""Spark's side of a journal: positions in it, who reads it, and what is read for good."""

from __future__ import annotations

import shlex
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onceonly.errors import ConfigurationError, JournalError, UnavailableError
from onceonly.sources.journal.claims import Claim
from onceonly.sources.journal.lock import WAIT_S, Hold
from onceonly.sources.journal.segments import FOLDS, SEGMENTS, Reading, name_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly.sources.journal.place import Journal
    from onceonly.sources.journal.segments import Segment

_STOOD_S: Final = 1.0
"""How long a query has had nothing to read before it notes that: those that read on all the time need no note."""


class Position(msgspec.Struct, frozen=True, omit_defaults=True):
    """After which segment, of which journal, for which reader. Spark keeps it in the query's checkpoint.

    ``writer`` is who wrote the segment: a journal that went back may have another one under its number.
    """

    journal: str
    reader: str
    segment: int
    writer: str = ""

    @classmethod
    def of(cls, offset: dict[str, Any]) -> Position:
        """Read one of Spark's offsets. Raises ``ConfigurationError`` for one of another source."""
        try:
            return msgspec.convert(offset, cls)
        except msgspec.ValidationError as error:
            raise ConfigurationError(
                f"the checkpoint holds a position of another source: {offset}",
                next_step="give each query a checkpoint of its own",
            ) from error

    @property
    def offset(self) -> dict[str, Any]:
        """The position as Spark's offset."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def require_unread(journal: Journal) -> Reading | None:
    """See that no query has read of a journal, and return what one has noted that has only begun; None where none has.

    A checkpoint that was left behind, or that another job has, reads it on: a new one would read the same rows again.
    Any process; only looks. Raises ``JournalError``.
    """
    reading = journal.reading()
    if reading is None:
        return None
    upto = max(reading.upto, reading.named, reading.stood if reading.stood > _beginning(journal) else 0)
    if upto:
        raise JournalError(
            f"the journal {journal.where} was read up to segment {upto} by another query, or on another checkpoint",
            next_step="start on that checkpoint; or give this query a journal of its own; or, if that query will never "
            f"run again: onceonly journal drop --reader {shlex.quote(journal.where)}",
        )
    return reading


def first_begun(journal: Journal) -> Position | None:
    """Return where a query has begun that may have to run its first epoch again; None where none has read.

    Spark keeps no beginning, and asks for one as for a new query. Its note that an epoch is complete may be lost with
    the power until the next one is decided, while ours of what was read stands. Any process; only looks. Raises
    ``JournalError`` where something was read for good: that first epoch is over.
    """
    reading, identity = journal.reading(), journal.identity()
    try:
        require_unread(journal)
    except JournalError:
        if reading is None or reading.upto or identity is None:
            raise
        return Position(journal=identity.journal, reader=reading.reader, segment=_beginning(journal))
    return None


def require_kept(journal: Journal, position: Position) -> Reading | None:
    """See that a journal keeps all that follows a position, for its reader, and return who has begun to read it.

    Any process; only looks. Raises ``JournalError``.
    """
    identity = journal.identity()
    if identity is None or identity.journal != position.journal:
        there = "there is none" if identity is None else "it was made anew"
        raise JournalError(
            f"the journal {journal.where} is not the one that the query has read: {there}",
            next_step="name the journal that this query read before, or bring it back; or start on a new checkpoint",
        )
    reading = journal.reading()
    if reading is not None and reading.reader != position.reader:
        raise JournalError(
            f"the journal {journal.where} is read by another query now",
            next_step="give this query a journal of its own, or start on the checkpoint that reads it",
        )
    if reading is not None and reading.upto > position.segment:
        # Some may stand still; whoever writes the journal deletes them at any moment.
        raise _passed(
            f"the journal {journal.where} was read up to segment {reading.upto} for good, and the query goes on after "
            f"{position.segment}: what lies between is deleted, or will be"
        )
    kept, folded = journal.numbers(SEGMENTS), max(journal.numbers(FOLDS), default=0)
    first = kept[0] if kept else folded + 1
    if first > position.segment + 1:
        raise _passed(
            f"the journal {journal.where} keeps no segments before {first}, and the query goes on after "
            f"{position.segment}: what was read was deleted"
        )
    if (newest := kept[-1] if kept else folded) < position.segment:
        # Whoever writes it now would give the numbers that this query has read to other rows.
        raise _went_back(journal, newest, position.segment)
    if position.segment in kept and (reading is None or reading.upto < position.segment):
        require_same(journal, position)
    return reading


def require_same(journal: Journal, position: Position) -> None:
    """See that the segment before a position is the one that the query has read. Raises ``JournalError``."""
    if not position.writer:  # of an older version, or of the beginning
        return
    if journal.head(position.segment, position.journal).writer != position.writer:
        raise JournalError(
            f"the journal {journal.where} has another segment {position.segment} than this query has read: it was "
            "restored from an older copy and written on, and what was written since would be passed over",
            next_step="restore its newest state, which gives up the rows that were taken since; or begin on a new "
            "checkpoint, which reads what is there, also again",
        )


def _beginning(journal: Journal) -> int:
    """Return the segment after which a journal has all that it keeps."""
    segments, folded = journal.numbers(SEGMENTS), max(journal.numbers(FOLDS), default=0)
    return max(segments[0] - 1 if segments else 0, folded)


def _went_back(journal: Journal, newest: int, read: int) -> JournalError:
    return JournalError(
        f"the journal {journal.where} ends with segment {newest}, and this query has read up to {read}: it was "
        "restored from an older copy",
        next_step="restore its newest state; or begin on a new journal and a new checkpoint",
    )


def _passed(what: str) -> JournalError:
    return JournalError(
        what,
        next_step="go back to a newer savepoint or checkpoint; with a journal, only the newest one helps",
    )


class Reader:
    """The one query that reads a journal. Driver; one thread.

    ``durable`` gives the newest durable segment where the writer is in this process; else the folder is looked at.
    """

    def __init__(
        self, journal: Journal, *, durable: Callable[[], int] | None = None, wait_s: float = WAIT_S
    ) -> None:
        self._journal = journal
        self._durable = durable
        identity = journal.identity()
        if identity is None:
            raise UnavailableError(
                f"there is no journal at {journal.where} yet",
                next_step="start `onceonly journal run` with the same options first",
            )
        self._identity = identity.journal
        self._hold = Hold.take(
            journal.lock("reader"),
            refusal=f"another query reads the journal {journal.where}",
            next_step="stop that query, or give this one a journal of its own",
            wait_s=wait_s,
        )
        self._synced = 0
        self._committed: int | None = None
        self._seen: dict[int, Segment] = {}
        """What segments say of themselves, where their writer is not here to ask."""
        self._required: Position | None = None
        self._same_upto = 0
        """The newest segment of a position that was seen to be the one that it names."""
        self._claim: Claim | None = None
        self._noted: Reading | None = None
        self._came_at = time.monotonic()

    def close(self) -> None:
        """Let the journal go. Idempotent."""
        self._hold.close()

    def initial(self) -> Position:
        """Begin where the journal begins. Idempotent until something was read.

        Raises ``JournalError`` where another query has read of it.
        """
        reading = self._claimed(require_unread(self._journal) or Reading(reader=uuid.uuid4().hex))
        return Position(journal=self._identity, reader=reading.reader, segment=_beginning(self._journal))

    def require(self, position: Position) -> None:
        """See once that a query may go on at a position: it is of this journal and reader, and all after it is kept.

        The end of an epoch that an earlier start has planned is seen to be the same, too.

        Raises ``JournalError``.
        """
        known = self._required
        if known is None or (known.journal, known.reader) != (position.journal, position.reader):
            # A start that is refused claims nothing.
            self._claimed(require_kept(self._journal, position) or Reading(reader=position.reader))
            self._required = position
        elif position.segment > self._same_upto:  # the end of an epoch that an earlier start has planned
            require_same(self._journal, position)
        self._same_upto = max(self._same_upto, position.segment)

    def after(self, before: Position, segment: int, writers: dict[int, str]) -> Position:
        """Return the position after a segment, for the reader of the one before.

        ``writers`` has who wrote it, where that is known. Raises ``JournalError``, ``UnavailableError``.
        """
        writer = writers.get(segment) or self._look(segment).writer
        self._same_upto = max(self._same_upto, segment)
        return Position(before.journal, before.reader, segment, writer)

    def newest(self, after: int = 0) -> int:
        """Return the newest segment that is durable.

        Raises ``JournalError`` where the journal went back ``after`` a segment was read: its rows would be passed over;
        ``SupersededError`` where another query reads it now.
        """
        if self._claim is not None:
            self._claim.require_newest()
        newest = self._durable() if self._durable is not None else self._looked()
        if newest < after:
            raise _went_back(self._journal, newest, after)
        moment = time.monotonic()
        if newest > after:
            self._came_at = moment
        elif moment - self._came_at >= _STOOD_S:
            self._came_at = moment
            self.stand(after)
        return newest

    def stand(self, segment: int) -> None:
        """Note that the query has read up to the newest segment and asks for more, for a writer whose journal is full.

        Spark calls ``commit`` only when it plans an epoch: without a further segment, what was read would stay, and the
        journal full. Idempotent; where it cannot be noted, a later call does that.
        """
        if self._noted is None or self._noted.stood == segment:
            return
        standing = msgspec.structs.replace(self._noted, stood=segment)
        with suppress(UnavailableError):
            self._journal.note_reading(standing)
            self._noted = standing

    def _looked(self) -> int:
        """Look into the folder. An epoch must not stand on a segment whose writer was killed before it was durable."""
        segments = self._journal.numbers(SEGMENTS)
        if not segments:
            return max(self._journal.numbers(FOLDS), default=0)
        if segments[-1] > self._synced:
            self._journal.store.sync(name_of(SEGMENTS, segments[-1]))
            self._synced = segments[-1]
        return segments[-1]

    def limited(self, start: int, end: int, rows_max: int, known: dict[int, int]) -> int:
        """Return the segment up to which at most ``rows_max`` rows lie, but at least one segment."""
        taken, last = 0, start
        for number in range(start + 1, end + 1):
            taken += known[number] if number in known else self._look(number, end).rows
            if last > start and taken > rows_max:
                break
            last = number
        return last

    def commit(self, end: int) -> None:
        """Note what is read for good: what the call before named, whose epoch and the next are in the checkpoint.

        That call may be one of an earlier start: a query that takes one epoch a start makes one call in each.
        """
        before, self._committed = self._committed, end
        if self._claim is not None:
            self._claim.require_newest()
        there = self._journal.reading()
        if there is None:
            return
        # Not what is there, where this one has noted before: an older query may have noted it late.
        reading = self._noted or self._claimed(there)
        if before is None:
            before = self._named_before(reading, end)
        noted = msgspec.structs.replace(reading, upto=max(before, reading.upto), named=end)
        if noted != there:
            self._journal.note_reading(noted)
        self._noted = noted
        self._seen = {number: seen for number, seen in self._seen.items() if number > noted.upto}

    def _claimed(self, reading: Reading) -> Reading:
        """Claim the journal, once, and note that what is known of its reading holds; return it under this claim."""
        if self._claim is None:
            self._claim = Claim.put(self._journal)
        own = msgspec.structs.replace(reading, claim=self._claim.number)
        if own != self._noted:
            self._journal.note_reading(own)
            self._noted = own
        return own

    def _named_before(self, reading: Reading, end: int) -> int:
        """Return what an earlier start has named; 0 where this one began before that, or names the same again."""
        began = self._required
        is_passed = began is not None and reading.named <= began.segment and reading.named < end
        return reading.named if is_passed else 0

    def _look(self, number: int, upto: int = 0) -> Segment:
        """Return what a segment says of itself; of those ``upto`` another, as many are asked for as a store takes."""
        if number not in self._seen:
            some = [number, *range(number + 1, min(upto + 1, number + self._journal.store.abreast))]
            heads = self._journal.at_once(lambda each: self._journal.head(each, self._identity), some)
            self._seen.update(zip(some, heads, strict=True))
        return self._seen[number]
