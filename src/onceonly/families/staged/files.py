"""Staged files: one Arrow stream an attempt, in a folder that driver and executors share.

A file's name tells its epoch and slot and is given once. Its removal is the fence: an attempt that wakes up late looks
whether its file is still there after it has made it durable, and votes only then.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from typing import TYPE_CHECKING

from onceonly.durable import disk
from onceonly.errors import UnavailableError, WriteFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from onceonly.ports import WriteContext

_SUFFIX = ".arrow"


class StagedFile:
    """The rows of one attempt. Executor, one thread."""

    def __init__(self, folder: Path, context: WriteContext) -> None:
        self.name = f"{context.epoch}.{context.slot}.{uuid.uuid4().hex}{_SUFFIX}"
        self.path = folder / self.name
        self.rows = 0
        self._writer: pa.RecordBatchStreamWriter | None = None
        try:
            disk.make_folder(folder)
            self._file = self.path.open("xb")
        except OSError as error:
            raise _failed(self.path, error) from error

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows. Raises ``WriteFailedError``."""
        from pyarrow import ipc

        try:
            if self._writer is None:
                self._writer = ipc.new_stream(self._file, batch.schema)
            self._writer.write_batch(batch)
        except OSError as error:
            raise _failed(self.path, error) from error
        self.rows += batch.num_rows

    def finish(self) -> None:
        """Make the file and its name durable, and see that nobody has removed it. Raises ``WriteFailedError``."""
        try:
            if self._writer is not None:
                self._writer.close()
            self._file.flush()
            disk.fsync(self._file.fileno(), self.path, fresh=True)
            self._file.close()
            disk.sync(self.path.parent)
        except OSError as error:
            raise _failed(self.path, error) from error
        if not self.path.exists():
            raise WriteFailedError(
                f"{self.path} was removed while it was written: a later try at its epoch has swept it",
                next_step="nothing: the later try writes the rows again",
            )

    def discard(self) -> None:
        """Close and remove it. Idempotent."""
        with contextlib.suppress(OSError):  # what could not be written is thrown away
            self._file.close()
        remove(self.path)


def epoch_of(name: str) -> int | None:
    """Return the epoch that a staged file's name tells, None for another file. Pure."""
    epoch, _, rest = name.partition(".")
    return int(epoch) if epoch.isdecimal() and rest.endswith(_SUFFIX) else None


def batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a staged file. Driver; any number of times. Raises ``UnavailableError``."""
    import pyarrow as pa
    from pyarrow import ipc

    try:
        with pa.OSFile(str(path)) as file:
            yield from ipc.open_stream(file)
    except OSError as error:
        raise UnavailableError(f"{path} could not be read: {error}", next_step=_SEE_TO_IT) from error


def listed(folder: Path) -> list[str]:
    """Return the names of all staged files, none where the folder is not there yet. Raises ``UnavailableError``."""
    try:
        return sorted(name for name in os.listdir(folder) if epoch_of(name) is not None)  # noqa: PTH208  names only
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UnavailableError(f"{folder} could not be listed: {error}", next_step=_SEE_TO_IT) from error


def remove(path: Path) -> None:
    """Remove a staged file. Idempotent. Raises ``UnavailableError``."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise UnavailableError(f"{path} could not be removed: {error}", next_step=_SEE_TO_IT) from error


_SEE_TO_IT = "see to this file system (space, permissions, mount) and start the query again"


def _failed(path: Path, error: OSError) -> WriteFailedError:
    name = errno.errorcode.get(error.errno or 0, "?")
    return WriteFailedError(
        f"{path} could not be written: {error.strerror} ({name})",
        next_step="see to space and permissions of the checkpoint's file system; Spark tries again",
    )
