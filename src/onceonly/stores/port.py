"""Where the files of a log live: the port, and the one way to put a file through it.

A store keeps whole objects that are written once. There is no append and no rename in the port, so that an
object store with a conditional put can fulfil it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol

from onceonly.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

AGAIN_S: Final = 30.0
"""How long a put is repeated whose answers tell nothing, as those of a shared mount do whose server is restarted."""
_DELAY_FIRST_S = 0.05
_DELAY_MAX_S = 2.0


class PutUnknownError(Exception):
    """A put whose outcome the store does not know: it may have happened, or may still happen."""


class Store(Protocol):
    """Named bytes. Driver; several processes use one place at the same time, and several threads where it is distant.

    ``UnavailableError`` says that nothing was changed. Names have at most one folder: ``links/….json``.
    """

    @property
    def abreast(self) -> int:
        """How many requests to make at the same time: 1 where each is over sooner than a thread is woken."""
        ...

    def where(self, name: str) -> str:
        """Return the full address, for people."""
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
        """Return the names in a folder (``links/``), unordered, broken-off puts left out."""
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


class RewritableStore(Store, Protocol):
    """A store whose objects may be replaced, too: Spark's own files, and words for people. Never a decision."""

    def prepare(self, folders: Iterable[str]) -> None:
        """Make the folders, where a store has some, and see that it is fit. Idempotent, before the first record.

        Raises ``ConfigurationError`` for a store that is not, ``UnavailableError``.
        """
        ...

    def replace(self, name: str, data: bytes) -> None:
        """Put, whole and durable, over whatever has this name. Raises ``UnavailableError``."""
        ...

    def get_first(self, name: str, size: int) -> bytes | None:
        """Read the first ``size`` bytes, or all where there are fewer; None where nothing has this name.

        Raises ``UnavailableError``.
        """
        ...

    def list_folders(self, folder: str) -> list[str]:
        """Return the names of the folders in a folder (``sources/``, or nothing for the uppermost), unordered."""
        ...

    def tree(self, folder: str) -> list[str]:
        """Return the names of all that is below a folder, in however many folders, unordered; nothing hidden."""
        ...


def put_once(
    store: Store, name: str, data: bytes, *, before_publish: Callable[[], None] | None = None
) -> bytes | None:
    """Put, and return what now stands there: ``data`` itself, durable, if the put is ours.

    A put whose answer did not arrive is repeated, with the same bytes, until one is definite: whichever of them comes
    through, the name is given once, and what stands there tells whose it is. None where the name was taken a moment
    ago and is free again: somebody has folded it. Raises ``UnavailableError`` where nothing was put, and where no
    answer was definite for ``AGAIN_S`` seconds: the next start reads what stands, and contends for the same name where
    nothing does.
    """
    deadline = time.monotonic() + AGAIN_S
    delay = _DELAY_FIRST_S
    asked = False
    while True:
        try:
            if store.put_if_absent(name, data, before_publish=before_publish):
                return data
            asked = True
            standing = store.get(name)
            if standing == data:
                # Ours after all, but perhaps not yet durable: its folder may not have been synced.
                store.sync(name)
        except PutUnknownError as error:
            asked, why = True, str(error)
        except UnavailableError as error:
            if not asked:
                raise
            why = error.what
        else:
            return standing
        if time.monotonic() + delay > deadline:
            raise UnavailableError(
                f"{store.where(name)} could not be put: {AGAIN_S:g} s long no answer told whether it stands: {why}",
                next_step="see to this file system (mount, server) and start the query again: it reads what stands",
            )
        time.sleep(delay)
        delay = min(2 * delay, _DELAY_MAX_S)
