"""Iceberg tables in a folder, with a catalogue in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from onceonly_proof.auditor import tables
from onceonly_proof.campaign.targets.port import Unserved

if TYPE_CHECKING:
    from onceonly_proof.auditor.tables import TableReader


class Iceberg(Unserved):
    """Tables of one catalogue."""

    def __init__(self, folder: Path) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        folder.mkdir(parents=True)
        self._place = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
        with SqlCatalog("default", **self._place) as catalog:
            catalog.create_namespace("rows")

    def options(self, name: str) -> dict[str, str]:
        import pyarrow as pa
        from pyiceberg.catalog.sql import SqlCatalog

        with SqlCatalog("default", **self._place) as catalog:
            catalog.create_table(f"rows.{name}", pa.schema([("key", pa.string()), ("value", pa.string())]))
        properties = {f"catalog.{each}": value for each, value in self._place.items()}
        return {"table": f"rows.{name}", "catalog.type": "sql", **properties}

    def reader(self, sink: str, name: str) -> TableReader:
        return tables.iceberg(sink, self._place, f"rows.{name}")

    def waiting(self, name: str) -> list[Path]:
        return [Path(path) for path in self.reader("iceberg", name).unlisted()]
