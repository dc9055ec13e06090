"""Files and names that survive a loss of power, on local disks and shared mounts. Any process.

All of it raises ``OSError``, but for an fsync that fails: *it ends the process*, with the status ``EXIT``, after one
sentence on stderr and in the log. Linux tells of a write that failed once; whoever asks again is told that all is well,
though the data are gone. So nobody may ask again, and PostgreSQL ends for the same reason. The next process does not
ask either: what it finds without knowing that it is durable it writes anew (``renew``).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
import sys
import threading
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

log = logging.getLogger("onceonly")

EXIT = 74
"""The status of a process whose fsync failed: EX_IOERR of sysexits.h."""
TEMPORARY = ".tmp"

# Nothing was tried: this descriptor, or this file system, has no fsync.
_NOT_TRIED = frozenset({errno.EBADF, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
# A shared mount says so at fsync. What was written is thrown away and written anew, into another file.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_WORDS_S = 2.0
_ABOVE_MAX = 3


def fsync(descriptor: int, path: Path, *, fresh: bool = False) -> None:
    """Make an open file or folder durable, or end this process. ``path`` is what it is called, for people.

    ``fresh`` is for a file that this process is writing and throws away after an error: there, a lack of space is
    raised as the write's own error.
    """
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno in _NOT_TRIED or (fresh and error.errno in _FULL):
            raise
        _end(path, error)


def write_new(path: Path, data: bytes) -> None:
    """Write a file that is not there yet; its content is durable, its name is not."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        fsync(file.fileno(), path, fresh=True)


def sync(path: Path) -> None:
    """Make the content of a file durable, or the names in a folder, that this process has written."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fsync(descriptor, path)
    finally:
        os.close(descriptor)


def renew(path: Path, temporary: Path | None = None) -> None:
    """Make a small file durable that another process wrote, which may have ended because it could not.

    An fsync would say that all is well. The same bytes are written into a new file, which takes the name.
    ``temporary`` is its name until then. Beside a process that removes the file, it may come back.
    """
    temporary = temporary or path.with_name(f".{path.name}.{secrets.token_hex(6)}{TEMPORARY}")
    try:
        write_new(temporary, path.read_bytes())
        os.rename(temporary, path)  # noqa: PTH104  Path calls os
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync(path.parent)


def make_folder(folder: Path, sync_folder: Callable[[Path], None] = sync, *, mode: int = 0o777) -> None:
    """Make a folder and those above it, durably. Idempotent. ``mode`` is for the folder itself, less the umask."""
    if folder.is_dir():
        return
    make_folder(folder.parent, sync_folder)
    # Another process may be quicker; a file of this name is an error.
    folder.mkdir(mode, exist_ok=True)
    sync_folder(folder.parent)


def above(folder: Path) -> list[Path]:
    """Return the folders above that may be as new as this one: those of its file system that can be opened."""
    device = folder.stat().st_dev
    some = list(folder.absolute().parents)[:_ABOVE_MAX]
    return [each for each in some if each.stat().st_dev == device and os.access(each, os.R_OK)]


def sync_above(folder: Path) -> None:
    """Make the names on the way to a folder durable, whoever made it: a person, or a process that was killed then.

    Where a file system cannot sync a folder, that of the folder itself tells so.
    """
    for each in above(folder):
        with contextlib.suppress(OSError):
            sync(each)


def _end(path: Path, error: OSError) -> NoReturn:
    name = errno.errorcode.get(error.errno or 0, "?")
    sentence = (
        f"onceonly: {path} could not be made durable: fsync gave {os.strerror(error.errno or 0)} ({name}), so this "
        f"process (pid {os.getpid()}) ends with status {EXIT}: nobody can tell what of it is on the disk, and to ask "
        "again would be answered with a success that means nothing. Next: see to this disk or mount (the kernel's "
        "log), then start the query again; it writes anew what it does not know to be durable."
    )
    # Whoever collects the words may be stuck; the end does not wait for them.
    speaker = threading.Thread(target=_say, args=(sentence,), name="onceonly-last-words", daemon=True)
    with contextlib.suppress(RuntimeError):  # no thread to be had
        speaker.start()
        speaker.join(_WORDS_S)
    os._exit(EXIT)


def _say(sentence: str) -> None:
    with contextlib.suppress(Exception):
        sys.stderr.write(sentence + "\n")
        sys.stderr.flush()
    with contextlib.suppress(Exception):
        if log.hasHandlers():  # without one, logging would say it on stderr again
            log.critical("%s", sentence)
        logging.shutdown()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
