"""A file that is being written under its temporary name. Executor."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from onceonly.errors import OnceonlyError
from onceonly.sinks.files.formats.encoding import CountingFile, encoder
from onceonly.sinks.files.manifests.manifest import DataFile

if TYPE_CHECKING:
    import pyarrow as pa

    from onceonly.sinks.files.options import FilesOptions
    from onceonly.sinks.files.targets.port import Stage


class OpenFile:
    """A file of an attempt. ``path`` is its final path below the target, ``who`` the attempt's name in errors."""

    def __init__(
        self, stage: Stage, path: str, schema: pa.Schema, options: FilesOptions, *, who: str
    ) -> None:
        self._stage = stage
        self.path = path
        self.rows = 0
        self._file = stage.create(path)
        self._counted = CountingFile(self._file)
        self._encoder = encoder(self._counted, schema, options, who=who)

    @property
    def bytes(self) -> int:
        return self._counted.bytes

    def add(self, table: pa.Table) -> None:
        """Write rows, at once."""
        self._encoder.add(table)
        self.rows += table.num_rows

    def finish(self) -> DataFile:
        """Write the end, make it durable and close it."""
        self._encoder.close()
        self._stage.finish(self._file)
        return DataFile(self.path, self.bytes, self.rows, self._counted.checksum)

    def drop(self) -> None:
        """Close what must be closed. The encoder still writes its end, to nowhere; it may fail once more."""
        self._counted.dropped = True
        with contextlib.suppress(Exception):
            self._encoder.close()
        with contextlib.suppress(OSError, OnceonlyError):
            self._file.close()
