"""Giving a file another name, once and over nobody's: one step for everybody who looks, and for a loss of power.

A link and a removal would be two steps: a reader that takes the file away between them leaves a world in which nobody
can tell that it was ever there.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1  # linux/fs.h
# What the call says where a file system (NFS, some of FUSE's) or a kernel before 3.15 does not know the flag.
_UNKNOWN = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})


def move(source: Path, destination: Path) -> bool:
    """Rename a file on its file system, unless the name is taken; say whether it was free. Raises ``OSError``.

    Where the file system has no rename that spares what is there, the name is looked at first: nobody else makes a name
    of ours between the two, as it holds a random number of 128 bits, and who moves the same file finds it gone.
    """
    try:
        rename_noreplace(source, destination)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _UNKNOWN:
            raise
        if os.path.lexists(destination):
            return False
        os.rename(source, destination)  # noqa: PTH104  its error names both
    return True


def rename_noreplace(source: Path, destination: Path) -> None:
    """Call renameat2(2) with RENAME_NOREPLACE. Raises ``OSError``, also where there is no such call."""
    call = _renameat2()
    number = errno.ENOSYS
    if call is not None:
        # As os.rename does.
        sys.audit("os.rename", str(source), str(destination), -1, -1)
        done = call(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(destination), _RENAME_NOREPLACE)
        number = 0 if done == 0 else ctypes.get_errno()
    if number:
        raise OSError(number, os.strerror(number), str(source), None, str(destination))


@cache
def _renameat2() -> Callable[..., int] | None:
    """Find the call in the C library (glibc has it since 2.28); None where it is missing."""
    try:
        found = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return None
    found.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    found.restype = ctypes.c_int
    return found
