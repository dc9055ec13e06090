"""Data files in an object store, which has neither folders nor renames. The note of an attempt is its fence.

::

    onceonly/{query}/{sink}/_open/7.0.5be3…     ``open``: it may be voted for and committed; ``void``: never any more

An attempt puts its note first, if absent, and votes only where that says ``open`` once all files are there. A sweep
puts ``void`` over it, removes the files, and the note last, so that a sweep that was cut off is ended by the next. A
commit adds no files whose note does not say ``open``; so a put that nobody waits for any more, and that lands after a
sweep, makes nothing whole: it leaves an object that no log names, as a vacuum finds it.
"""

from __future__ import annotations

import errno
import io
import time
from typing import TYPE_CHECKING, BinaryIO, cast
from urllib.parse import unquote

from onceonly import background
from onceonly.errors import ConfigurationError, SetupError
from onceonly.families.loaded.load import OPEN, epoch_of, folder_of
from onceonly.stores.address import parse
from onceonly.stores.opened import open_store
from onceonly.stores.port import put_once
from onceonly.stores.rights import require_rights

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onceonly.families.loaded.load import DataFile, Load
    from onceonly.stores.address import Address
    from onceonly.stores.objects import ObjectStore
    from onceonly.stores.streams import ObjectStream

OPEN_MAX = 8
"""How many files of one attempt are open at a time: each keeps a part in memory, and one that is on its way."""
LOOK_S = 10.0
"""How often a writer looks whether it was swept. It looks once more before it votes, and only that must be."""
_STANDS, _VOID = b"open", b"void"
_TRIED = f"onceonly/{OPEN}"
"""Where it is tried whether the store is fit: below a name that readers and a vacuum pass over."""


class ObjectHome:
    """What is below an address; fulfils ``onceonly.families.loaded.places.Home``."""

    def __init__(self, address: Address, store: ObjectStore) -> None:
        self.address, self.store = address, store

    @classmethod
    def at(cls, address: Address) -> ObjectHome:
        """Open it. Nothing is asked yet. Raises ``ConfigurationError``, ``SetupError``."""
        from onceonly.stores.objects import ObjectStore

        store = open_store(address)
        if not isinstance(store, ObjectStore):
            raise SetupError(f"{address.shown} is in no object store", next_step="report this")
        return cls(address, store)

    @property
    def text(self) -> str:
        return self.address.location

    @property
    def identity(self) -> str:
        return self.address.text

    def prepare(self) -> None:
        """See that the store refuses to put over a name, and grants what is needed. Raises ``ConfigurationError``."""
        self.store.below(_TRIED).prepare(())

    def require_rights(self, app: str, *, user: int | None, who: str) -> str:  # noqa: ARG002  a store has its own
        return require_rights(self.address, [f"{app}/", f"{app}/{OPEN}/"])

    def begin(self, app: str, name: str) -> ObjectStage:
        return ObjectStage(self, app, name)

    def whole(self, loads: Sequence[Load]) -> set[str]:
        gone = self.gone(loads)

        def is_whole(load: Load) -> bool:
            # What a sweep takes first, last.
            return load.name not in gone and self.is_open(load.app, load.name)

        told = background.spread("onceonly-loaded", is_whole, list(loads), threads_max=self.store.abreast)
        return {load.name for load, is_there in zip(loads, told, strict=True) if is_there}

    def gone(self, loads: Sequence[Load]) -> set[str]:
        # All of an epoch by one list.
        folders = {load.folder.rpartition("/")[0] for load in loads}
        listed: dict[str, int] = {}
        for folder in folders:
            listed |= self.store.sizes(f"{folder}/")

        def is_gone(load: Load) -> bool:
            return any(self._size(f"{load.folder}/{file.path}", listed) != file.bytes for file in load.files)

        told = background.spread("onceonly-loaded", is_gone, list(loads), threads_max=self.store.abreast)
        return {load.name for load, is_so in zip(loads, told, strict=True) if is_so}

    def sizes(self, folder: str, paths: Sequence[str]) -> list[int | None]:
        listed = self.store.sizes(f"{folder}/")
        return [self._size(f"{folder}/{path}", listed) for path in paths]

    def open(self, path: str) -> BinaryIO:
        data = self.store.get(path)
        if data is None:
            raise FileNotFoundError(errno.ENOENT, "it is gone", self.store.where(path))
        return io.BytesIO(data)

    def known(self, names: Iterable[str]) -> set[str]:
        begin = f"{self.address.text}/"
        found = set()
        for name in names:
            try:
                place = parse(name, what="a data file").text
            except ConfigurationError:
                continue
            if place.startswith(begin):
                found.add(self.called(place.removeprefix(begin)))
        return found

    def called(self, path: str) -> str:
        # Some libraries write a space as %20, and leave a percent sign as it is. No two files differ in that alone.
        return unquote(path)

    def is_open(self, app: str, name: str) -> bool:
        """Tell whether an attempt may be voted for, and committed."""
        return self.store.get(_mark(app, name)) == _STANDS

    def unmark(self, app: str, names: Iterable[str]) -> None:
        marks = [_mark(app, name) for name in names]
        background.spread("onceonly-loaded", self.store.delete, marks, threads_max=self.store.abreast)

    def sync_marks(self, app: str) -> None:
        """An object that is gone is durably so."""

    def marked(self, app: str) -> list[str]:
        names = [name.rpartition("/")[2] for name in self.store.list_names(f"{app}/{OPEN}/")]
        return sorted(name for name in names if epoch_of(name) is not None)

    def below(self, folder: str) -> list[str]:
        return sorted(self.store.list_folders(f"{folder}/"))

    def by_hand(self, app: str, name: str) -> tuple[float | None, str]:
        found = self.store.head(_mark(app, name))
        since_s = None if found is None else found["last_modified"].timestamp()
        files, mark = f"{folder_of(app, name)}/", _mark(app, name)
        return since_s, f"deleting what is below {self.store.where(files)}, and {self.store.where(mark)},"

    def drop(self, folder: str) -> None:
        above, _, name = folder.rpartition("/")
        self.store.replace(_mark(above.rpartition("/")[0], name), _VOID)
        files = list(self.store.sizes(f"{folder}/"))
        background.spread("onceonly-loaded", self.store.delete, files, threads_max=self.store.abreast)

    def _size(self, path: str, listed: dict[str, int]) -> int | None:
        if path in listed:  # what a list does not tell yet is asked for
            return listed[path]
        found = self.store.head(path)
        return None if found is None else found["size"]


