"""How often a query was started, which its log does not keep: ``onceonly/starts.json``, for people, best effort."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from onceonly.errors import LogError
from onceonly.log import files
from onceonly.log.place import notes_store

NAME: Final = "starts.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """``count`` of starts; ``began`` is when the newest run did, in seconds since 1970."""

    count: int = 0
    began: float = 0.0


def count_start(location: str, *, began: float) -> Starts:
    """Count a start whose log is there, once for each ``began``. Driver. Raises ``UnavailableError``."""
    before = read_starts(location)
    if before.began == began:
        return before
    after = Starts(count=before.count + 1, began=began)
    notes_store(location).replace(NAME, files.encode("starts", after))
    return after


def read_starts(location: str) -> Starts:
    """Return it; a damaged one counts for nothing. Any process. Raises ``UnavailableError``."""
    try:
        return files.read(notes_store(location), NAME, kind="starts", into=Starts) or Starts()
    except LogError:
        return Starts()
