"""Writing and preparing one attempt at one slot. Executor; every file has a temporary name in a hidden folder.

::

    {staging}/{query}/{sink}/{transaction}/.00000.staged      the temporary name
    {target}/day=1/part-7-0-…-00000.parquet                  the final one

The folder of the transaction is the fence: a sweep moves it away at once, and then a paused attempt finds no
place for another file, and no file that it could vote for.
"""

from __future__ import annotations

import contextlib
import socket
import uuid
from collections import OrderedDict
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError, OnceonlyError, WriteFailedError
from onceonly.families.behind import refuse_ahead
from onceonly.model import AlreadyCommitted, Committed, Guarantee, Handle
from onceonly.sinks.files import committer, partitions
from onceonly.sinks.files.checks import read_token
from onceonly.sinks.files.formats import refusals
from onceonly.sinks.files.formats.encoding import pieces_of
from onceonly.sinks.files.manifests.ledger import Ledger
from onceonly.sinks.files.paths import manifest_folder, place
from onceonly.sinks.files.prepared import Prepared
from onceonly.sinks.files.staging.opened import OpenFile
from onceonly.sinks.files.staging.waiting import Waiting, copy_of
from onceonly.sinks.files.store import unavailable, write_failed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from onceonly.ports import Refused, WriteContext
    from onceonly.sinks.files.manifests.manifest import DataFile
    from onceonly.sinks.files.options import FilesOptions
    from onceonly.sinks.files.targets.port import Target

OPEN_MAX = 32
"""How many files of one attempt are open at a time, at most: one for each partition folder that is being written."""
BUFFER_BYTES_MAX = 64 << 20
"""How much of one attempt waits in memory, in any number of folders, to be written in large pieces."""
ROW_GROUP_BYTES = 32 << 20


