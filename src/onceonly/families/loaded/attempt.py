"""Writing one attempt: data files of the target, in a folder of their own that no log names yet. Executor.

::

    {target}/onceonly/{query}/{sink}/0000000007/7.0.5be3…/day=2026-11-21/00000.parquet

What keeps a paused attempt from voting after a sweep is the place's own: see ``folders`` and ``objects``. What is
committed stays where it was written.
"""

from __future__ import annotations

import contextlib
import errno
import uuid
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from onceonly.errors import WriteFailedError
from onceonly.families.loaded import partitions
from onceonly.families.loaded.casting import fit
from onceonly.families.loaded.load import DataFile, folder_of
from onceonly.families.sifting import sifted
from onceonly.rows.arrow import counted_as_spark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from onceonly.families.loaded.places import Home, Stage
    from onceonly.ports import Refused, WriteContext

    Values: TypeAlias = tuple[str | None, ...]

BUFFER_BYTES_MAX = 64 << 20
"""How much of one attempt waits in memory, of all partitions together."""
GROUP_BYTES = 32 << 20
"""How much of one partition is written as one row group."""


class Notes(Protocol):
    """What the target's log says of a file besides its size: gathered while it is written."""

    def add(self, rows: pa.Table) -> None: ...
    def text(self) -> str: ...


class NoNotes:
    """For a target that reads the files itself."""

    def add(self, rows: pa.Table) -> None: ...

    def text(self) -> str:
        return ""


