"""Turning batches into the bytes of one file. Executor; needs pyarrow."""

from __future__ import annotations

import bz2
import gzip
import io
import zlib
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import xxhash

from onceonly.rows.arrow import counted_as_spark
from onceonly.sinks.files.formats import lines, stripes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from onceonly.sinks.files.options import FilesOptions

_STRIPE_BYTES = 8 << 20  # a stripe waits in memory for each open file
_GZIP_LEVEL = 6  # zlib's default, and Hadoop's
LINES_AT_ONCE = 10_000  # Python's values take many times the memory of Arrow's


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
        """Return the position: the end."""
        return self.bytes

    @property
    def checksum(self) -> str:
        """The xxh3 of all bytes so far, as 16 hex digits."""
        return str(self._digest.hexdigest())


class _Withheld(io.RawIOBase):
    """Passes bytes on, and keeps an error until it is asked for.

    The ORC writer says no more of an error than a text, and where its close meets one it ends the process.
    """

    def __init__(self, out: CountingFile) -> None:
        self._out = out
        self._error: Exception | None = None

    def writable(self) -> bool:
        """Say yes."""
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401  any buffer
        """Write all of it; nothing after an error."""
        if self._error is None:
            try:
                return self._out.write(data)
            except Exception as error:  # noqa: BLE001  whatever it is, it is raised by ``see``
                self._error = error
        return memoryview(data).nbytes

    def tell(self) -> int:
        """Return the position: the end."""
        return self._out.tell()

    def see(self) -> None:
        """Raise the error that was kept."""
        if self._error is not None:
            raise self._error


class Encoder(Protocol):
    """Writes tables into one file, at once; ``close`` writes its end."""

    def add(self, table: pa.Table) -> None: ...
    def close(self) -> None: ...


class ParquetEncoder:
    """Writes each table as a row group."""

    def __init__(self, out: CountingFile, schema: pa.Schema, options: FilesOptions) -> None:
        import pyarrow.parquet as pq

        self._writer = pq.ParquetWriter(out, counted_as_spark(schema), compression=options.compression)

    def add(self, table: pa.Table) -> None:
        """Write one row group."""
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()


class OrcEncoder:
    """Writes stripes. Raises ``RecordRefusedError`` for what Spark would read as another value, or not at all."""

    def __init__(self, out: CountingFile, options: FilesOptions, *, who: str) -> None:
        from pyarrow import orc

        codec = {"none": "uncompressed"}.get(options.compression, options.compression)
        stripe = min(_STRIPE_BYTES, options.file_bytes_max)
        self._out = _Withheld(out)
        self._writer = orc.ORCWriter(self._out, compression=codec, stripe_size=stripe)
        self._who = who

    def add(self, table: pa.Table) -> None:
        """Write the rows, stripe by stripe: what does not fill one waits in memory."""
        for batch in table.to_batches():
            stripes.check(batch, who=self._who)
        self._writer.write(table)
        self._out.see()

    def close(self) -> None:
        """Write the last stripe, and the footer."""
        self._writer.close()
        self._out.see()


class _Deflated:
    """What Hadoop's DeflateCodec reads: one zlib stream."""

    def __init__(self, out: CountingFile) -> None:
        self._out = out
        self._packer = zlib.compressobj(_GZIP_LEVEL)

    def write(self, data: bytes) -> int:
        self._out.write(self._packer.compress(data))
        return len(data)

    def close(self) -> None:
        self._out.write(self._packer.flush())


class _Packer(Protocol):
    def write(self, data: bytes) -> object: ...
    def close(self) -> None: ...


def _zip(out: CountingFile, compression: str) -> _Packer | None:
    if compression == "gzip":
        return gzip.GzipFile("", "wb", _GZIP_LEVEL, out, mtime=0)
    if compression == "bzip2":
        return bz2.BZ2File(out, "wb")
    if compression == "zstd":
        import pyarrow as pa

        return pa.CompressedOutputStream(out, "zstd")  # type: ignore[no-any-return]
    return _Deflated(out) if compression == "deflate" else None


class LineEncoder:
    """Writes each row as a line of text."""

    def __init__(
        self,
        out: CountingFile,
        render: Callable[[pa.RecordBatch], bytes],
        *,
        compression: str,
        head: bytes = b"",
    ) -> None:
        self._render = render
        self._zip = _zip(out, compression)
        self._write: Callable[[bytes], object] = out.write if self._zip is None else self._zip.write
        if head:
            self._write(head)

    def add(self, table: pa.Table) -> None:
        """Write the rows."""
        for batch in table.to_batches(max_chunksize=LINES_AT_ONCE):
            self._write(self._render(batch))

    def close(self) -> None:
        """Write the end of the compressed stream."""
        if self._zip is not None:
            self._zip.close()


def pieces_of(table: pa.Table, form: str, room: Callable[[], int] | None = None) -> Iterator[pa.Table]:
    """Cut a table so that a file can be closed between the pieces: lines anywhere, row groups nowhere.

    ``room`` says how many rows the open file may still take; it is asked before each piece.
    """
    step = max(table.num_rows if form in {"parquet", "orc"} else LINES_AT_ONCE, 1)
    begin = 0
    while begin < table.num_rows:
        count = step if room is None else min(step, room())
        yield table.slice(begin, count)
        begin += count


def encoder(out: CountingFile, schema: pa.Schema, options: FilesOptions, *, who: str) -> Encoder:
    """Begin a file in the format of the options. ``who`` is what errors call the attempt."""
    if options.form == "parquet":
        return ParquetEncoder(out, schema, options)
    if options.form == "orc":
        return OrcEncoder(out, options, who=who)
    zipped = options.compression
    if options.form == "json":
        return LineEncoder(
            out, lambda batch: lines.json_lines(batch, options.texts, who=who), compression=zipped
        )
    if options.form == "text":
        return LineEncoder(out, lambda batch: lines.text_lines(batch, who=who), compression=zipped)
    head = lines.csv_line(schema.names, options.texts) if options.header else b""
    return LineEncoder(
        out, lambda batch: lines.csv_lines(batch, options.texts, who=who), compression=zipped, head=head
    )
