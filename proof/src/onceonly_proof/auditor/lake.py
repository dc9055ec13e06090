"""Reading a Delta table on a store by its log, entry by entry, and by the store's own interface.

Neither the tables' library nor any code that writes has a part in it: what is there is what the protocol says.
"""

from __future__ import annotations

import io
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from onceonly.errors import UnavailableError
from onceonly_proof.auditor.world import Orphan, Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ENTRY = re.compile(r"(\d{20})\.json")


class LakeReader:
    """Reads the rows of the newest version of a table; fulfils ``Reader``.

    ``names`` lists a folder, folders with a slash behind; ``read`` gives an object, None where there is none. The log
    must have all of its entries, from the first on.
    """

    def __init__(
        self,
        sink: str,
        folder: str,
        *,
        names: Callable[[str], list[str]],
        read: Callable[[str], bytes | None],
    ) -> None:
        self._sink, self._folder = sink, folder
        self._names, self._content = names, read
        self._read: dict[str, list[dict[str, Any]]] = {}

    def rows(self) -> Iterator[Seen]:
        """Yield the rows of the newest version. Raises ``UnavailableError`` where one cannot be read."""
        for row in self.table():
            yield Seen(self._sink, _bytes(row.get("key")), _bytes(row.get("value")), "", -1, "")

    def table(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of the newest version with all of their columns, those of partitions as texts."""
        for path, values in self.listed().items():
            for row in self._rows_of(path):
                yield {**row, **values}

    def listed(self) -> dict[str, dict[str, str | None]]:
        """Return the data files of the newest version with the values of their partitions."""
        found: dict[str, dict[str, str | None]] = {}
        for entry in self.entries():
            for action in entry:
                if "remove" in action:
                    found.pop(unquote(action["remove"]["path"]), None)
            for action in entry:
                if "add" in action:
                    found[unquote(action["add"]["path"])] = action["add"]["partitionValues"]
        return found

    def entries(self) -> list[list[dict[str, Any]]]:
        """Return the actions of each version, in their order. Raises ``UnavailableError`` for a log with a gap."""
        numbers = sorted(
            int(match[1]) for name in self._list("_delta_log") if (match := _ENTRY.fullmatch(name))
        )
        if numbers != list(range(len(numbers))):
            raise self._unavailable(f"its log has the versions {numbers}")
        return [
            [json.loads(line) for line in self._get(f"_delta_log/{number:020d}.json").splitlines()]
            for number in numbers
        ]

    def epochs(self) -> list[int]:
        """Return the epoch that each version of ours notes, in their order."""
        infos = (
            action["commitInfo"] for entry in self.entries() for action in entry if "commitInfo" in action
        )
        return [int(info["onceonly"]["epoch"]) for info in infos if "onceonly" in info]

    def orphans(self) -> list[Orphan]:
        """Return the data files that the log does not name."""
        listed = self.listed()
        return [
            Orphan(self._sink, f"data file {path}")
            for path in sorted(below(self._list, "onceonly"))
            if path.endswith(".parquet") and path not in listed
        ]

    def notes(self) -> list[str]:
        """Return the attempts that are noted as not committed yet."""
        return sorted(path for path in below(self._list, "onceonly") if "/_open/" in path)

    def close(self) -> None:
        """Nothing is kept open between calls."""

    def _rows_of(self, path: str) -> list[dict[str, Any]]:
        import pyarrow.parquet as pq

        if path not in self._read:  # a name is never given to other content
            self._read[path] = pq.ParquetFile(io.BytesIO(self._get(path))).read().to_pylist()
        return self._read[path]

    def _list(self, folder: str) -> list[str]:
        try:
            return self._names(f"{self._folder}/{folder}")
        except OSError as error:
            raise self._unavailable(str(error)) from error

    def _get(self, path: str) -> bytes:
        try:
            content = self._content(f"{self._folder}/{path}")
        except OSError as error:
            raise self._unavailable(str(error)) from error
        if content is None:
            raise self._unavailable(f"its log names {path}, which is not there")
        return content

    def _unavailable(self, why: str) -> UnavailableError:
        return UnavailableError(
            f"the table {self._folder} on the store could not be read: {why}",
            next_step="see to the store, then run the audit again",
        )


def below(names: Callable[[str], list[str]], folder: str) -> Iterator[str]:
    """Yield the paths of all that lies below a folder; ``names`` lists one, folders with a slash behind."""
    for name in names(folder):
        if name.endswith("/"):
            yield from below(names, f"{folder}/{name.rstrip('/')}")
        else:
            yield f"{folder}/{name}"


def _bytes(value: object) -> bytes | None:
    return None if value is None else str(value).encode()