class Layout:
    """How rows lie in files: all of them in one, with the columns and types of ``schema``. Derive for partitions."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.left_out: tuple[str, ...] = ()
        """The partition columns that files lack, as the target's log has their values."""

    def keys(self, rows: pa.RecordBatch) -> Mapping[str, pa.Array]:  # noqa: ARG002  for those that have some
        """Return the partition values of each row, by name."""
        return {}

    def text(self, value: Any) -> str | None:  # noqa: ANN401  whatever a key is
        """Write a partition's value as the target's log has it."""
        return None if value is None else str(value)

    def content(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return what of the rows goes into the file."""
        return rows

    def notes(self) -> Notes:
        """Begin to note what the log says of one file."""
        return NoNotes()


class _Open:
    """A file that is being written. Raises ``OSError``, or a store's typed errors."""

    def __init__(
        self,
        stage: Stage,
        path: str,
        *,
        keys: Mapping[str, str | None],
        schema: pa.Schema,
        layout: Layout,
        codec: str,
    ) -> None:
        import pyarrow.parquet as pq

        self.path, self.keys, self.rows = path, keys, 0
        self._stage = stage
        self._notes = layout.notes()
        self._file = stage.create(path)
        self._writer = pq.ParquetWriter(self._file, counted_as_spark(schema), compression=codec)

    def add(self, rows: pa.Table) -> int:
        """Write a row group; return how long the file is by now."""
        self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        self._notes.add(rows)
        self.rows += rows.num_rows
        return self._file.tell()

    def finish(self) -> DataFile:
        """Make it durable; its name is not yet."""
        self._writer.close()
        size = self._file.tell()
        self._stage.finish(self._file)
        return DataFile(
            path=self.path,
            bytes=size,
            rows=self.rows,
            keys=tuple(self.keys.values()),
            notes=self._notes.text(),
        )

    def drop(self) -> None:
        with contextlib.suppress(Exception):  # what was written is thrown away
            self._writer.close()
        self._stage.drop_file(self._file)


class Attempt:
    """The files of one attempt. One thread."""

    def __init__(
        self, home: Home, app: str, context: WriteContext, layout: Layout, *, options: Mapping[str, Any]
    ) -> None:
        self.context = context
        self.name = f"{context.epoch}.{context.slot}.{uuid.uuid4().hex}"
        self.path = folder_of(app, self.name)
        self._where = f"{home.text}/{self.path}"
        self._layout = layout
        self._codec, self._bytes_max = options["compression"], options["maxFileSize"]
        # By the texts of a partition: of its values, 0.0 and -0.0 are one, and no NaN is another.
        self._waiting: dict[Values, list[pa.RecordBatch]] = {}
        self._held: dict[Values, int] = {}
        self._open: OrderedDict[Values, _Open] = OrderedDict()
        self._names: tuple[str, ...] = ()
        self._files: list[DataFile] = []
        try:
            self._stage = home.begin(app, self.name)
        except OSError as error:
            raise self._unwritten(error) from error

    @property
    def who(self) -> str:
        """What errors call it."""
        context = self.context
        return f"query {context.query}, sink {context.sink}, epoch {context.epoch}, slot {context.slot}"

    def write(self, batch: pa.RecordBatch) -> Sequence[Refused]:
        """Write rows in the target's types; give back those that it does not hold, where somebody takes them.

        Raises ``RecordRefusedError`` where nobody does, ``WriteFailedError``.
        """
        if not self._stage.stands():  # rows may wait long before they meet the fence
            raise self._swept()
        if not self.context.gives_back:
            self._hold(*self._fit(batch))
            return ()
        taken, refused = sifted(batch, self._fit, code="MISFIT")
        for rows, keys in taken:
            self._hold(rows, keys)
        return refused

    def _fit(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Mapping[str, pa.Array]]:
        """Return rows in the target's types, and their partition values. Raises ``RecordRefusedError``."""
        rows = fit(batch, self._layout.schema, who=self.who)
        return rows, self._layout.keys(rows)

    def _hold(self, rows: pa.RecordBatch, keys: Mapping[str, pa.Array]) -> None:
        self._names = tuple(keys)
        for found, some in partitions.split(rows, keys):
            values = tuple(map(self._layout.text, found))
            content = self._layout.content(some)
            self._waiting.setdefault(values, []).append(content)
            self._held[values] = self._held.get(values, 0) + content.nbytes
            if self._held[values] >= GROUP_BYTES:
                self._flush(values)
        while sum(self._held.values()) > BUFFER_BYTES_MAX:
            self._flush(max(self._held, key=self._held.__getitem__))

    def finish(self) -> tuple[DataFile, ...]:
        """Make files and names durable, and see that nobody has taken them away. Raises ``WriteFailedError``."""
        # Those with an open file first: the others then need not make room.
        for values in sorted(self._waiting, key=lambda each: each not in self._open):
            self._flush(values)
        try:
            while self._open:
                self._files.append(self._open.popitem(last=False)[1].finish())
            stands = self._stage.seal(self._files)
        except OSError as error:
            raise self._failed(error) from error
        if not stands:
            raise self._swept()
        return tuple(self._files)

    def discard(self) -> None:
        """Drop all of it. Idempotent."""
        self._waiting.clear()
        for file in self._open.values():
            file.drop()
        self._open.clear()
        self._stage.drop()

    def _flush(self, values: Values) -> None:
        import pyarrow as pa

        rows = pa.Table.from_batches(self._waiting.pop(values))
        self._held.pop(values)
        try:
            file = self._open.get(values) or self._begin(values, rows.schema)
            self._open.move_to_end(values)
            if file.add(rows) >= self._bytes_max:
                self._files.append(self._open.pop(values).finish())
        except OSError as error:
            raise self._failed(error) from error

    def _begin(self, values: Values, schema: pa.Schema) -> _Open:
        while len(self._open) >= self._stage.open_max:
            self._files.append(self._open.popitem(last=False)[1].finish())
        keys = dict(zip(self._names, values, strict=True))
        folder = partitions.folder(keys)
        name = f"{len(self._files) + len(self._open):05d}.parquet"
        self._open[values] = file = _Open(
            self._stage,
            f"{folder}/{name}" if folder else name,
            keys=keys,
            schema=schema,
            layout=self._layout,
            codec=self._codec,
        )
        return file

    def _swept(self) -> WriteFailedError:
        return WriteFailedError(
            f"{self.who}: {self._where} was removed while it was written: a later try at its epoch has swept it",
            next_step="nothing: the later try writes the rows again",
        )

    def _failed(self, error: OSError) -> WriteFailedError:
        if isinstance(error, FileNotFoundError) and self._stage.is_shared():
            return self._swept()
        return self._unwritten(error)

    def _unwritten(self, error: OSError) -> WriteFailedError:
        name = errno.errorcode.get(error.errno or 0, "?")
        return WriteFailedError(
            f"{self.who}: {error.filename or self._where} could not be written: {error.strerror} ({name})",
            next_step="see to space and permissions of the target's file system; Spark tries again",
        )
