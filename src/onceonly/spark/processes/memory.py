"""Keeping memory in a worker that needs it again for the next batch.

What malloc gives back to the system is faulted in again, and zeroed, 4 KB at a time: 3 microseconds each on a virtual
machine of two cores (measured), where a row of 1 KB lies in four pieces of memory on its way.
"""

from __future__ import annotations

import ctypes
import functools
import os

# From glibc's malloc.h; mallopt(3). A block up to the one, which is the most that glibc takes, is not mapped by itself;
# at the end of the heap, as much as the other stays.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MMAP_BYTES = 32 << 20
_KEPT_BYTES = 64 << 20
# Whoever sets these says how much malloc keeps; of the others, YARN sets MALLOC_ARENA_MAX in each container.
_USERS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@functools.cache
def keep() -> bool:
    """Have malloc keep up to 64 MB that are free; says whether it does. Executor worker, once for the process.

    Does nothing where it is not glibc's, or where the user has set how much it keeps, by ``MALLOC_TRIM_THRESHOLD_``,
    ``MALLOC_MMAP_THRESHOLD_`` or ``GLIBC_TUNABLES``.
    """
    if any(name in os.environ for name in _USERS):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(
        mallopt(_MMAP_THRESHOLD, _MMAP_BYTES) and mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
    )
