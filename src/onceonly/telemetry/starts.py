"""How often a query was started, which its log does not keep: ``onceonly/starts.json``, for people, best effort."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from onceonly.errors import LogError
from onceonly.log import files
from onceonly.log.place import FOLDER, log_store
from onceonly.stores.folder import UnsyncedStore
from onceonly.stores.opened import address_of, folder_of

if TYPE_CHECKING:
    from onceonly.stores.port import RewritableStore

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
    _store(location).replace(NAME, files.encode("starts", after))
    return after


def read_starts(location: str) -> Starts:
    """Read it; a damaged one counts for nothing. Any process. Raises ``UnavailableError``."""
    try:
        return files.read(_store(location), NAME, kind="starts", into=Starts) or Starts()
    except LogError:
        return Starts()


def _store(location: str) -> RewritableStore:
    folder = folder_of(address_of(location))
    return log_store(location) if folder is None else UnsyncedStore(folder / FOLDER)
