"""Delta tables in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from onceonly_proof.auditor import tables
from onceonly_proof.campaign.targets.port import Unserved

if TYPE_CHECKING:
    from onceonly_proof.auditor.tables import TableReader


class Delta(Unserved):
    """One folder a table."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder

    def options(self, name: str) -> dict[str, str]:
        import pyarrow as pa
        from deltalake import DeltaTable

        DeltaTable.create(self._folder / name, pa.schema([("key", pa.string()), ("value", pa.string())]))
        return {"path": str(self._folder / name)}

    def reader(self, sink: str, name: str) -> TableReader:
        return tables.delta(sink, self._folder / name)

    def waiting(self, name: str) -> list[Path]:
        return [Path(path) for path in self.reader("delta", name).unlisted()]
