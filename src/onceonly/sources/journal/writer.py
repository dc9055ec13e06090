"""Writing a journal: segments under the next number, ids that were seen, and taking away what was read.

A segment is durable before the feed is told. Its number is given once (``put_once``), so that of two writers only one
can go on, also where no lock keeps them apart. What the query has read for good is folded and then deleted, by the
writer alone.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

import msgspec

from onceonly import failpoints
from onceonly.errors import JournalError, OnceonlyError, SupersededError, UnavailableError
from onceonly.sources.journal import window
from onceonly.sources.journal.claims import newest_claim
from onceonly.sources.journal.lock import WAIT_S, Hold
from onceonly.sources.journal.place import AGAIN, strange
from onceonly.sources.journal.promised import note_promise
from onceonly.sources.journal.segments import (
    CLAIMS,
    FOLDS,
    SEGMENTS,
    Fold,
    Segment,
    arrow,
    decode_again,
    decode_fold,
    encode,
    encode_again,
    encode_fold,
    hash_of,
    name_of,
    number_of,
)
from onceonly.sources.journal.window import Clock, Window
from onceonly.stores.port import put_once

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    import pyarrow as pa

    from onceonly.sources.journal.options import Limits
    from onceonly.sources.journal.place import Journal
    from onceonly.sources.journal.segments import Reading

log = logging.getLogger("onceonly")

ID: Final = "id"
_BLOCK: Final = 4096
"""What a file takes at least."""
_TIDY_S: Final = 1.0
_TIDY_MANY: Final = 64
_TIDY_MOST: Final = 4096
_TIDY_LATEST_S: Final = 10.0
_AGAIN_PARTS: Final = 20
"""In each of so many parts of the window, what came again is made durable once at most."""


class Writer:
    """The one writer of a journal. One thread; ``newest``, ``rows`` and ``writers`` may be read by others."""

    def __init__(self, journal: Journal, limits: Limits, identity: str, hold: Hold) -> None:
        self._journal = journal
        self._store = journal.store
        self._limits = limits
        self._identity = identity
        self._hold = hold
        self._name = secrets.token_hex(8)
        self.clock = Clock()
        """By which ids are forgotten."""
        self._window = Window(limits.window_s, self.clock.seconds)
        self._bytes: dict[int, int] = {}
        self._backlog = 0
        self._folds: list[int] = []
        self._tidied_at = self._folded_at = time.monotonic()
        self._is_again_due = False
        """Whether ids that came again are remembered in memory alone for so long."""
        self._again_at = -limits.window_s
        self._reading: Reading | None = None
        """What the query had noted when that was looked at last."""
        self.newest = 0
        """The newest durable segment."""
        self.rows: dict[int, int] = {}
        """How many rows each segment has."""
        self.writers: dict[int, str] = {}
        """Who wrote each segment."""
        self.mark: str | None = None
        """Where the feed goes on, in its own words."""

    @classmethod
    def open(
        cls,
        journal: Journal,
        limits: Limits,
        *,
        feed: str,
        of: str,
        promise: str = "",
        named: str = "",
        wait_s: float = WAIT_S,
    ) -> Self:
        """Take a journal to write it, and make it where there is none; learn what is in it.

        ``promise`` is what the feed keeps up to it, and ``named`` what it names rows by, both for its readers and for
        later receivers.

        Raises ``ConfigurationError`` where another process writes it, ``JournalError`` for one that is damaged, of a
        newer version or of another feed, ``UnavailableError``.
        """
        identity = journal.make(feed, of).journal
        hold = Hold.take(
            journal.lock("writer"),
            refusal=f"another process writes the journal {journal.where}",
            next_step="stop that job or `onceonly journal run`, or give this one a journal of its own",
            wait_s=wait_s,
        )
        try:
            writer = cls(journal, limits, identity, hold)
            writer._learn()
            if promise:
                note_promise(journal, writer.newest, promise, named)
        except BaseException:  # an interrupt, too: this process would lock its next writer out
            hold.close()
            raise
        return writer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the journal go. Idempotent."""
        with suppress(OnceonlyError):  # they are remembered for shorter then
            self._keep_again(now=True)
        self._hold.close()

    @property
    def backlog(self) -> int:
        """How many bytes the segments take that are not deleted yet."""
        return self._backlog

    def is_full(self) -> bool:
        """Say whether nothing more may be taken from the feed, after what was read is taken away.

        Where the query has read all that is there, one segment more may: only its next epochs give up what it has read.
        """
        if self.backlog < self._limits.backlog_bytes:
            return False
        self.tidy(now=True)
        return self.backlog >= self._limits.backlog_bytes and not self._is_awaited()

    def lacks_space(self) -> bool:
        """Say whether the disk has no room, which the query makes as it reads what is there.

        Raises ``UnavailableError`` where it has read all.
        """
        try:
            self._require_space(0)
        except UnavailableError:
            self.tidy(now=True)
            if not self._backlog or self._is_awaited():
                raise
            return True
        return False

    def append(self, rows: pa.Table, mark: str | None = None, suspects: Sequence[bool] | None = None) -> int:
        """Write rows as one segment, without those whose id is remembered; return how many were new. Durable on return.

        ``suspects`` says of each row whether its id is looked up, None for all.

        Raises ``SupersededError`` where another writer has this number, ``UnavailableError`` where nothing was written
        or nobody can tell: the feed is not told then, and the next start looks.
        """
        self.tidy()
        rows, hashes = self._without_known(rows, suspects)
        if mark is not None:
            self.mark = mark
        if not rows.num_rows:
            return 0
        self._require_space(rows.nbytes)
        number = self.newest + 1
        at_s = self.clock.seconds()
        head = Segment(
            journal=self._identity,
            number=number,
            writer=self._name,
            mark=self.mark,
            at_s=at_s,
            rows=rows.num_rows,
        )
        data = encode(head, rows)
        failpoints.hit("journal.before_put")
        if put_once(self._store, name_of(SEGMENTS, number), data) != data:
            raise SupersededError(
                f"another process has written segment {number} of the journal {self._journal.where}; this one has "
                "stopped",
                next_step="nothing, if the newer one is wanted; else stop that one and start this again",
            )
        self._window.learn(number, hashes, at_s)
        self._note(head, rows.num_rows, len(data))
        self.newest = number
        failpoints.hit("journal.after_put")
        return int(rows.num_rows)

    def tidy(self, *, now: bool = False) -> None:
        """Take away what the query will never ask for again: fold the ids, then delete. Idempotent.

        Raises ``JournalError`` where the journal was dropped.
        """
        moment = time.monotonic()
        if not now and moment - self._tidied_at < _TIDY_S:
            return
        self._tidied_at = moment
        self._window.forget()
        self._keep_again()
        reading = self._reading = self._journal.reading()
        if reading is None:
            self._require_there()
        # The newest stays until another is newer: it needs no fold to be known.
        upto = min(reading.upto, self.newest - 1) if reading is not None else 0
        # Not all at once of a long journal that was read at last: its feed would be left alone meanwhile.
        due = [number for number in self._bytes if number <= upto][:_TIDY_MOST]
        late = moment - self._folded_at >= _TIDY_LATEST_S
        if due and (now or late or len(due) >= _TIDY_MANY) and not self._is_outdated(reading):
            self._fold(due)
            self._folded_at = moment

    def _require_there(self) -> None:
        """See that nobody has dropped the journal, which no lock hinders on a store: what it took would be lost."""
        found = self._journal.identity()
        if found is None or found.journal != self._identity:
            raise JournalError(
                f"the journal {self._journal.where} was dropped, or deleted, while this process writes it",
                next_step="stop what writes a journal before it is dropped; run `onceonly journal drop` again if "
                "segments are left, and start anew",
            )

    def _is_awaited(self) -> bool:
        """Say whether the query waits for a segment, as it has read all."""
        reading = self._reading
        return reading is not None and reading.stood >= self.newest and not self._is_outdated(reading)

    def _is_outdated(self, reading: Reading | None) -> bool:
        """Say whether a query has noted it that another one has taken the journal from: it may have read further."""
        return reading is not None and reading.claim < newest_claim(self._journal)

    def _fold(self, due: list[int]) -> None:
        last = max(due)
        self._keep_again(now=True)
        kept = self._window.between(min(due), last)
        failpoints.hit("journal.before_fold")
        fold = Fold(journal=self._identity, number=last, mark=self.mark, at_s=self.clock.seconds())
        name = name_of(FOLDS, last)
        data = encode_fold(fold, kept)
        if put_once(self._store, name, data) is None:
            raise UnavailableError(
                f"{self._store.where(name)} was taken away as it was written",
                next_step="leave the journal's folder alone, and start again",
            )
        self._folds.append(last)
        failpoints.hit("journal.after_fold")
        self._delete(due)
        for number in due:
            self._backlog -= self._bytes.pop(number)
            self.rows.pop(number, None)
            self.writers.pop(number, None)
        self._drop_folds()

    def _keep_again(self, *, now: bool = False) -> None:
        """Make durable what came again, so that the next writer remembers it as long. Idempotent."""
        is_late = time.monotonic() - self._again_at >= self._limits.window_s / _AGAIN_PARTS
        if not self._is_again_due or not (now or is_late):
            return
        self._store.replace(AGAIN, encode_again(self._identity, self._window.came_again()))
        self._again_at, self._is_again_due = time.monotonic(), False

    def _drop_folds(self) -> None:
        """Delete folds of which nothing is remembered, but for the newest, which keeps the number."""
        oldest = self._window.oldest()
        for number in self._folds[:-1]:
            if oldest is None or number < oldest:
                self._store.delete(name_of(FOLDS, number))
                self._folds.remove(number)

    def _learn(self) -> None:
        """Read what is there. The newest segment may not be durable yet, as its writer may have been killed there."""
        folded = 0
        for number in self._journal.numbers(FOLDS):
            name = name_of(FOLDS, number)
            data = self._store.get(name)
            if data is None:
                continue
            fold, hashes = decode_fold(data, where=self._store.where(name))
            if fold.journal != self._identity:
                raise strange(self._store.where(name))
            self._window.learn(number, hashes, self.clock.after(fold.at_s))  # 0 of an older version
            self._folds.append(number)
            folded, self.mark = number, fold.mark
        self.newest = folded
        if folded:
            self._store.sync(name_of(FOLDS, folded))
        segments = self._journal.numbers(SEGMENTS)
        self._delete([number for number in segments if number <= folded])
        left = [number for number in segments if number > folded]
        if gone := next((at for at, number in enumerate(left, folded + 1) if number != at), 0):
            raise JournalError(
                f"segment {gone} of the journal {self._journal.where} is gone, and later ones are there",
                next_step="restore the folder as a whole; or drop the journal, which gives up what is in it",
            )
        for head, hashes, size in self._journal.at_once(self._read, left):
            self._window.learn(head.number, hashes, self.clock.after(head.at_s))
            self._note(head, head.rows, size)
            self.newest, self.mark = head.number, head.mark
        self._learn_again()
        if self.newest > folded:
            self._store.sync(name_of(SEGMENTS, self.newest))
        claim = newest_claim(self._journal)
        # Not of a newer claim: a query may be putting it at this moment.
        self._store.drop_leftovers(
            lambda name: (
                number_of(name) < claim if name.startswith(CLAIMS) else number_of(name) <= self.newest
            )
        )

    def _read(self, number: int) -> tuple[Segment, list[bytes], int]:
        """Return what a segment says of itself, its ids, and the bytes that it takes. Any thread."""
        head, rows, size = self._journal.read(number, self._identity)
        hashes = [each for each in _hashes(rows) if each is not None]
        return msgspec.structs.replace(head, rows=rows.num_rows), hashes, size

    def _delete(self, numbers: Sequence[int]) -> None:
        self._journal.at_once(self._store.delete, [name_of(SEGMENTS, each) for each in numbers])

    def _learn_again(self) -> None:
        """Learn what came again; some of it is in folds and segments, of before or of after that."""
        data = self._store.get(AGAIN)
        if data is None:
            return
        journal, came = decode_again(data, where=self._store.where(AGAIN))
        if journal != self._identity:
            raise strange(self._store.where(AGAIN))
        self.clock.after(max(came, default=0.0))
        for at_s, hashes in came.items():
            self._window.learn(window.AGAIN, hashes, at_s)

    def _note(self, head: Segment, rows: int, size: int) -> None:
        self._bytes[head.number] = max(size, _BLOCK)
        self._backlog += self._bytes[head.number]
        self.rows[head.number] = rows
        self.writers[head.number] = head.writer

    def _without_known(self, rows: pa.Table, suspects: Sequence[bool] | None) -> tuple[pa.Table, list[bytes]]:
        hashes = _hashes(rows)
        if not hashes:
            return rows, []
        news = self._window.news(hashes, suspects)
        if not all(news):
            rows = rows.filter(arrow().array(news))
            known = [each for each, new in zip(hashes, news, strict=True) if not new and each is not None]
            self._is_again_due |= self._window.again(known)
            self._keep_again()
        return rows, [each for each, new in zip(hashes, news, strict=True) if new and each is not None]

    def _require_space(self, size: int) -> None:
        folder = self._journal.folder
        if folder is None:
            return
        disk = os.statvfs(folder)
        free = disk.f_bavail * disk.f_frsize
        if free < size + 2 * self._limits.segment_bytes:
            raise UnavailableError(
                f"the disk of the journal {self._journal.where} is nearly full ({free} bytes are left): nothing was "
                "written, and nothing more is taken from the feed",
                next_step="make room on this disk, or lower backlogBytes, and start again",
            )


def _hashes(rows: pa.Table) -> list[bytes | None]:
    """Return the hash of each row's id, None for a row without; nothing where rows have none at all."""
    if ID not in rows.schema.names:
        return []
    ids = rows.column(ID).to_pylist()
    return [None if each is None else hash_of(each) for each in ids]
