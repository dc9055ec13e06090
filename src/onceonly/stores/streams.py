"""Objects that are written piece by piece, and are there as a whole once they are closed. By ``obstore``."""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING, Any, Final

from obstore.exceptions import BaseError

from onceonly.errors import OnceonlyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from obstore import WritableFile

PART_BYTES: Final = 8 << 20
"""What is sent at a time: so much waits in memory, and so much again is on its way."""


class ObjectStream(io.RawIOBase):
    """The bytes of one object, sent a part at a time; a small one whole, when it is closed. One thread.

    ``failed`` makes the typed error of a call that failed, ``remove`` removes what is there.
    """

    def __init__(
        self, file: WritableFile, *, failed: Callable[[Exception], OnceonlyError], remove: Callable[[], None]
    ) -> None:
        self._file, self._failed, self._remove = file, failed, remove
        self._bytes = 0

    def writable(self) -> bool:
        """Return True: it is only written to."""
        return True

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._bytes

    def write(self, data: Any) -> int:  # noqa: ANN401  any buffer
        """Take all bytes; return how many they are."""
        piece = memoryview(data).cast("B")
        try:
            self._file.write(piece)
        except (BaseError, OSError) as error:
            raise self._failed(error) from None
        self._bytes += len(piece)
        return len(piece)

    def close(self) -> None:
        """Complete the object, so that it can be read."""
        if self.closed:
            return
        super().close()
        try:
            self._file.close()
        except (BaseError, OSError) as error:
            raise self._failed(error) from None

    def __del__(self) -> None:
        """Do not complete what nobody has closed, as Python does with other files."""

    def drop(self) -> None:
        """Throw the object away, best effort. An upload in parts only ends when its object is there for a moment."""
        with contextlib.suppress(OnceonlyError):
            self.close()
        with contextlib.suppress(OnceonlyError):
            self._remove()