class ObjectStage:
    """The objects of one attempt; fulfils ``onceonly.families.loaded.places.Stage``."""

    open_max = OPEN_MAX

    def __init__(self, home: ObjectHome, app: str, name: str) -> None:
        self._home, self._app, self._name = home, app, name
        self._folder = folder_of(app, name)
        self._looked = time.monotonic()
        self._begun: list[str] = []
        put_once(home.store, _mark(app, name), _STANDS)

    @property
    def where(self) -> str:
        return self._home.store.where(self._folder)

    def stands(self) -> bool:
        if time.monotonic() - self._looked < LOOK_S:
            return True
        self._looked = time.monotonic()
        return self._home.is_open(self._app, self._name)

    def is_shared(self) -> bool:
        """Say no: there are no folders that could be missing."""
        return False

    def create(self, path: str) -> BinaryIO:
        name = f"{self._folder}/{path}"
        self._begun.append(name)
        return cast("BinaryIO", self._home.store.begin(name))

    def finish(self, file: BinaryIO) -> None:
        file.close()

    def drop_file(self, file: BinaryIO) -> None:
        cast("ObjectStream", file).drop()

    def seal(self, files: Sequence[DataFile]) -> bool:
        found = self._home.sizes(self._folder, [file.path for file in files])
        wrong = [file for file, size in zip(files, found, strict=True) if size != file.bytes]
        # The note last: a sweep after this look stands under a link, beside which this vote does not count.
        if not self._home.is_open(self._app, self._name):
            return False
        if wrong:
            raise OSError(errno.EIO, "it is not as long as it was written", f"{self.where}/{wrong[0].path}")
        return True

    def drop(self) -> None:
        self._home.drop(self._folder)
        # What a list may not tell yet is known here.
        for name in self._begun:
            self._home.store.delete(name)
        self._home.unmark(self._app, [self._name])


def _mark(app: str, name: str) -> str:
    return f"{app}/{OPEN}/{name}"
