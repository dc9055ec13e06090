"""Reading a Delta or an Iceberg table as any program would, by the tables' own libraries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceonly.errors import UnavailableError
from onceonly_proof.auditor.world import Orphan, Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class TableReader:
    """Reads the rows of the newest version of a table; fulfils ``Reader``.

    ``read`` gives the table in Arrow, with the columns ``key`` and ``value``; ``listed`` the data files that its log
    names. ``present`` are those that lie there: what no log names is left by somebody.
    """

    def __init__(
        self,
        sink: str,
        *,
        read: Callable[[], Any],
        listed: Callable[[], set[str]],
        present: Callable[[], set[str]],
    ) -> None:
        self._sink = sink
        self._read = read
        self._listed = listed
        self._present = present

    def rows(self) -> Iterator[Seen]:
        """Yield the rows of the newest version. Raises ``UnavailableError`` where its store does not answer."""
        try:
            table = self._read()
        except OSError as error:
            raise self._unavailable(error) from error
        for key, value in zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True):
            yield Seen(self._sink, _bytes(key), _bytes(value), "", -1, "")

    def orphans(self) -> list[Orphan]:
        """Return the data files that the log does not name."""
        return [Orphan(self._sink, f"data file {path}") for path in self.unlisted()]

    def unlisted(self) -> list[str]:
        """Return the data files that the log does not name, sorted. Raises ``UnavailableError``, as ``rows``."""
        try:
            present = {path for path in self._present() if "/onceonly/" in path and path.endswith(".parquet")}
            return sorted(present - self._listed())
        except OSError as error:
            raise self._unavailable(error) from error

    def close(self) -> None:
        """Nothing is kept open between calls."""

    def _unavailable(self, why: OSError) -> UnavailableError:
        return UnavailableError(
            f"the table of {self._sink} could not be read: {why}",
            next_step="see to its store, then run the audit again",
        )


def delta(sink: str, folder: Path) -> TableReader:
    """Return a reader of a Delta table, by deltalake."""
    from deltalake import DeltaTable

    return TableReader(
        sink,
        read=lambda: DeltaTable(folder).to_pyarrow_table(),
        listed=lambda: set(DeltaTable(folder).file_uris()),
        present=lambda: _below(folder),
    )


def iceberg(
    sink: str, place: Mapping[str, str], table: str, *, present: Callable[[], set[str]] | None = None
) -> TableReader:
    """Return a reader of an Iceberg table, by pyiceberg; ``place`` are the properties of a catalogue in a file.

    ``present`` lists the files of its warehouse where that is no folder of this machine.
    """
    from pyiceberg.catalog.sql import SqlCatalog

    def scan() -> Any:  # noqa: ANN401  pyiceberg's own
        with SqlCatalog("default", **place) as catalog:
            return catalog.load_table(table).scan()

    warehouse = Path(place["warehouse"].removeprefix("file://"))
    return TableReader(
        sink,
        read=lambda: scan().to_arrow(),
        listed=lambda: {task.file.file_path.removeprefix("file://") for task in scan().plan_files()},
        present=present or (lambda: _below(warehouse.joinpath(*table.split(".")))),
    )


def _below(folder: Path) -> set[str]:
    return set(map(str, folder.rglob("*")))


def _bytes(value: object) -> bytes | None:
    return None if value is None else str(value).encode()
