"""A real MariaDB server on loopback, out of a jar that holds its binaries: gone with the process. Linux on x86-64.

::

    with EmbeddedMariaDb() as db:
        db.sql("CREATE TABLE results (id BIGINT PRIMARY KEY)")
        ...  # db.url
        db.kill()  # SIGKILL, as in a power cut
        db.start()  # the same data on the same port
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceonly.errors import SetupError
from onceonly.jars.locked import cache_folder
from onceonly_proof.embedded.jars import mariadb_jar
from onceonly_proof.embedded.ports import free_ports
from onceonly_proof.embedded.process import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pymysql

DATABASE = "onceonly"
PASSWORD = "secret-of-a-test"  # noqa: S105  of a server that lives as long as the test
_READY_S = 60.0
_STOP_S = 30.0
_POLL_S = 0.05
_SYSTEM = ("linux", "x86_64")
_INSIDE = "/linux/"
_PARTS = ("bin/mariadbd", "share/charsets/", "share/english/", "share/mariadb_")
_TABLES = ("mariadb_system_tables.sql", "mariadb_performance_tables.sql", "mariadb_system_tables_data.sql")
_SETTINGS = {
    "bind-address": "127.0.0.1",
    "innodb-buffer-pool-size": "64M",
    # SIGKILL loses nothing that the kernel has.
    "innodb-flush-method": "nosync",
    "innodb-log-file-size": "16M",
    "innodb-undo-tablespaces": "0",
    "performance-schema": "OFF",
    "skip-name-resolve": "ON",
    "local-infile": "ON",
    "ssl": "OFF",  # it would draw a key of its own at each start, which takes seconds
}


class EmbeddedMariaDb(EmbeddedServer):
    """One server with a database and a user of its own. Not shared between threads.

    ``settings`` are the server's own, over those chosen here, as ``{"local-infile": "OFF"}``.
    """

    title = "the MariaDB server"
    lines_shown = 15
    usual = "a full disk and a library that is missing"

    def __init__(self, directory: Path | None = None, *, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, prefix="mariadb")
        self._settings = {**_SETTINGS, **(settings or {})}
        self._ports: list[int] = []

    @property
    def port(self) -> int:
        """The same through restarts. Known once it was started."""
        return self._ports[0]

    @property
    def url(self) -> str:
        """The address of the database, as a sink takes it. Its password is ``PASSWORD``."""
        return f"mysql://onceonly@127.0.0.1:{self.port}/{DATABASE}"

    @property
    def pid(self) -> int | None:
        """The server's process id, or None while it is down."""
        if self._process is None or self._process.has_ended():
            return None
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it answers; after a kill, on the same port. Idempotent while it runs.

        Raises:
            SetupError: there is no MariaDB and none to be fetched, or it did not come up; shows its last words.
        """
        if self.pid is not None:
            return
        found = unpacked()
        self._ports = self._ports or free_ports(1)
        self.directory.mkdir(parents=True, exist_ok=True)
        is_new = not (self._data / "mysql").is_dir()
        if is_new:
            self._format(found)
        own = [
            f"--port={self.port}",
            f"--socket={self.directory / 's'}",
            f"--pid-file={self.directory / 'pid'}",
        ]
        self._process = self._launch([*_server(found, self._data), *own, *self._given()])
        self._await(self._answers, within_s=_READY_S, poll_s=_POLL_S)
        if is_new:
            self._make_user()

    def connect(self, database: str | None = DATABASE) -> pymysql.Connection[Any]:
        """Connect as its administrator; each statement is a transaction of its own. Raises ``pymysql.Error``."""
        import pymysql

        return pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", database=database, autocommit=True, connect_timeout=5
        )  # fmt: skip

    def sql(self, *statements: str, database: str | None = DATABASE) -> list[tuple[Any, ...]]:
        """Run statements as its administrator; return the rows of the last one. Raises ``pymysql.Error``."""
        with self.connect(database) as made, made.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def stop(self) -> None:
        """Let it shut down in order; its data stay. Idempotent; bounded by 30 s."""
        if self._process is not None:
            self._process.stop(_STOP_S)
            self._process = None

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _given(self) -> list[str]:
        return [f"--{name}={value}" for name, value in self._settings.items()]

    def _format(self, found: Path) -> None:
        """Make the tables of the server itself, as its own script does, without those of its help."""
        self._data.mkdir(exist_ok=True)
        # Here a statement ends with its line.
        begin = "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;\nSET @skip_auth_anonymous = 1;\n"
        tables = "\n".join((found / "share" / name).read_text(encoding="utf-8") for name in _TABLES)
        command = [
            *_server(found, self._data),
            "--bootstrap",
            "--skip-grant-tables",
            "--innodb-log-file-size=16M",
        ]
        with self._log.open("ab") as log:
            try:
                subprocess.run(
                    command, input=(begin + tables).encode(), stdout=log, stderr=log, timeout=_READY_S, check=True,
                )  # fmt: skip
            except subprocess.SubprocessError as error:
                raise self._failure("could not make its tables") from error

    def _make_user(self) -> None:
        self.sql(
            f"CREATE DATABASE {DATABASE}",
            f"CREATE USER onceonly@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'",
            f"GRANT ALL ON {DATABASE}.* TO onceonly@'127.0.0.1'",
            database=None,
        )

    def _answers(self) -> bool:
        import pymysql

        try:
            self.connect(None).close()
        except pymysql.Error:
            return False
        return True


def unpacked() -> Path:
    """Return the folder of the server's binaries; unpacked once into the cache, at once or not at all.

    Raises:
        SetupError: there is none for this machine, or it could not be fetched.
    """
    if (platform.system().lower(), platform.machine()) != _SYSTEM:
        raise SetupError(
            f"the embedded MariaDB runs on Linux on x86-64, and this is {platform.system()} on {platform.machine()}",
            next_step="run it on such a machine",
        )
    jar = mariadb_jar()
    folder = cache_folder() / jar.stem
    if not folder.is_dir():
        with (
            tempfile.TemporaryDirectory(dir=folder.parent, prefix=".mariadb-") as made,
            zipfile.ZipFile(jar) as archive,
        ):
            for name in archive.namelist():
                part = name.partition(_INSIDE)[2]
                if part.startswith(_PARTS) and not part.endswith("/"):
                    path = Path(made, "root", part)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with archive.open(name) as data, path.open("wb") as file:
                        shutil.copyfileobj(data, file)
            Path(made, "root/bin/mariadbd").chmod(0o755)
            with contextlib.suppress(OSError):  # another process was quicker
                Path(made, "root").rename(folder)
    return folder


def _server(found: Path, data: Path) -> list[str]:
    # Without being told so, it refuses to run as root.
    user = ["--user=root"] if os.geteuid() == 0 else []
    share = [f"--lc-messages-dir={found / 'share'}", f"--character-sets-dir={found / 'share/charsets'}"]
    return [str(found / "bin/mariadbd"), "--no-defaults", f"--datadir={data}", *share, *user]
