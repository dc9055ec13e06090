"""Writing and preparing one attempt at one slot. Executor; every file has a temporary name in a hidden folder.

::

    {staging}/{query}/{sink}/{transaction}/day=1/part-7-0-….parquet      the temporary name
    {target}/day=1/part-7-0-….parquet                                   the final one

The folder of the transaction is the fence: a sweep moves it away at once, and then a paused attempt finds no
place for another file, and no file that it could vote for.
"""

from __future__ import annotations

import contextlib
import socket
import uuid
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError, LogError, WriteFailedError
from onceonly.model import AlreadyCommitted, Committed, Guarantee, Handle, Mode
from onceonly.sinks.files import committer, partitions
from onceonly.sinks.files.checks import read_token
from onceonly.sinks.files.committer import Prepared
from onceonly.sinks.files.formats import CountingFile, encoder
from onceonly.sinks.files.ledger import Ledger
from onceonly.sinks.files.manifest import DataFile
from onceonly.sinks.files.paths import manifest_folder, staging_folder
from onceonly.sinks.files.store import unavailable, write_failed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from onceonly.ports import WriteContext
    from onceonly.sinks.files.options import FilesOptions
    from onceonly.sinks.files.store import Store

OPEN_MAX = 32
"""How many files of one attempt are open at a time: one for each partition folder that is being written."""
BUFFER_BYTES_MAX = 64 << 20
"""How much of one attempt waits in memory for its row groups."""
ROW_GROUP_BYTES = 32 << 20


class _OpenFile:
    """A file that is being written. ``path`` is its final path below the target."""

    def __init__(self, attempt: Attempt, path: str, schema: pa.Schema) -> None:
        self._store = attempt.store
        self.path = path
        self.rows = 0
        self.place = attempt.folder / path
        self._file = attempt.store.create(self.place)
        self._counted = CountingFile(self._file)
        self._encoder = encoder(self._counted, schema, attempt.options, who=attempt.name)

    @property
    def bytes(self) -> int:
        return self._counted.bytes

    @property
    def buffered(self) -> int:
        return self._encoder.buffered

    def add(self, batch: pa.RecordBatch) -> None:
        self._encoder.add(batch)
        self.rows += batch.num_rows

    def flush(self) -> None:
        self._encoder.flush()

    def finish(self) -> DataFile:
        """Write the end, make it durable and close it."""
        self._encoder.close()
        self._store.finish(self._file)
        return DataFile(self.path, self.bytes, self.rows, self._counted.checksum)

    def drop(self) -> None:
        """Close what must be closed. The encoder still writes its end, to nowhere."""
        self._counted.dropped = True
        with contextlib.suppress(OSError):
            self._encoder.close()
        with contextlib.suppress(OSError):
            self._file.close()


