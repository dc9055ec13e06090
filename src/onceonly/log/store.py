"""Where the files of a log live: the port, and the one way to put a file through it.

A store keeps whole objects that are written once. There is no append and no rename in the port, so that an
object store with a conditional put can fulfil it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from onceonly.errors import InDoubtError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable


class PutUnknownError(Exception):
    """A put whose outcome the store does not know: it may have happened, or may still happen."""


class Store(Protocol):
    """Named bytes. Driver, one thread; several processes use one place at the same time.

    ``UnavailableError`` says that nothing was changed. Names have at most one folder: ``links/….json``.
    """

    def where(self, name: str) -> str:
        """Give the full address, for people."""
        ...

    def put_if_absent(
        self, name: str, data: bytes, *, before_publish: Callable[[], None] | None = None
    ) -> bool:
        """Put, whole and durable, unless something has this name; say whether it was put.

        ``before_publish`` is called when everything but the publishing is done. Raises ``UnavailableError``
        after a definite failure, ``PutUnknownError`` where it cannot tell.
        """
        ...

    def get(self, name: str) -> bytes | None:
        """Read, None where nothing has this name. Raises ``UnavailableError``."""
        ...

    def list_names(self, folder: str) -> list[str]:
        """Give the names in a folder (``links/``), unordered, broken-off puts left out."""
        ...

    def delete(self, name: str) -> None:
        """Remove. Idempotent; durable some time later. Raises ``UnavailableError``."""
        ...

    def sync(self, name: str) -> None:
        """Make what has this name durable, as its writer may have died before it was, or because it was not.

        Only to ask whether it is durable is not enough: a disk tells of a failure once. Raises ``UnavailableError``.
        """
        ...

    def drop_leftovers(self, dead: Callable[[str], bool]) -> None:
        """Remove what broken-off puts left, where the name is taken or ``dead`` says that it is void."""
        ...


def put_once(
    store: Store, name: str, data: bytes, *, before_publish: Callable[[], None] | None = None
) -> bytes | None:
    """Put, and give what now stands there: ``data`` itself, durable, if the put is ours.

    A put whose answer did not arrive is read back. None where the name was taken a moment ago and is free
    again: somebody has folded it. Raises ``UnavailableError`` where nothing was put, ``InDoubtError`` where
    it cannot be told.
    """
    unknown: PutUnknownError | None = None
    try:
        if store.put_if_absent(name, data, before_publish=before_publish):
            return data
    except PutUnknownError as error:
        unknown = error
    try:
        standing = store.get(name)
        if standing == data:
            # Ours after all, but perhaps not yet durable: its folder may not have been synced.
            store.sync(name)
    except UnavailableError as error:
        raise InDoubtError(
            f"It cannot be told whether {store.where(name)} is durable: {unknown or error.what}",
            next_step="repair the file system and start the query again; nothing was aborted",
        ) from error
    if standing is None and unknown is not None:
        raise InDoubtError(
            f"It cannot be told whether {store.where(name)} will still appear: {unknown}",
            next_step="repair the file system and start the query again; nothing was aborted",
        ) from unknown
    return standing
