"""What a target tells a person who asks: of a transaction, of what is open in it, of what it holds. Frozen."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

COUNTED: Final = "of a row, no more is read than the epoch that it names"
"""Why rows are not added up that are counted."""
NO_COLUMNS: Final = "the log has not noted its columns"
"""Why rows cannot be read back of which nobody says what they were."""


class Stands(enum.StrEnum):
    """What a target has of a transaction, as far as it can tell without ending it."""

    OPEN = "open"
    COMMITTED = "committed"
    GONE = "gone"
    """Not committed, and nothing is left that could be."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a target says of a transaction to a person who asks. Nothing is decided by it.

    ``told`` is in a sentence, without its full stop, what the target said; ``blocks`` what others wait for because of
    it, ``until`` how long it lives; these two are empty where they are not known. ``hindered`` says of an open one why
    it cannot be committed as it is (a part of it was removed), and of one that is gone that a commit gives no proof of
    it, so that a start ends in doubt; else it is empty.
    """

    stands: Stands
    told: str
    blocks: str = ""
    until: str = ""
    hindered: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hanging:
    """What is open in a target, whoever's it is. ``told`` and ``blocks`` are as those of a ``Standing``.

    ``transaction`` is empty where it has no name that is known, ``query`` where nothing tells whose it is, as ``sink``,
    the name that the query has for its sink; ``command`` is what ends it past onceonly, where that is right, and
    ``if_lost`` a clause that says what ends it where the query's checkpoint is gone for good. Where ``is_open`` is
    false, the target only remembers the query; None says that this user may not look.
    """

    told: str
    transaction: str = ""
    query: str = ""
    sink: str = ""
    blocks: str = ""
    command: str = ""
    if_lost: str = "its time-out ends it"
    is_open: bool | None = True

    @classmethod
    def unlisted(cls, query: str, folder: str) -> Hanging:
        """Return what is told of a folder of a query that this user may not list."""
        return cls(
            query=query,
            told=f"this user may not list {folder}",
            if_lost=f"the owner of {folder} removes it",
            is_open=None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a target holds, as far as it lets somebody look: how many rows, and in sentences what is wrong with it.

    ``checksum`` is that of the rows as they were read back (``rows.checksum``), empty where they were not.
    ``unread`` says why not, or why another checksum than that of what was written proves no change. ``replaced`` says
    why rows that were written may stand no more, though nobody has removed them.
    """

    rows: int
    wrong: tuple[str, ...] = ()
    checksum: str = ""
    unread: str = ""
    replaced: str = ""


@dataclass(frozen=True, slots=True)
class Untold:
    """Why a target does not tell what it holds, in a clause."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a transaction has in one partition of its target; ``partition`` is empty where that has none.

    ``rows`` is None where the handle does not say it, ``bytes`` are those of its files, ``first`` is the offset of its
    first row.
    """

    partition: str
    rows: int | None = None
    bytes: int | None = None
    first: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenBack:
    """What a target has taken back, or would: its files, and in what entry of its log that was, where it has one."""

    files: tuple[str, ...]
    entry: str = ""