class Attempt:
    """One attempt's files. ``folder`` holds their temporary names."""

    def __init__(self, context: WriteContext, options: FilesOptions, store: Store) -> None:
        self.context = context
        self.options = options
        self.store = store
        self.target = Path(str(context.facts["target"]))
        self.transaction = f"{context.epoch}-{context.slot}-{uuid.uuid4().hex}"
        root = staging_folder(Path(str(context.facts["staging"])), context.query, context.sink)
        self.folder = root / self.transaction
        self._open: OrderedDict[str, _OpenFile] = OrderedDict()
        self._done: list[DataFile] = []
        self._folders: set[Path] = {root, self.folder}
        self._group_bytes = min(ROW_GROUP_BYTES, options.file_bytes_max)
        self._see_target()
        try:
            store.make_folder(root)
            store.make_fenced(self.folder)
        except OSError as error:
            raise write_failed(self.name, self.folder, error) from error

    @property
    def name(self) -> str:
        """What errors call it."""
        context = self.context
        return (
            f"query {context.query}, sink {context.sink}, epoch {context.epoch}, slot {context.slot}, "
            f"transaction {self.transaction}"
        )

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows. Memory is bounded by ``BUFFER_BYTES_MAX``, files by ``OPEN_MAX``."""
        for folder, rows in partitions.split(batch, self.options.partition_by, who=self.name):
            for piece in self._pieces(rows):
                try:
                    self._add(folder, piece)
                except OSError as error:
                    raise write_failed(self.name, self.folder / folder, error) from error

    def pre_commit(self) -> Handle:
        """Make every file durable under its temporary name. Afterwards any process can commit them.

        At least once, the files get their final names here, and the handle is for the manifest.
        """
        try:
            while self._open:
                self._finish(next(iter(self._open)))
            for folder in sorted(self._folders, reverse=True):
                self.store.sync_folder(folder)
            for file in self._done:
                if self.store.size(self.folder / file.path) != file.bytes:
                    raise FileNotFoundError(file.path)
        except OSError as error:
            raise write_failed(self.name, self.folder, error) from error
        prepared = Prepared(
            transaction=self.transaction,
            target=self.target,
            staging=self.folder,
            layout=str(self.context.facts["layout"]),
            files=tuple(self._done),
        )
        handle = prepared.handle()
        if self.context.guarantee is Guarantee.AT_LEAST_ONCE:
            outcome = committer.commit(self.store, self.target, handle)
            if not isinstance(outcome, Committed | AlreadyCommitted):
                raise WriteFailedError(
                    f"{self.name}: {outcome}", next_step="see to the target's file system; Spark tries again"
                )
        return handle

    def discard(self) -> None:
        """Drop the attempt's temporary files, best effort; what stays is swept."""
        for file in self._open.values():
            file.drop()
        self._open.clear()
        with contextlib.suppress(OSError):
            self.store.delete_folder(self.folder)

    def _pieces(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        step = max(1, rows.num_rows * self._group_bytes // max(rows.nbytes, 1))
        for begin in range(0, rows.num_rows, step):
            yield rows.slice(begin, step)

    def _add(self, folder: str, rows: pa.RecordBatch) -> None:
        file = self._open.get(folder)
        if file is None:
            while len(self._open) >= OPEN_MAX:
                self._finish(next(iter(self._open)))
            file = self._open[folder] = self._new(folder, rows.schema)
        self._open.move_to_end(folder)
        file.add(rows)
        if file.buffered >= self._group_bytes:
            file.flush()
        if file.bytes >= self.options.file_bytes_max:
            self._finish(folder)
        while sum(each.buffered for each in self._open.values()) > BUFFER_BYTES_MAX:
            max(self._open.values(), key=lambda each: each.buffered).flush()

    def _new(self, folder: str, schema: pa.Schema) -> _OpenFile:
        place = self.folder
        for part in folder.split("/") if folder else ():
            place = place / part
            if place not in self._folders:
                self.store.make_fenced(place)
                self._folders.add(place)
        context = self.context
        number = len(self._done) + len(self._open)
        unique = self.transaction.rpartition("-")[2]
        name = f"part-{context.epoch:05d}-{context.slot:05d}-{unique}-{number:05d}{self.options.extension}"
        return _OpenFile(self, f"{folder}/{name}" if folder else name, schema)

    def _finish(self, folder: str) -> None:
        self._done.append(self._open[folder].finish())
        del self._open[folder]

    def _see_target(self) -> None:
        """See that this machine has the driver's target, and that the checkpoint is not older than the target."""
        context = self.context
        try:
            token = read_token(self.store, self.target)
        except OSError as error:
            raise unavailable(f"{self.target} could not be read", error) from error
        if token != context.facts["token"]:
            raise ConfigurationError(
                f"The executor on {socket.gethostname()} does not share the target {self.target} with the driver.",
                next_step="put the target on storage that is mounted at this path on every machine",
            )
        # An epoch that runs as new has nothing committed; one that is repaired has a part.
        newest = context.epoch if context.mode is Mode.TENTATIVE else context.epoch - 1
        folder = manifest_folder(self.target, context.query, context.sink)
        standing = Ledger(self.store, folder).newest()
        if standing is not None and standing > newest:
            raise LogError(
                f"Sink {context.sink} of query {context.query} has committed epoch {standing} to {self.target}, "
                f"and this checkpoint is at epoch {context.epoch}: an older checkpoint was restored. Nothing "
                "was written.",
                next_step="restore the newest checkpoint, or start a new one and accept that rows are repeated",
            )
