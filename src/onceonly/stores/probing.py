"""Whether a store keeps a name for whoever was first, and permits what is needed: tried before the first record."""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from typing import TYPE_CHECKING, Final

from onceonly import background
from onceonly.errors import ConfigurationError, OnceonlyError
from onceonly.stores.port import put_once

if TYPE_CHECKING:
    from onceonly.stores.port import Store

PROBES: Final = "probes/"
_NAME = re.compile(r"probes/(\d{1,15})-[0-9a-f]{16}")
_OLD_S = 3600.0
_FIRST, _SECOND = b"first", b"second"


def probe(store: Store, *, place: str) -> None:
    """Put a name twice, the second time with other bytes; read, list and remove it. Leaves nothing behind.

    ``place`` is the store's address, for the error. Raises ``ConfigurationError`` for a store that is not fit, or does
    not permit one of these, ``UnavailableError``. Whether two at the very same moment are told apart cannot be tried.
    """
    name = probe_name()
    try:
        first = put_once(store, name, _FIRST)
        # A put that is refused reads what stands. What a list tells may lag behind; whether it may be asked is known.
        second, listed = background.at_once(
            store.abreast, lambda: put_once(store, name, _SECOND), lambda: store.list_names(PROBES)
        )
        is_fit = first == _FIRST and second == _FIRST
    except BaseException:
        with contextlib.suppress(OnceonlyError):
            store.delete(name)
        raise
    store.delete(name)
    if not is_fit:
        raise unfit(place, "puts a file over another that has the name already")
    for each in listed:
        match = _NAME.fullmatch(each)
        # Of a process that ended here. A clock that is wrong takes one away from a process that lives: its start then
        # fails, and is repeated.
        if match is not None and each != name and time.time() - int(match[1]) > _OLD_S:
            store.delete(each)


def probe_name() -> str:
    """Return a new name for what is put to try something; left behind by a crash, it is cleared away when it is old."""
    return f"{PROBES}{int(time.time())}-{secrets.token_hex(8)}"


def unfit(place: str, lack: str) -> ConfigurationError:
    """Make the error for a store on which nothing could be decided safely."""
    return ConfigurationError(
        f"the store of {place} {lack}, so a decision could not be put there safely",
        next_step="put the checkpoint on a store that refuses to put an object over another (If-None-Match): S3 "
        "itself, Google Cloud Storage, Azure Storage, a new release of what imitates S3; or on HDFS or a file system",
    )
