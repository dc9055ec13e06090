"""A target in folders: a disk, a mount, HDFS. A file waits under a hidden name, and a commit moves it."""

from __future__ import annotations

import errno
import shlex
from typing import TYPE_CHECKING, BinaryIO

from onceonly.model import AlreadyCommitted, Committed, Outcome
from onceonly.ports.standing import Stands
from onceonly.sinks.files.paths import RemotePath, staging_folder
from onceonly.sinks.files.staging import leftovers, placing, probing
from onceonly.sinks.files.staging.staged import committing, staged_name, state_of
from onceonly.sinks.files.targets.port import UnsureError
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from onceonly.model import Handle
    from onceonly.ports import Leftover, QueryContext
    from onceonly.sinks.files.manifests.manifest import DataFile
    from onceonly.sinks.files.options import FilesOptions
    from onceonly.sinks.files.prepared import Prepared, Upload
    from onceonly.sinks.files.store import Store

OPEN_MAX = 32


class FolderTarget:
    """A target on a file system; fulfils ``onceonly.sinks.files.targets.port.Target``."""

    def __init__(self, store: Store, options: FilesOptions) -> None:
        self.files = store
        self._options = options

    def make_ready(self, context: QueryContext) -> bool:
        return probing.make_ready(self.files, self._options, context)

    def stage(self, query: str, sink: str, transaction: str) -> FolderStage:
        root = staging_folder(self._options.staging, query, sink)
        return FolderStage(self.files, root / transaction, within=self._options.target)

    def commit(self, prepared: Prepared) -> Outcome:
        """Move what waits. The names need not be durable yet: a loss of power gives the temporary ones back."""
        store = self.files
        folder = placing.begin(store, prepared)
        if folder is None:
            placing.see_without_folder(store, prepared)
            return AlreadyCommitted()
        missing = placing.unpublished(store, prepared, folder)
        for file, place in missing.items():
            placing.publish(store, prepared, folder, file, place)
        return Committed() if missing else AlreadyCommitted()

    def published(self, prepared: Prepared) -> list[DataFile]:
        return placing.published(self.files, prepared)

    def standing(self, prepared: Prepared) -> tuple[Stands, str]:
        waits = self.files.size(prepared.staging) is not None
        begun = self.files.size(committing(prepared.staging)) is not None
        # What a reader has taken away by now was published all the same: the folder of a commit tells.
        count, all_ = len(placing.published(self.files, prepared)), len(prepared.files)
        files = f"{count} of its {n(all_, 'file has')} the final name"
        if count == all_:
            return Stands.COMMITTED, f"{files}, and the manifest of its epoch is yet to come"
        if count or begun:
            return Stands.UNKNOWN, f"{files}: a commit was broken off, and only a commit ends it"
        if waits:
            return Stands.OPEN, f"it waits in {prepared.staging}; {files}, and no manifest lists them"
        return Stands.GONE, f"{files}, no manifest lists them, and nothing of it waits"

    def hindrance(self, prepared: Prepared) -> str:
        found = placing.unpublishable(self.files, prepared)
        if found is None and self.files.size(committing(prepared.staging)) is None:
            try:
                placing.see_without_folder(self.files, prepared)
            except UnsureError as unsure:
                return str(unsure)
        return found or ""

    def recover(self, context: QueryContext) -> list[Leftover]:
        return leftovers.recover(self.files, self._options, context)

    def is_begun(self, folder: Path) -> bool:
        return state_of(folder.name)[1] == "committing"

    def by_hand(self, folder: Path) -> tuple[float, str]:
        remove = "hdfs dfs -rm -r" if isinstance(folder, RemotePath) else "rm -r"
        return self.files.age(folder), f"{remove} {shlex.quote(str(folder))} does"

    def abort(self, handle: Handle, *, root: Path | None) -> None:
        leftovers.abort(self.files, self._options, handle, root=root)


class FolderStage:
    """The folder of one transaction: the fence, as a sweep moves it away at once; fulfils ``Stage``."""

    open_max = OPEN_MAX

    def __init__(self, store: Store, folder: Path, *, within: Path) -> None:
        self.folder = folder
        self._store = store
        self._within = within

    def begin(self) -> None:
        root = self.folder.parent
        if self._within in root.parents:
            self._store.make_folder(root)
        # Else it must be there: a machine that does not share it would write to a folder of its own.
        self._store.make_fenced(self.folder)

    def see(self) -> None:
        if self._store.size(self.folder) is None:
            raise FileNotFoundError(errno.ENOENT, "it was removed", str(self.folder))

    def is_shared(self) -> bool:
        return self._store.size(self.folder.parent) is not None

    def create(self, path: str) -> BinaryIO:
        return self._store.create(self.folder / staged_name(path))

    def finish(self, file: BinaryIO) -> None:
        self._store.finish(file)

    def prepare(self, files: Sequence[DataFile]) -> tuple[Upload, ...]:
        for folder in (self.folder, self.folder.parent):
            self._store.sync_folder(folder)
        for file in files:
            self._look(file)
        return ()

    def drop(self) -> None:
        self._store.delete_folder(self.folder)

    def _look(self, file: DataFile) -> None:
        """See that a finished file is still there as it was written."""
        path = self.folder / staged_name(file.path)
        size = self._store.size(path)
        if size is None:
            raise FileNotFoundError(errno.ENOENT, "it was removed", str(path))
        if size != file.bytes:
            raise OSError(errno.EIO, f"it has {size} bytes, and {file.bytes} were written", str(path))
