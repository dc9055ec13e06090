"""Reading files of JSON lines on a store, by the store's own interface: what anybody sees who lists it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.errors import UnavailableError
from onceonly_proof.auditor.files import NAME, is_seen, parse_line
from onceonly_proof.auditor.world import Orphan, Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class StoredFilesReader:
    """Reads the lines of all objects in a folder that some reader sees (``is_seen``). Fulfils ``Reader``.

    ``names`` lists a folder, folders with a slash behind; ``read`` gives an object, None where there is none; ``left``
    names what waits there for its commit. A name is never given to other content, so each is read once.
    """

    def __init__(
        self,
        sink: str,
        folder: str,
        *,
        names: Callable[[str], list[str]],
        read: Callable[[str], bytes | None],
        left: Callable[[str], list[str]],
    ) -> None:
        self._sink = sink
        self._folder = folder
        self._names = names
        self._content = read
        self._left = left
        self._read: dict[str, list[Seen]] = {}

    def rows(self) -> Iterator[Seen]:
        """Yield the rows of all visible objects. Raises ``UnavailableError`` where one cannot be read."""
        try:
            for name in sorted(self._visible("")):
                yield from self._rows_of(name)
        except OSError as error:
            raise self._unavailable(error) from error

    def orphans(self) -> list[Orphan]:
        """Return what waits for a commit."""
        try:
            return [Orphan(self._sink, f"staged {name}") for name in self._left(self._folder)]
        except OSError as error:
            raise self._unavailable(error) from error

    def close(self) -> None:
        """Nothing is kept open between calls."""

    def _visible(self, below: str) -> Iterator[str]:
        for name in self._names(f"{self._folder}/{below}".rstrip("/")):
            path = below + name
            if name[0] == ".":
                continue  # nor is anything below
            if name.endswith("/"):
                yield from self._visible(path)
            elif is_seen(*path.split("/")):
                yield path

    def _rows_of(self, name: str) -> list[Seen]:
        if name not in self._read:
            content = self._content(f"{self._folder}/{name}")
            if content is None:
                return []  # it was taken away while we looked
            match = NAME.match(name.rpartition("/")[2])
            transaction = f"{int(match[1])}-{int(match[2])}-{match[3]}" if match else ""
            self._read[name] = [
                Seen(self._sink, *parse_line(line), name, number, transaction)
                for number, line in enumerate(content.splitlines())
            ]
        return self._read[name]

    def _unavailable(self, error: OSError) -> UnavailableError:
        return UnavailableError(
            f"{self._folder} on the store could not be read: {error}",
            next_step="see to the store, then run the audit again",
        )
