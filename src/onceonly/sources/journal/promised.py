"""What those who write a journal promise up to it, and how long that counts: until what they wrote is read."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from onceonly.sources.journal.segments import FOLDS, Receiving

if TYPE_CHECKING:
    from onceonly.sources.journal.place import Journal

log = logging.getLogger("onceonly")


def promises(journal: Journal, after: int) -> tuple[str, ...]:
    """Return what a journal's receivers promise of all that follows a segment, none where they have not said so.

    Any process; only looks. Raises ``JournalError``, ``UnavailableError``.
    """
    after = max(after, *journal.numbers(FOLDS), 0)
    return tuple(each for each, upto in _ends(journal.receiving()) if not upto or upto > after)


def note_promise(journal: Journal, newest: int, promise: str, named: str) -> None:
    """Note what a new writer promises, beside what holds of segments up to the ``newest`` that may not be read.

    ``named`` is what it names rows by: where that is another than before, it is told. Raises ``JournalError``,
    ``UnavailableError``.
    """
    noted = journal.receiving()
    reading = journal.reading()
    read = reading.upto if reading is not None else 0
    ends = [(each, upto or newest) for each, upto in _ends(noted) if each != promise]
    ends = [(each, upto) for each, upto in ends if upto > read] + [(promise, 0)]
    now = Receiving(
        promises=tuple(each for each, _ in ends), upto=tuple(upto for _, upto in ends), named=named
    )
    if now != noted:
        journal.note_receiving(now)
    if newest and noted.named not in {None, named}:
        log.warning(
            "The journal %s remembers rows by id=%s, and from now on by id=%s: one that was taken before and comes "
            "again is taken as a new one.",
            journal.where, noted.named, named,
        )  # fmt: skip


def _ends(noted: Receiving) -> list[tuple[str, int]]:
    """Return each promise and the newest segment that stands under it, 0 where one may still be written."""
    return list(zip(noted.promises, noted.upto or (0,) * len(noted.promises), strict=False))