class Attempt:
    """One attempt's files. ``folder`` is where they wait."""

    def __init__(self, context: WriteContext, options: FilesOptions, target: Target) -> None:
        self.context = context
        self.options = options
        self.store = target.files
        self.target = place(context.facts["target"])
        self.transaction = f"{context.epoch}-{context.slot}-{uuid.uuid4().hex}"
        self.stage = target.stage(context.query, context.sink, self.transaction)
        self.folder = self.stage.folder
        self._committed_to = target
        self._waiting: dict[str, Waiting] = {}
        self._held = 0
        self._open: OrderedDict[str, OpenFile] = OrderedDict()
        self._done: list[DataFile] = []
        self._group_bytes = min(ROW_GROUP_BYTES, options.file_bytes_max)
        self._see_target()
        try:
            self.stage.begin()
            self._room = self.store.room(self.target)
        except OSError as error:
            raise self._failed(self.folder, error) from error

    @property
    def name(self) -> str:
        """What errors call it."""
        context = self.context
        return (
            f"query {context.query}, sink {context.sink}, epoch {context.epoch}, slot {context.slot}, "
            f"transaction {self.transaction}"
        )

    def write(self, batch: pa.RecordBatch) -> list[Refused]:
        """Write rows; give back those that no file can hold, where that is asked for.

        Memory is bounded by ``BUFFER_BYTES_MAX``, open files by ``OPEN_MAX``.

        A folder's file is opened when its rows are flushed for the first time, and beyond the bound the folder
        with the most is flushed. So a file that must make room for another one got a fair share of the memory.
        """
        try:
            self.stage.see()  # rows may wait long before they meet the fence
        except OSError as error:
            raise self._failed(self.folder, error) from error
        refused: list[Refused] = []
        if self.context.gives_back:
            batch, refused = refusals.part(batch, self.options, room=self._room)
        for folder, rows in partitions.split(
            batch, self.options.partition_by, who=self.name, room=self._room
        ):
            for piece in self._pieces(rows):
                try:
                    self._hold(folder, piece)
                except OSError as error:
                    raise self._failed(self.folder, error) from error
        return refused

    def pre_commit(self) -> Handle:
        """Make every file durable under its temporary name. Afterwards any process can commit them.

        At least once, the files get their final names here, and the handle is for the manifest.
        """
        try:
            # Those with an open file first: the others then need not make room.
            for waiting in sorted(self._waiting, key=lambda each: each not in self._open):
                self._flush(waiting)
                if waiting in self._open:
                    self._finish(waiting)
            while self._open:
                self._finish(next(iter(self._open)))
            uploads = self.stage.prepare(self._done)
        except OSError as error:
            raise self._failed(self.folder, error) from error
        prepared = Prepared(
            transaction=self.transaction,
            target=self.target,
            staging=self.folder,
            layout=str(self.context.facts["layout"]),
            files=tuple(self._done),
            uploads=uploads,
        )
        handle = prepared.handle()
        if self.context.guarantee is Guarantee.AT_LEAST_ONCE:
            outcome = committer.commit(self._committed_to, self.target, handle)
            if not isinstance(outcome, Committed | AlreadyCommitted):
                raise WriteFailedError(
                    f"{self.name}: {outcome}", next_step="see to the target's file system; Spark tries again"
                )
        return handle

    def discard(self) -> None:
        """Drop the attempt's temporary files, best effort; what stays is swept."""
        self._waiting.clear()
        for file in self._open.values():
            file.drop()
        self._open.clear()
        with contextlib.suppress(OSError, OnceonlyError):
            self.stage.drop()

    def _pieces(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        step = max(1, rows.num_rows * self._group_bytes // max(rows.nbytes, 1))
        if step >= rows.num_rows:
            yield rows
            return
        for begin in range(0, rows.num_rows, step):
            yield copy_of(rows, begin, min(step, rows.num_rows - begin))

    def _hold(self, folder: str, rows: pa.RecordBatch) -> None:
        waiting = self._waiting.setdefault(folder, Waiting())
        self._held += waiting.add(rows)
        if waiting.bytes >= self._group_bytes:
            self._flush(folder)
        while self._held > BUFFER_BYTES_MAX:
            self._flush(max(self._waiting, key=lambda each: self._waiting[each].cost))

    def _flush(self, folder: str) -> None:
        waiting = self._waiting.pop(folder)
        self._held -= waiting.cost
        limit = self.options.file_rows_max

        def room() -> int:
            opened = self._open.get(folder)
            return limit - (opened.rows if opened is not None else 0)

        for table in pieces_of(waiting.table(), self.options.form, room if limit else None):
            file = self._open.get(folder)
            if file is None:
                while len(self._open) >= min(OPEN_MAX, self.stage.open_max):
                    self._finish(next(iter(self._open)))
                file = self._open[folder] = self._new(folder, table.schema)
            self._open.move_to_end(folder)
            file.add(table)
            if file.bytes >= self.options.file_bytes_max or 0 < limit <= file.rows:
                self._finish(folder)

    def _new(self, folder: str, schema: pa.Schema) -> OpenFile:
        context = self.context
        number = len(self._done) + len(self._open)
        unique = self.transaction.rpartition("-")[2]
        name = f"part-{context.epoch:05d}-{context.slot:05d}-{unique}-{number:05d}{self.options.extension}"
        path = f"{folder}/{name}" if folder else name
        return OpenFile(self.stage, path, schema, self.options, who=self.name)

    def _finish(self, folder: str) -> None:
        self._done.append(self._open[folder].finish())
        del self._open[folder]

    def _failed(self, path: Path, error: OSError) -> WriteFailedError:
        """Make the error for what the file system refused. Only where all but its folder is there was it swept."""
        if isinstance(error, FileNotFoundError):
            try:
                there = read_token(self.store, self.target) == self.context.facts["token"]
                there = there and self.stage.is_shared()
            except OSError:
                there = False
            if not there:
                return WriteFailedError(
                    f"{self.name}: {path} could not be written: the target {self.target} or its folder of temporary "
                    f"files is not there any more on {socket.gethostname()}; nothing of this try is visible",
                    next_step="see to this file system (is it mounted?) and start the query again",
                )
        return write_failed(self.name, path, error)

    def _see_target(self) -> None:
        """See that this machine has the driver's target, and that the checkpoint is not older than the target."""
        context = self.context
        try:
            token = read_token(self.store, self.target)
        except OSError as error:
            raise unavailable(f"{self.target} could not be read", error) from error
        if token != context.facts["token"]:
            raise ConfigurationError(
                f"The executor on {socket.gethostname()} does not share the target {self.target} with the driver, or "
                "it is not mounted any more.",
                next_step="put the target on storage that is mounted at this path on every machine, all the time",
            )
        folder = manifest_folder(self.target, context.query, context.sink)
        standing = Ledger(self.store, folder).newest()
        if standing is not None:
            refuse_ahead(context, standing, to=str(self.target))
