"""MySQL and MariaDB, strict for as long as a session lasts: what a column would change is an error, or a warning."""

from __future__ import annotations

import os
import re
import ssl
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from onceonly.errors import (
    ConfigurationError,
    OnceonlyError,
    RecordRefusedError,
    SetupError,
    UnavailableError,
    required,
)
from onceonly.sinks.sql.dialects.dialect import BOOKS, Dialect
from onceonly.sinks.sql.dialects.mysql_loading import load
from onceonly.sinks.sql.dialects.mysql_packets import send
from onceonly.sinks.sql.dialects.mysql_tables import EXPLAINED, KEYS, TEMPORARY, TYPES, automatic, described
from onceonly.sinks.sql.reading import ROWS
from onceonly.sinks.sql.shape import DELETED, SEQUENCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from onceonly.sinks.sql.options import SqlOptions, Url
    from onceonly.sinks.sql.types import Given, Match, Table

_PORT: Final = 3306
_OLDEST: Final = {"MariaDB": (10, 5), "MySQL": (8, 0)}
# Without NO_ZERO_DATE: no row brings one, and a table whose column has it by default would take no row at all.
_MODE = "STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO"
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})
_QUERY = ("ssl_ca", "ssl_cert", "ssl_key", "ssl_disabled", "unix_socket")
_INTS = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}
_DIGITS_MAX, _SCALE_MAX = 65, 30
_DUPLICATE = frozenset({1022, 1062, 1169, 1586})
_REFUSED = _DUPLICATE | {
    1048, 1118, 1216, 1217, 1263, 1264, 1265, 1292, 1364, 1366, 1406, 1411, 1451, 1452, 1526, 1557, 1644, 1690, 1748,
    1761, 1762, 3140, 3730, 3819, 3903, 4025, 4078,
}  # fmt: skip
"""A value, a constraint, a partition, a trigger."""
_DISK_FULL = frozenset({1021, 1114})
"""A file system has no room, or a tablespace may not grow."""
_NO_SPACE = re.compile(r"No space left on device|Got error 28 |Errcode: 28\b")
_TOO_LATE, _CUT = frozenset({1205, 1969, 3024}), 2013
_LOGIN = frozenset({1045, 1698, 1862, 2059, 3118, 3955, 4151})
_RIGHTS = frozenset({1044, 1142, 1143, 1227, 1370})
_NUMBER = "onceonly_row BIGINT AUTO_INCREMENT PRIMARY KEY"
_FLUSHES = ("innodb_flush_log_at_trx_commit",)
_LOSSY = f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ('{_FLUSHES[0]}', 'log_bin', 'sync_binlog')"
_IS_THERE, _SIGNAL = 1050, "45"
_SHORT = 24
"""The mantissa of a FLOAT, in bits."""
_READ_ONLY = frozenset({1290, 1792, 1836, 3708})
_MISSING = frozenset({1049, 1054, 1146, 1109})
_INSECURE = 3159
_MEND = "mend the row, or what the table asks of it"
_TLS = "let url say by what the server proves who it is, ?ssl_ca=<file>; ssl_disabled=true takes whatever is said"
_TO_ACT: Final[Mapping[frozenset[int], str]] = {
    _LOGIN: "correct user and password (option password or password.file)",
    _RIGHTS: "grant the user SELECT, INSERT, UPDATE and DELETE on the table, SELECT, INSERT and DELETE on the books, "
    "and with a key CREATE TEMPORARY TABLES on the database",
    _READ_ONLY: "name the server that takes writes, and not a replica of it",
    _MISSING: "make it, or correct url and table (capitals may count)",
    frozenset({1665}): "let the server write rows to its binary log (binlog_format MIXED or ROW)",
    frozenset({1153, 1162, 1301, 2020}): "let the server take larger packets (max_allowed_packet)",
}


