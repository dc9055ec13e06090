"""A staging area in a folder that driver and executors share: one Arrow file an attempt.

A file's removal is the fence: an attempt that wakes up late looks whether its file is still there after it has made it
durable, and votes only then. Only the job's user may read it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.durable import disk
from onceonly.errors import LogError, UnavailableError, WriteFailedError
from onceonly.families.staged.names import BYTES, ROWS, grouped, new_name, parts_of, told

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from onceonly.families.staged.area import StagedRows
    from onceonly.model import Handle
    from onceonly.ports import WriteContext

_FOLDER_MODE, _FILE_MODE = 0o700, 0o600
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_SEE_TO_IT = "see to this file system (space, permissions, mount) and start the query again"


class StagedFile:
    """The rows of one attempt; fulfils ``StagedAttempt``."""

    def __init__(self, folder: Path, context: WriteContext, data: Mapping[str, str | int]) -> None:
        self.name = new_name(context)
        self._path = folder / self.name
        self._data = data
        self._rows = self._bytes = 0
        self._writer: pa.RecordBatchStreamWriter | None = None
        try:
            disk.make_folder(folder, mode=_FOLDER_MODE)
            self._file = os.fdopen(os.open(self._path, _NEW, _FILE_MODE), "wb")
        except OSError as error:
            raise _failed(self._path, error) from error

    @property
    def data(self) -> Mapping[str, str | int]:
        return {**self._data, ROWS: self._rows, BYTES: self._bytes}

    def write(self, batch: pa.RecordBatch) -> None:
        from pyarrow import ipc

        try:
            if self._writer is None:
                self._writer = ipc.new_stream(self._file, batch.schema)
            self._writer.write_batch(batch)
        except OSError as error:
            raise _failed(self._path, error) from error
        self._rows += batch.num_rows

    def finish(self) -> None:
        try:
            if self._writer is not None:
                self._writer.close()
            self._file.flush()
            self._bytes = self._file.tell()
            disk.fsync(self._file.fileno(), self._path, fresh=True)
            self._file.close()
            disk.sync(self._path.parent)
        except OSError as error:
            raise _failed(self._path, error) from error
        if not self._path.exists():
            raise swept(str(self._path))

    def discard(self) -> None:
        with contextlib.suppress(OSError):  # what could not be written is thrown away
            self._file.close()
        _remove(self._path)


@dataclass(frozen=True, slots=True)
class FileRows:
    """What staged files hold; fulfils ``StagedRows``. ``parts`` are those that came from a store.

    ``rows`` and ``bytes`` are what the handle says of it; None where it does not.
    """

    path: Path
    parts: tuple[Path, ...] = ()
    rows: int | None = None
    bytes: int | None = None

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def is_whole(self) -> bool:
        """Say whether nothing is missing: who cuts a file between two batches leaves one that reads well."""
        sizes = [_size(path) for path in (self.path, *self.parts)]
        return None not in sizes and self.bytes in {None, sizes[0]}

    def batches(self) -> Iterator[pa.RecordBatch]:
        return counted(self._read(), self.rows, str(self.path))

    def _read(self) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyarrow import ipc

        for path in self.parts or (self.path,):
            try:
                with pa.OSFile(str(path)) as file:
                    yield from ipc.open_stream(file)
            except pa.ArrowInvalid as error:
                raise damaged(str(path), str(error)) from error
            except OSError as error:
                if error.errno is None:  # Arrow's own, of a file that ends too early
                    raise damaged(str(path), str(error)) from error
                raise UnavailableError(f"{path} could not be read: {error}", next_step=_SEE_TO_IT) from error


class StagingFolder:
    """Files in one folder; fulfils ``StagingArea``. ``data`` leads back to it, from any process."""

    def __init__(self, folder: Path, data: Mapping[str, str | int]) -> None:
        self._folder = folder
        self._data = data

    def begin(self, context: WriteContext) -> StagedFile:
        return StagedFile(self._folder, context, self._data)

    def standing(self, handles: Sequence[Handle]) -> dict[str, StagedRows]:
        found = [
            FileRows(
                self._folder / handle.transaction,
                tuple(self._folder / part for part in parts_of(handle)),
                rows=told(handle, ROWS),
                bytes=told(handle, BYTES),
            )
            for handle in handles
        ]
        return {rows.name: rows for rows in found if rows.is_whole}

    def listed(self) -> dict[str, Mapping[str, str | int]]:
        try:
            names = os.listdir(self._folder)  # noqa: PTH208  names only
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise UnavailableError(
                f"{self._folder} could not be listed: {error}", next_step=_SEE_TO_IT
            ) from error
        return grouped(names, self._data)

    def remove(self, handles: Sequence[Handle]) -> None:
        for handle in handles:
            for name in (handle.transaction, *parts_of(handle)):
                _remove(self._folder / name)


def swept(place: str) -> WriteFailedError:
    """Make the error of an attempt that was fenced."""
    return WriteFailedError(
        f"{place} was removed while it was written: a later try at its epoch has swept it",
        next_step="nothing: the later try writes the rows again",
    )


def damaged(place: str, why: str) -> LogError:
    """Make the error of staged rows that are there and are not as they were staged."""
    return LogError(
        f"{place} is damaged, as somebody has changed what is staged there: {why}. Nothing is lost: the source has the "
        "rows",
        next_step="see who has; then remove it, and start the query again: its rows are written again",
    )


def counted(batches: Iterator[pa.RecordBatch], rows: int | None, place: str) -> Iterator[pa.RecordBatch]:
    """Yield batches, and see at their end that they had as many rows as were staged. Raises ``LogError``."""
    found = 0
    for batch in batches:
        found += batch.num_rows
        yield batch
    if rows not in {None, found}:
        raise damaged(place, f"it holds {found} rows, and {rows} were staged")


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UnavailableError(f"{path} could not be looked at: {error}", next_step=_SEE_TO_IT) from error


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise UnavailableError(f"{path} could not be removed: {error}", next_step=_SEE_TO_IT) from error


def _failed(path: Path, error: OSError) -> WriteFailedError:
    name = errno.errorcode.get(error.errno or 0, "?")
    return WriteFailedError(
        f"{path} could not be written: {error.strerror} ({name})",
        next_step="see to space and permissions of the checkpoint's file system; Spark tries again",
    )
