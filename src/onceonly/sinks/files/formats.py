"""Turning batches into the bytes of one file. Executor; needs pyarrow."""

from __future__ import annotations

import gzip
import io
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import xxhash

from onceonly.sinks.files import rows

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from onceonly.sinks.files.options import FilesOptions

_GZIP_LEVEL = 6  # zlib's default, and Hadoop's


class CountingFile(io.RawIOBase):
    """Passes bytes on, counts them and adds them to a checksum."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = xxhash.xxh3_64()
        self.bytes = 0
        self.dropped = False

    def writable(self) -> bool:
        """Say yes."""
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401  any buffer
        """Write all of it; nothing once the file is dropped."""
        size = memoryview(data).nbytes
        if self.dropped:
            return size
        self._file.write(data)
        self._digest.update(data)
        self.bytes += size
        return size

    def tell(self) -> int:
        """Give the position: the end."""
        return self.bytes

    @property
    def checksum(self) -> str:
        """The xxh3 of all bytes so far, as 16 hex digits."""
        return str(self._digest.hexdigest())


class Encoder(Protocol):
    """Writes batches into one file. ``buffered`` bytes wait in memory for ``flush``."""

    buffered: int

    def add(self, batch: pa.RecordBatch) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class ParquetEncoder:
    """Collects batches into row groups: many small ones would make slow readers."""

    def __init__(self, out: CountingFile, schema: pa.Schema, options: FilesOptions) -> None:
        import pyarrow.parquet as pq

        self.buffered = 0
        self._batches: list[pa.RecordBatch] = []
        self._writer = pq.ParquetWriter(out, schema, compression=options.compression)

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep the rows for the next row group."""
        self._batches.append(batch)
        self.buffered += batch.nbytes

    def flush(self) -> None:
        """Write what is kept as one row group."""
        import pyarrow as pa

        if self._batches:
            table = pa.Table.from_batches(self._batches)
            self._batches, self.buffered = [], 0
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))

    def close(self) -> None:
        """Write the rest and the footer."""
        self.flush()
        self._writer.close()


class LineEncoder:
    """Writes each batch as lines of text."""

    buffered = 0

    def __init__(
        self, out: CountingFile, render: Callable[[pa.RecordBatch], bytes], *, zipped: bool, head: bytes = b""
    ) -> None:
        self._render = render
        self._zip = gzip.GzipFile("", "wb", _GZIP_LEVEL, out, mtime=0) if zipped else None
        self._write = out.write if self._zip is None else self._zip.write
        if head:
            self._write(head)

    def add(self, batch: pa.RecordBatch) -> None:
        """Write the rows."""
        self._write(self._render(batch))

    def flush(self) -> None:
        """Do nothing: nothing waits."""

    def close(self) -> None:
        """Write the end of the compressed stream."""
        if self._zip is not None:
            self._zip.close()


def encoder(out: CountingFile, schema: pa.Schema, options: FilesOptions, *, who: str) -> Encoder:
    """Begin a file in the format of the options. ``who`` is what errors call the attempt."""
    if options.form == "parquet":
        return ParquetEncoder(out, schema, options)
    zipped = options.compression == "gzip"
    if options.form == "json":
        return LineEncoder(out, lambda batch: rows.json_lines(batch, who=who), zipped=zipped)
    if options.form == "text":
        return LineEncoder(out, lambda batch: rows.text_lines(batch, who=who), zipped=zipped)
    head = rows.csv_line(schema.names, options.sep) if options.header else b""
    return LineEncoder(
        out, lambda batch: rows.csv_lines(batch, options.sep, who=who), zipped=zipped, head=head
    )