class MySql(Dialect):
    """A MariaDB or a MySQL server, by PyMySQL."""

    mark = "%s"
    staging = "`onceonly_rows`"

    def __init__(self, options: SqlOptions) -> None:
        super().__init__(options)
        url = options.url
        unknown = sorted(set(url.query) - set(_QUERY))
        if not url.path or "/" in url.path or "," in url.hosts or unknown:
            raise ConfigurationError(
                f"The option url names no database of a server: {url}{f' with {unknown[0]}' if unknown else ''}.",
                next_step=f"write mysql://user@host:3306/database; behind ? may be {', '.join(_QUERY)}",
            )
        self._loads = False
        self._automatic: dict[str, set[str]] = {}
        """By table, the column to which the server gives numbers of its own."""

    # --- the client -----------------------------------------------------------------------------------------

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        return (_client().Error,)

    def told(self, error: Exception) -> OnceonlyError:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        said = f"{error.args[1] if len(error.args) > 1 else error} ({code or 'no code'})"
        what = f"{self.options.url}: {said}"
        if code in _REFUSED:
            return RecordRefusedError(what, next_step=_MEND)
        if code == _INSECURE or "certificate" in what or "SSL" in what:
            return ConfigurationError(what, next_step=_TLS)
        for codes, next_step in _TO_ACT.items():
            if code in codes:
                return ConfigurationError(what, next_step=next_step)
        if code in _DISK_FULL or _NO_SPACE.search(said):
            return self.no_room(said)
        if code in _TOO_LATE or (code == _CUT and "timed out" in said):
            return self.too_late(what)
        # A trigger's own word on a row has whatever number that gives it; an older client does not tell its state.
        state = str(getattr(error, "sqlstate", None) or "")
        if isinstance(error, _client().DataError) or state.startswith(_SIGNAL):
            return RecordRefusedError(what, next_step=_MEND)
        return UnavailableError(what, next_step="see to the server and to its log, and start the query again")

    def is_duplicate(self, error: Exception) -> bool:
        return bool(error.args) and error.args[0] in _DUPLICATE

    def is_forbidden(self, error: Exception) -> bool:
        # A table on which the user has no right at all is not shown to it, and cannot be made.
        return bool(error.args) and error.args[0] in _RIGHTS | {_IS_THERE}

    def grant(self, db: Any, name: tuple[str, ...], rights: str = BOOKS) -> str:  # noqa: ANN401
        return f"GRANT {rights} ON {self.path(name)} TO {self._account(db)}"

    def lacks(self, db: Any, name: tuple[str, ...], right: str, columns: Sequence[str]) -> bool:  # noqa: ANN401
        # To have a statement explained, one needs the rights to run it, by whatever role or pattern they came.
        return all(
            self._is_kept_from(db, EXPLAINED[right].format(self.path(name), self.quote(each)))
            for each in columns or [""]
        )

    def _is_kept_from(self, db: Any, statement: str) -> bool:  # noqa: ANN401
        try:
            self.run(db, f"EXPLAIN {statement}")
        except self.errors as error:
            return bool(error.args) and error.args[0] in _RIGHTS
        return False

    def lacks_temporary(self, db: Any) -> str:  # noqa: ANN401
        told = " ".join(row[0] for row in self.run(db, "SHOW GRANTS"))
        if TEMPORARY.search(told):
            return ""
        place = f"{self.quote(self.options.url.path)}.*"
        return f"GRANT CREATE TEMPORARY TABLES ON {place} TO {self._account(db)}"

    def lossy(self, db: Any) -> str:  # noqa: ANN401
        found = dict(self.run(db, _LOSSY))
        # What is in the log of the engine alone is taken back after a crash, where there is one of the server's, too.
        names = _FLUSHES if found.get("log_bin", "OFF") == "OFF" else (*_FLUSHES, "sync_binlog")
        lossy = [name for name in names if found.get(name, "1") != "1"]  # another engine has no such
        return " and ".join(f"{name} = {found[name]}, and not 1" for name in lossy)

    def _account(self, db: Any) -> str:  # noqa: ANN401
        [(account,)] = self.run(db, "SELECT CURRENT_USER()")
        user, _, host = account.rpartition("@")
        return f"'{user}'@'{host}'"

    def connect(self) -> Any:  # noqa: ANN401
        options, url = self.options, self.options.url
        host, port = _place(url)
        tls, is_plain = _tls(url, host), _is_plain(url, host)
        password = (options.password.read() or "").encode()  # else the client takes it for Latin 1
        try:
            db = _client().connect(
                host=host, port=port, user=url.user or None, password=password, database=url.path,
                unix_socket=url.query.get("unix_socket"), ssl=tls, ssl_disabled=is_plain,
                charset="utf8mb4", local_infile=True, autocommit=True, connect_timeout=max(1, int(options.connect_s)),
                read_timeout=options.statement_s + options.connect_s, write_timeout=options.statement_s,
                program_name="onceonly",
            )  # fmt: skip
        except RuntimeError as error:  # a package that this way to log in needs
            raise SetupError(
                f"{url} asks for a log-in that PyMySQL cannot do alone: {error}",
                next_step="install what it names, as by pip install 'PyMySQL[rsa]', on the driver; or let url ask for "
                "TLS (ssl_disabled=false), over which a password needs nothing more",
            ) from error
        try:
            self._set_up(db)
        except BaseException:  # an interrupt, too
            db.close()
            raise
        return db

    def _set_up(self, db: Any) -> None:  # noqa: ANN401
        [(text, loads)] = self.run(db, "SELECT VERSION(), @@local_infile")
        kind = "MariaDB" if "mariadb" in text.lower() else "MySQL"
        version = tuple(map(int, re.findall(r"\d+", text.removeprefix("5.5.5-"))[:2]))
        if version < _OLDEST[kind]:
            oldest = ".".join(map(str, _OLDEST[kind]))
            raise ConfigurationError(
                f"{self.options.url} is {kind} {text}", next_step=f"take {kind} {oldest} or newer"
            )
        self._loads = bool(loads)
        seconds = max(1, int(self.options.statement_s))
        limit = (
            f"max_statement_time = {seconds}"
            if kind == "MariaDB"
            else f"max_execution_time = {seconds * 1000}"
        )
        self.run(db, f"SET SESSION sql_mode = '{_MODE}', time_zone = '+00:00', foreign_key_checks = 1, "
                     f"unique_checks = 1, sql_safe_updates = 0, innodb_lock_wait_timeout = {seconds}, "
                     f"{limit}")  # fmt: skip
        self.run(db, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")

    def begin(self, db: Any) -> None:  # noqa: ANN401
        self.run(db, "START TRANSACTION")

    def commit(self, db: Any) -> None:  # noqa: ANN401
        self.run(db, "COMMIT")

    def run(self, db: Any, sql: str, values: Sequence[object] = ()) -> list[Any]:  # noqa: ANN401
        with closing(db.cursor()) as cursor:
            cursor.execute(sql, tuple(values))
            return list(cursor.fetchall())

    def write(self, db: Any, sql: str) -> int:  # noqa: ANN401
        with closing(db.cursor()) as cursor:
            return int(cursor.execute(sql, ()))  # as ``run``: a percent sign is written twice

    # --- the table ------------------------------------------------------------------------------------------

    def describe(self, db: Any, name: tuple[str, ...]) -> Table | None:  # noqa: ANN401
        schema = name[0] if len(name) > 1 else self.options.url.path

        def ask(sql: str, *values: object) -> list[Any]:
            return self.run(db, sql, values)

        options = self.options
        found = described(ask, schema, name[-1], key=options.key, deletes=bool(options.op))
        if found is not None:
            self._automatic[found.name] = automatic(ask, schema, name[-1])
        return found

    def hold(self, db: Any) -> None:  # noqa: ANN401
        # Whoever has read of a table keeps its columns as they are until the end of the transaction.
        self.run(db, f"SELECT 1 FROM {self.path(self.options.table)} LIMIT 1")

    def type_of(self, given: Given, *, is_key: bool) -> str:
        if given.kind == "int":
            return _INTS[given.size]
        if given.kind == "float":
            return "" if is_key else "FLOAT" if given.size == 32 else "DOUBLE"  # noqa: PLR2004  bits
        if given.kind == "decimal":
            fits = given.size <= _DIGITS_MAX and 0 <= given.scale <= _SCALE_MAX
            return f"DECIMAL({given.size}, {given.scale})" if fits else ""
        if is_key and given.kind == "nested":
            return ""
        return (KEYS if is_key else {}).get(given.kind) or TYPES.get(given.kind, "")

    def load(self, db: Any, into: str, batch: pa.RecordBatch, match: Match) -> int:  # noqa: ANN401
        rows = _plain(batch)
        if not self._loads or not hasattr(os, "memfd_create"):
            self._insert(db, into, rows, match.table)
            return int(batch.num_rows)
        return load(self, db, into, rows, match)

    def _insert(self, db: Any, into: str, rows: pa.RecordBatch, table: Table) -> None:  # noqa: ANN401
        marks = ", ".join([self.mark] * rows.num_columns)
        insert = f"INSERT INTO {into} ({self.listed(rows.schema.names)}) VALUES ({marks})"
        values = list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
        with closing(db.cursor()) as cursor:
            send(cursor, insert, values, table)

    def read(self, db: Any, match: Match) -> Iterator[tuple[int, Sequence[Any]]]:  # noqa: ANN401
        for name in self.run(
            db, "SHOW VARIABLES WHERE Variable_name IN ('max_statement_time', 'max_execution_time')"
        ):
            self.run(db, f"SET SESSION {name[0]} = 0")  # of a connection that ends with the transaction
        # A FLOAT is shown by six digits; as a double, by all that it has.
        asked = [
            self.quote(fit.column.name) + (" * 1e0" if fit.column.mantissa == _SHORT else "")
            for fit in match.fits
        ]
        with closing(db.cursor(_client().cursors.SSCursor)) as cursor:
            cursor.execute(f"SELECT {', '.join(asked)} FROM {self.path(self.options.table)}", ())
            while rows := cursor.fetchmany(ROWS):
                yield len(rows), list(zip(*rows, strict=True))

    # --- statements -----------------------------------------------------------------------------------------

    def quote(self, name: str) -> str:
        # A percent sign would begin a value's place.
        return "`" + name.replace("`", "``").replace("%", "%%") + "`"

    def books(self, name: str) -> str:
        return super().books(name) + " ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

    def insert_new(self, table: str, columns: str, values: str) -> str:
        # ON DUPLICATE KEY UPDATE would need the right to update.
        return f"INSERT IGNORE INTO {table} ({columns}) VALUES {values}"

    def stage(self, match: Match) -> str:
        beside = [f"CAST(0 AS SIGNED) AS {DELETED}"] if match.op else []
        beside += [f"CAST(0 AS SIGNED) AS {SEQUENCE}"] if match.sequence else []
        # An outer join has each column take null, as a deletion needs it. Some servers take no table without a key.
        return (
            f"CREATE TEMPORARY TABLE {self.staging} ({_NUMBER}) AS SELECT "
            f"{', '.join([self.listed(match.columns), *beside])} "
            f"FROM (SELECT 1) AS onceonly_one LEFT JOIN {self.path(self.options.table)} ON 1 = 0 WHERE 1 = 0"
        )

    def undo_part(self, db: Any) -> None:  # noqa: ANN401
        super().undo_part(db)
        self.run(db, f"DROP TEMPORARY TABLE IF EXISTS {self.staging}")  # which no rollback does

    def unstage(self) -> str:
        return f"DROP TEMPORARY TABLE {self.staging}"

    def delete(self, match: Match) -> str:
        table = self.path(self.options.table)
        return (
            f"DELETE {table} FROM {table} JOIN {self.newest(match, match.keys)} AS onceonly_newest ON "
            f"{self._same(match)} "
            f"WHERE onceonly_newest.{DELETED} = 1"
        )

    def replace(self, match: Match) -> str:
        """Return what an insert says of rows whose key is there. Raises ``ConfigurationError`` for a second key.

        ON DUPLICATE KEY names none: a row that has another unique column in common would be written over.
        """
        given = {column.name for column in match.table.columns if column.filled}
        given -= self._automatic[match.table.name]
        given.update(match.columns)
        for key in match.table.keys:
            if set(key) != set(match.keys) and given.issuperset(key):
                raise ConfigurationError(
                    f"{match.table.name} has another unique key, {', '.join(key)}, by which it would replace rows, too",
                    next_step="name by the option key the one by which rows are told apart, and let the other be an "
                    "index that is not unique",
                )
        others = [name for name in match.columns if name not in match.keys] or match.keys[:1]
        return "ON DUPLICATE KEY UPDATE " + ", ".join(
            f"{self.quote(name)} = VALUES({self.quote(name)})" for name in others
        )


def _client() -> Any:  # noqa: ANN401  a module
    with required("a sink for MySQL needs the package PyMySQL", extra="mysql"):
        import pymysql
    return pymysql


def _place(url: Url) -> tuple[str, int]:
    host, _, port = url.hosts.rpartition(":") if re.search(r":\d+$", url.hosts) else (url.hosts, "", "")
    return unquote(host).strip("[]") or "localhost", int(port or _PORT)


def _is_plain(url: Url, host: str) -> bool:
    given = url.query.get("ssl_disabled")
    return given.lower() == "true" if given is not None else host in _HERE and "ssl_ca" not in url.query


def _tls(url: Url, host: str) -> ssl.SSLContext | None:
    """Return what the server's certificate is checked by; None where nothing leaves this machine."""
    if _is_plain(url, host):
        return None
    try:
        made = ssl.create_default_context(cafile=url.query.get("ssl_ca"))
        if "ssl_cert" in url.query:
            made.load_cert_chain(url.query["ssl_cert"], url.query.get("ssl_key"))
    except OSError as error:
        raise ConfigurationError(
            f"a certificate that url names cannot be read: {error}", next_step="put it where the driver runs"
        ) from error
    return made


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows as MySQL reads their texts: truth as a number, an instant as a time of UTC, the session's zone."""
    import pyarrow as pa

    def plain(array: pa.Array) -> pa.Array:
        if pa.types.is_boolean(array.type):
            return array.cast(pa.int8())
        if pa.types.is_timestamp(array.type) and array.type.tz:
            return array.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).cast(pa.timestamp("us"))
        return array

    return pa.RecordBatch.from_arrays(list(map(plain, batch.columns)), names=batch.schema.names)
