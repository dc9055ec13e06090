"""What a campaign's queries write to beside Kafka and files: made for it, killed by its faults, read by its own client.

Campaign's process.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from onceonly_proof.auditor import DatabaseReader, Orphan, tables
from onceonly_proof.auditor.stored import StoredFilesReader
from onceonly_proof.embedded.mariadb import PASSWORD, EmbeddedMariaDb
from onceonly_proof.embedded.postgres import EmbeddedPostgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from onceonly_proof.auditor import Reader, Seen
    from onceonly_proof.embedded.process import EmbeddedServer

S = TypeVar("S", bound="EmbeddedServer")
STAGED: Final = "onceonly/staged"
"""Where rows wait in a checkpoint, below it a folder for each query and one for each of its sinks."""


class Target(Protocol):
    """A system that sinks write to."""

    @property
    def has_server(self) -> bool:
        """Whether there is a server that can be killed."""
        ...

    def options(self, name: str) -> dict[str, str]:
        """Make an empty place of this name for two columns of text, key and value; return a sink's options for it."""
        ...

    def reader(self, sink: str, name: str) -> Reader:
        """Return a reader of such a place, by the system's own client."""
        ...

    def kill(self) -> None:
        """End its server with SIGKILL. Idempotent."""
        ...

    def start(self) -> None:
        """Start what was killed, and wait until it answers. Raises ``SetupError``."""
        ...

    def close(self) -> None:
        """End it. Idempotent."""
        ...


class _Unserved:
    """A target without a server of its own that could be killed."""

    has_server = False

    def kill(self) -> None:
        """There is no server."""

    def start(self) -> None:
        """There is no server."""

    def close(self) -> None:
        """There is no server."""


class _Served(Generic[S]):
    """A target on a server of its own. Made by starting it."""

    has_server = True

    def __init__(self, server: S) -> None:
        self._server = server
        server.start()

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()

    def close(self) -> None:
        self._server.close()


class Sqlite(_Unserved):
    """Databases in a file."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._file = folder / "rows.db"

    def options(self, name: str) -> dict[str, str]:
        with closing(sqlite3.connect(self._file)) as db, db:
            db.execute(f'CREATE TABLE "{name}" ("key" TEXT, "value" TEXT)')
        return {"url": f"sqlite:///{self._file}", "table": f'"{name}"'}

    def reader(self, sink: str, name: str) -> Reader:
        return DatabaseReader(
            sink,
            lambda: sqlite3.connect(self._file, timeout=60),
            f'SELECT "key", "value" FROM "{name}"',  # noqa: S608
        )


class MySql(_Served[EmbeddedMariaDb]):
    """A MariaDB."""

    def __init__(self, folder: Path) -> None:
        super().__init__(EmbeddedMariaDb(folder))

    def options(self, name: str) -> dict[str, str]:
        self._server.sql(f"CREATE TABLE `{name}` (`key` LONGTEXT, `value` LONGTEXT)")
        return {"url": self._server.url, "table": f'"{name}"', "password": PASSWORD}

    def reader(self, sink: str, name: str) -> Reader:
        return DatabaseReader(sink, self._connect, f"SELECT `key`, `value` FROM `{name}`")  # noqa: S608

    def _connect(self) -> Any:  # noqa: ANN401  the client's own
        return self._server.connect()


class Postgres(_Served[EmbeddedPostgres]):
    """A PostgreSQL."""

    def __init__(self, folder: Path) -> None:  # noqa: ARG002  it chooses one that its user can reach
        super().__init__(EmbeddedPostgres())

    def options(self, name: str) -> dict[str, str]:
        with closing(self._connect()) as db:
            db.execute(f'CREATE TABLE "{name}" ("key" TEXT, "value" TEXT)')
            db.commit()
        return {"url": self._server.url(), "table": f'"{name}"'}

    def reader(self, sink: str, name: str) -> Reader:
        return DatabaseReader(sink, self._connect, f'SELECT "key", "value" FROM "{name}"')  # noqa: S608

    def _connect(self) -> Any:  # noqa: ANN401  as above
        import psycopg

        return psycopg.connect(self._server.url(), connect_timeout=5)


class Delta(_Unserved):
    """Delta tables in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder

    def options(self, name: str) -> dict[str, str]:
        import pyarrow as pa
        from deltalake import DeltaTable

        DeltaTable.create(self._folder / name, pa.schema([("key", pa.string()), ("value", pa.string())]))
        return {"path": str(self._folder / name)}

    def reader(self, sink: str, name: str) -> Reader:
        return tables.delta(sink, self._folder / name)


class Iceberg(_Unserved):
    """Iceberg tables in a folder, with a catalogue in a file."""

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

    def reader(self, sink: str, name: str) -> Reader:
        return tables.iceberg(sink, self._place, f"rows.{name}")


class StoredFiles(_Unserved):
    """Folders of files on the store of the checkpoints, which has faults of its own.

    ``names``, ``read`` and ``left`` are of paths below ``root``: what is in a folder, in a file, and what waits there.
    """

    def __init__(
        self,
        root: str,
        names: Callable[[str], list[str]],
        read: Callable[[str], bytes | None],
        left: Callable[[str], list[str]],
    ) -> None:
        self._root = root
        self._names, self._read, self._left = names, read, left

    def options(self, name: str) -> dict[str, str]:
        return {"path": f"{self._root}/files-{name}", "format": "json"}

    def reader(self, sink: str, name: str) -> Reader:
        return StoredFilesReader(sink, f"files-{name}", names=self._names, read=self._read, left=self._left)


TARGETS: Final[Mapping[str, Callable[[Path], Target]]] = {
    "sqlite": Sqlite,
    "mysql": MySql,
    "postgres": Postgres,
    "delta": Delta,
    "iceberg": Iceberg,
}
"""By the name of the sink."""
SERVED: Final = frozenset({"mysql", "postgres"})
"""Those that have a server, which can be killed."""


class WithStaged:
    """A reader that also looks at what its sink has staged in a checkpoint; fulfils ``Reader``."""

    def __init__(self, reader: Reader, sink: str, staged: Path) -> None:
        self._reader = reader
        self._sink = sink
        self._staged = staged

    def rows(self) -> Iterator[Seen]:
        return self._reader.rows()

    def orphans(self) -> list[Orphan]:
        left = [path for path in sorted(self._staged.rglob("*")) if path.is_file()]
        return [*self._reader.orphans(), *(Orphan(self._sink, f"staged rows {path.name}") for path in left)]

    def close(self) -> None:
        self._reader.close()
