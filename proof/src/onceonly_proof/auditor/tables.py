"""Reading a Delta or an Iceberg table as any program would, by the tables' own libraries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceonly_proof.auditor.world import Orphan, Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class TableReader:
    """Reads the rows of the newest version of a table; fulfils ``Reader``.

    ``read`` gives the table in Arrow, with the columns ``key`` and ``value``; ``listed`` the data files that its log
    names. ``folder`` is where its data files lie: those that no log names are left by somebody.
    """

    def __init__(
        self, sink: str, folder: Path, *, read: Callable[[], Any], listed: Callable[[], set[Path]]
    ) -> None:
        self._sink = sink
        self._folder = folder
        self._read = read
        self._listed = listed

    def rows(self) -> Iterator[Seen]:
        """Yield the rows of the newest version."""
        table = self._read()
        for key, value in zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True):
            yield Seen(self._sink, _bytes(key), _bytes(value), "", -1, "")

    def orphans(self) -> list[Orphan]:
        """Return the data files that the log does not name."""
        return [Orphan(self._sink, f"data file {path.name} in {path.parent}") for path in self.unlisted()]

    def unlisted(self) -> list[Path]:
        """Return the data files that the log does not name, sorted."""
        return sorted(set(self._folder.rglob("onceonly/**/*.parquet")) - self._listed())

    def close(self) -> None:
        """Nothing is kept open between calls."""


def delta(sink: str, folder: Path) -> TableReader:
    """Return a reader of a Delta table, by deltalake."""
    from deltalake import DeltaTable

    return TableReader(
        sink,
        folder,
        read=lambda: DeltaTable(folder).to_pyarrow_table(),
        listed=lambda: {Path(uri) for uri in DeltaTable(folder).file_uris()},
    )


def iceberg(sink: str, place: Mapping[str, str], table: str) -> TableReader:
    """Return a reader of an Iceberg table, by pyiceberg; ``place`` are the properties of a catalogue in a file."""
    from pyiceberg.catalog.sql import SqlCatalog

    def scan() -> Any:  # noqa: ANN401  pyiceberg's own
        with SqlCatalog("default", **place) as catalog:
            return catalog.load_table(table).scan()

    warehouse = Path(place["warehouse"].removeprefix("file://"))
    return TableReader(
        sink,
        warehouse.joinpath(*table.split(".")),
        read=lambda: scan().to_arrow(),
        listed=lambda: {Path(task.file.file_path.removeprefix("file://")) for task in scan().plan_files()},
    )


def _bytes(value: object) -> bytes | None:
    return None if value is None else str(value).encode()
