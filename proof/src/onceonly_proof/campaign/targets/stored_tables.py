"""Delta and Iceberg tables in a bucket of the store of the checkpoints, which has faults of its own.

Others make and read them: the tables' own libraries with keys of their own, and the server's own interface.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly_proof.auditor import tables
from onceonly_proof.auditor.lake import LakeReader, below
from onceonly_proof.campaign.targets.port import Unserved

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from onceonly_proof.auditor.tables import TableReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A folder of a bucket as other programs see it.

    ``hadoop`` is what Hadoop is told of it. ``names`` lists a folder in it, folders with a slash behind, and ``read``
    gives an object, None where there is none.
    """

    name: str
    folder: str
    hadoop: Mapping[str, str]
    names: Callable[[str], list[str]]
    read: Callable[[str], bytes | None]

    @property
    def uri(self) -> str:
        """The address of the folder, as the tables' libraries spell it."""
        return f"s3://{self.name}/{self.folder}"

    def told(self, setting: str) -> str:
        """Return what Hadoop is told by one of its settings."""
        return self.hadoop[f"fs.s3a.{setting}"]


class StoredDelta(Unserved):
    """One folder a table. It is read entry by entry, with no library of tables."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def options(self, name: str) -> dict[str, str]:
        import pyarrow as pa
        from deltalake import DeltaTable

        told = self._bucket.told
        by = {
            "endpoint": told("endpoint"), "region": told("endpoint.region"), "allow_http": "true",
            "access_key_id": told("access.key"), "secret_access_key": told("secret.key"), "conditional_put": "etag",
        }  # fmt: skip
        columns = pa.schema([("key", pa.string()), ("value", pa.string())])
        place = f"{self._bucket.uri}/{_folder(name)}"
        DeltaTable.create(place, columns, storage_options=by)
        return {"path": place.replace("s3:", "s3a:", 1)}

    def reader(self, sink: str, name: str) -> LakeReader:
        return LakeReader(sink, _folder(name), names=self._bucket.names, read=self._bucket.read)


class StoredIceberg(Unserved):
    """Tables of one catalogue, which is a file of this machine."""

    def __init__(self, bucket: Bucket, folder: Path) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        folder.mkdir(parents=True)
        self._bucket = bucket
        self._place = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{bucket.uri}/warehouse"}
        keys = {"access-key-id": "access.key", "secret-access-key": "secret.key"}
        of_others = {"endpoint": "endpoint", "region": "endpoint.region", **keys}
        self._by = {f"s3.{theirs}": bucket.told(setting) for theirs, setting in of_others.items()}
        with SqlCatalog("default", **self._place, **self._by) as catalog:
            catalog.create_namespace("rows")

    def options(self, name: str) -> dict[str, str]:
        import pyarrow as pa
        from pyiceberg.catalog.sql import SqlCatalog

        columns = pa.schema([("key", pa.string()), ("value", pa.string())])
        with SqlCatalog("default", **self._place, **self._by) as catalog:
            catalog.create_table(f"rows.{name}", columns)
        # The sink finds its keys where Spark's checkpoint has them.
        properties = {f"catalog.{each}": value for each, value in self._place.items()}
        return {"table": f"rows.{name}", "catalog.type": "sql", **properties}

    def reader(self, sink: str, name: str) -> TableReader:
        return tables.iceberg(
            sink,
            {**self._place, **self._by},
            f"rows.{name}",
            present=lambda: {
                f"{self._bucket.uri}/{path}" for path in below(self._bucket.names, f"warehouse/rows/{name}")
            },
        )


def _folder(name: str) -> str:
    return f"table-{name}"
