"""Files for people beside the log, each named by when it began: the newest hundred of a kind. They decide nothing."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from onceonly.errors import LogError
from onceonly.log import files

if TYPE_CHECKING:
    from onceonly.model import Stamp
    from onceonly.stores.port import RewritableStore

T = TypeVar("T")
KEEP: Final = 100


class DatedFiles(Generic[T]):
    """``{folder}{at}-{id}.json`` in the store of a log; ``ids`` is a pattern of what an id may be."""

    def __init__(self, store: RewritableStore, folder: str, *, kind: str, into: type[T], ids: str) -> None:
        self._store = store
        self._folder = folder
        self._kind = kind
        self._into = into
        self._name = re.compile(rf"{folder}\d{{8}}T\d{{9}}Z-{ids}\.json")

    def newest(self, limit: int = KEEP) -> list[T]:
        """Read the newest ones, newest first; a damaged one is left out. Raises ``UnavailableError``."""
        found: list[T] = []
        for name in self._names()[:limit]:
            with contextlib.suppress(LogError):
                value = files.read(self._store, name, kind=self._kind, into=self._into)
                found += [value] if value is not None else []
        return found

    def _write(self, at: Stamp, id_: str, value: T) -> None:
        """Write, or write again; drop what is too old. Raises ``UnavailableError``."""
        moment = re.sub(r"[-:.]", "", at.at)
        self._store.replace(f"{self._folder}{moment}-{id_}.json", files.encode(self._kind, value))
        for name in self._names()[KEEP:]:
            self._store.delete(name)

    def _names(self) -> list[str]:
        return sorted(filter(self._name.fullmatch, self._store.list_names(self._folder)), reverse=True)
