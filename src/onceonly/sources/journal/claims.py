"""Which start of which query reads a journal: the newest claim counts, also where no lock reaches the other.

A lock of the kernel refuses a second query sooner and by name. Stores have none, and some shared mounts keep theirs
to one machine: there, the older of two queries stops, and what it notes afterwards counts for nothing.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Final, Self

from onceonly.errors import SupersededError
from onceonly.sources.journal.segments import CLAIMS, Claimed, encode_note, name_of
from onceonly.stores.port import put_once

if TYPE_CHECKING:
    from onceonly.sources.journal.place import Journal

_LOOK_S: Final = 1.0


class Claim:
    """A reader's claim to a journal. Driver; one thread."""

    def __init__(self, journal: Journal, number: int) -> None:
        self._journal = journal
        self._looked_at = time.monotonic()
        self.number = number

    @classmethod
    def put(cls, journal: Journal) -> Self:
        """Claim a journal: whoever read it before stops. Raises ``UnavailableError``."""
        if journal.folder is not None:  # elsewhere a put makes its folder
            journal.store.prepare((CLAIMS.rstrip("/"),))
        own = encode_note("claim", Claimed(reader=secrets.token_hex(8)))
        number = newest_claim(journal) + 1
        while put_once(journal.store, name_of(CLAIMS, number), own) != own:
            number += 1
        for before in journal.numbers(CLAIMS):
            if before < number:
                journal.store.delete(name_of(CLAIMS, before))
        return cls(journal, number)

    def require_newest(self) -> None:
        """See now and then that nobody has claimed it since. Raises ``SupersededError``."""
        moment = time.monotonic()
        if moment - self._looked_at < _LOOK_S:
            return
        if newest_claim(self._journal) > self.number:
            raise SupersededError(
                f"another query, or another start of this one, reads the journal {self._journal.where} now; this one "
                "has stopped",
                next_step="nothing, if the newer one is wanted; else stop that one and start this again. Two queries "
                "need two journals",
            )
        self._looked_at = moment


def newest_claim(journal: Journal) -> int:
    """Return the number of the newest claim, 0 where there is none."""
    return max(journal.numbers(CLAIMS), default=0)
