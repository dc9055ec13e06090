"""Files for people beside the log, each named by when it began: the newest hundred of a kind. They decide nothing."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from onceonly import background
from onceonly.errors import LogError
from onceonly.log import files

if TYPE_CHECKING:
    from onceonly.model import Stamp
    from onceonly.stores.port import RewritableStore

T = TypeVar("T")
KEEP: Final = 100
_AHEAD: Final = timedelta(hours=1)
"""How far a clock of another machine may be ahead of this one's."""


class DatedFiles(Generic[T]):
    """``{folder}{at}-{id}.json`` in the store of a log; ``ids`` is a pattern of what an id may be."""

    def __init__(self, store: RewritableStore, folder: str, *, kind: str, into: type[T], ids: str) -> None:
        self._store = store
        self._folder = folder
        self._kind = kind
        self._into = into
        self._name = re.compile(rf"{folder}\d{{8}}T\d{{9}}Z-{ids}\.json")

    def newest(self, limit: int = KEEP) -> list[T]:
        """Read the newest ones, newest first; a damaged one is left out. Raises ``UnavailableError``.

        From a store, where each file waits long, several at the same time.
        """
        return self.newest_and_left(limit)[0]

    def newest_and_left(self, limit: int) -> tuple[list[T], int]:
        """Read as ``newest``, and say how many older ones there are besides."""
        names = self._names()
        found = background.spread("onceonly-read", self._read, names[:limit], threads_max=self._store.abreast)
        return [value for value in found if value is not None], len(names[limit:])

    def _read(self, name: str) -> T | None:
        try:
            return files.read(self._store, name, kind=self._kind, into=self._into)
        except LogError:
            return None

    def _get(self, at: Stamp, id_: str) -> T | None:
        """Read one, None where there is none. Raises ``LogError``, ``UnavailableError``."""
        return files.read(self._store, self._name_of(at, id_), kind=self._kind, into=self._into)

    def _write(self, at: Stamp, id_: str, value: T) -> None:
        """Write, or write again; drop what is too old. Raises ``UnavailableError``."""
        self._store.replace(self._name_of(at, id_), files.encode(self._kind, value))
        for name in self._names()[KEEP:]:
            self._store.delete(name)

    def _name_of(self, at: Stamp, id_: str) -> str:
        moment = re.sub(r"[-:.]", "", at.at)
        return f"{self._folder}{moment}-{id_}.json"

    def _names(self) -> list[str]:
        """List them, newest first.

        What a clock named that was far ahead comes last: it would push out all that is written until that day.
        """
        latest = f"{self._folder}{datetime.now(UTC) + _AHEAD:%Y%m%dT%H%M%S}999Z-~"
        found = filter(self._name.fullmatch, self._store.list_names(self._folder))
        return sorted(found, key=lambda name: (name <= latest, name), reverse=True)
