"""PostgreSQL, and what speaks like it. Rows are loaded by COPY, which converts texts as the server itself does.

Nothing is asked of a session that outlives its transaction, so that a pooler may stand between; no transaction is left
prepared.
"""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError, OnceonlyError, RecordRefusedError, UnavailableError, required
from onceonly.sinks.sql.dialects.dialect import BOOKS, GOES_ON, Dialect
from onceonly.sinks.sql.dialects.postgres_binary import HEAD, TAIL, binary, kinds_of
from onceonly.sinks.sql.dialects.postgres_tables import described
from onceonly.sinks.sql.reading import ROWS, fixed
from onceonly.sinks.sql.texts import lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from onceonly.sinks.sql.types import Fit, Given, Match, Table

_NEW = {
    "bool": "boolean", "text": "text", "binary": "bytea", "date": "date", "instant": "timestamptz",
    "local": "timestamp", "nested": "jsonb",
}  # fmt: skip
_NEW_NUMBERS = {
    ("int", 8): "smallint", ("int", 16): "smallint", ("int", 32): "integer", ("int", 64): "bigint",
    ("float", 32): "real", ("float", 64): "double precision",
}  # fmt: skip
_DAYS, _MICROS = 10_957, 946_684_800_000_000
"""From 1970 to 2000, where the server counts from."""
_SENT: Mapping[str, tuple[Any, ...]] = {
    "float": ("float8send", ">f8"), "date": ("date_send", ">i4", _DAYS),
    "instant": ("timestamptz_send", ">i8", _MICROS), "local": ("timestamp_send", ">i8", _MICROS),
}  # fmt: skip
"""What gives a value's own bytes, what they are for numpy, and what is to be added."""
_FORBIDDEN = "42501"
_CHECKS_POLICY = "ExecWithCheckOptions"
"""What in the server looks whether a policy lets a row in."""
_CLOSED = {(code, "CheckValidResultRel") for code in ("0A000", "55000")}
"""A foreign table takes no rows; it is a partition, as others are refused before the first record."""
_OF_FILES, _OF_NUMBERS = {"md.c", "fd.c"}, {"varsup.c", "multixact.c"}
"""Where in the server a file of its own fails, and where the numbers of transactions do that it has used up."""
_RAISES, _PUBLISHES = "exec_stmt_raise", "CheckCmdReplicaIdentity"
"""What in the server has a trigger's own word, and what looks whether others could follow a change."""
_DISK_FULL = "53100"
_TOO_LATE, _TOO_LONG = "57014", "25P04"
"""Of a statement, and of a whole transaction; the second since PostgreSQL 17."""
_PASSING = ("08", "40", "53", "55", "57", "58", "XX", "25P03", _TOO_LONG, "42P07")
_REFUSED = ("21", "22", "23", "44", "54", "P0")
_MEANT = ("08", "0A", "25", "28", "3D", "3F", "40", "42", "53", "55", "57", "58", "XX")
"""The server's own codes, which a trigger may raise, too, and then means what they do; of others it has the word."""
# Whoever was not let in is told no code.
_TLS = re.compile(r"certificate|SSL|root\.crt", re.IGNORECASE)
_CONFIGURED = re.compile(
    r"authentication failed|pg_hba\.conf|does not exist|no password supplied|not permitted|invalid|translate host name",
    re.IGNORECASE,
)
_LOCAL = re.compile(r"(localhost|127\.[\d.]+|\[?::1\]?|/.*)?(:\d*)?", re.IGNORECASE)
_OLDEST = 120_000
_WORDS_MAX = 500


class Postgres(Dialect):
    """A server, or several of which one takes writes."""

    holds_connection = True
    mark = "%s"
    staging = "pg_temp.onceonly_rows"

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        return (_driver().Error,)

    def told(self, error: Exception) -> OnceonlyError:
        code = getattr(error, "sqlstate", None) or ""
        what = f"{self.options.url}: {_sentence(error)}"
        source = getattr(error, "diag", None)
        file, function = getattr(source, "source_file", ""), getattr(source, "source_function", "")
        if (code, function) in _CLOSED:
            return RecordRefusedError(
                what, next_step="leave rows of that partition out of the query, or have it take rows again"
            )
        if trouble := self._of_its_own(code, file, _sentence(error)):
            return trouble
        is_raised = function == _RAISES and not code.startswith(_MEANT)
        if code.startswith(_REFUSED) or is_raised or self._is_kept_by_policy(error):
            return RecordRefusedError(what, next_step="mend the row, or what the table asks of it")
        if code == _DISK_FULL:
            return self.no_room(_sentence(error))
        if code == _TOO_LATE:
            return self.too_late(what)
        if function != _PUBLISHES and (not code or code.startswith(_PASSING)):
            return UnavailableError(what, next_step=_PASSES.get(code, _SEE_TO_IT))
        return ConfigurationError(
            what,
            next_step=_ADVICE.get(function)
            or _ADVICE.get(code, "see the url, the user and what it is granted"),
        )

    def _of_its_own(self, code: str, file: str, said: str) -> UnavailableError | None:
        """Return what it means where the server cannot write what it needs itself, whoever asks; None elsewhere."""
        if file in _OF_NUMBERS:  # whose code is that of a row which is too long
            return UnavailableError(
                f"{self.options.url} takes no writes: {said}",
                next_step=f"see to what keeps it from vacuuming (old transactions, slots), and vacuum; {GOES_ON}",
            )
        if code == _FORBIDDEN and file in _OF_FILES:
            return UnavailableError(
                f"{self.options.url} may not write a file of its own: {said}",
                next_step=f"see to its disk, which may be mounted read-only; {GOES_ON}",
            )
        return None

    def is_duplicate(self, error: Exception) -> bool:
        return getattr(error, "sqlstate", None) == "23505"

    def is_forbidden(self, error: Exception) -> bool:
        return getattr(error, "sqlstate", None) == _FORBIDDEN and not self._is_kept_by_policy(error)

    def _is_kept_by_policy(self, error: Exception) -> bool:
        """Say whether a policy refuses this row; the server has no code for that, and its words are in any language."""
        return getattr(getattr(error, "diag", None), "source_function", "") == _CHECKS_POLICY

    def grant(self, db: Any, name: tuple[str, ...], rights: str = BOOKS) -> str:  # noqa: ANN401
        [(user,)] = self.run(db, "SELECT current_user")
        return f"GRANT {rights} ON {self.path(name)} TO {self.quote(user)}"

    def lacks(self, db: Any, name: tuple[str, ...], right: str, columns: Sequence[str]) -> bool:  # noqa: ANN401, ARG002
        # Rights on some columns will do, but there is none to delete some.
        ask = "has_table_privilege" if right == "DELETE" else "has_any_column_privilege"
        [(has,)] = self.run(db, f"SELECT {ask}(%s, %s)", (self.path(name), right))
        return not has

    def lacks_temporary(self, db: Any) -> str:  # noqa: ANN401
        asked = (
            "SELECT has_database_privilege(current_database(), 'TEMPORARY'), current_database(), current_user"
        )
        [(has, database, user)] = self.run(db, asked)
        return "" if has else f"GRANT TEMPORARY ON DATABASE {self.quote(database)} TO {self.quote(user)}"

    def connect(self) -> Any:  # noqa: ANN401
        driver = _driver()
        try:
            db = driver.connect(**self._settings(), autocommit=True, prepare_threshold=None)
        except driver.Error as error:
            raise self._kept_out(error) from error
        version = db.info.server_version
        if version < _OLDEST:
            db.close()
            raise ConfigurationError(
                f"{self.options.url} is a PostgreSQL {version // 10_000}",
                next_step="upgrade it to 12 or newer",
            )
        return db

    def _settings(self) -> dict[str, Any]:
        """Return what the client is told: the url's words before ours."""
        options, url = self.options, self.options.url
        names, ports = _hosts(url.hosts)
        found: dict[str, Any] = {
            "connect_timeout": max(round(options.connect_s), 2),
            "application_name": "onceonly",
            "tcp_user_timeout": self._statement_ms,
            "keepalives_idle": 30,
        }
        # An address that is given beside a name is the one that is asked.
        named = url.query.get("host") or url.hosts or os.environ.get("PGHOST", "")
        hosts = url.query.get("hostaddr") or os.environ.get("PGHOSTADDR") or named
        is_local = all(map(_LOCAL.fullmatch, hosts.split(",")))
        if not is_local and "sslmode" not in url.query and "PGSSLMODE" not in os.environ:
            found["sslmode"] = "verify-full"
            if "PGSSLROOTCERT" not in os.environ and not (Path.home() / ".postgresql" / "root.crt").exists():
                found["sslrootcert"] = "system"
        given = {
            "host": names,
            "port": ports,
            "user": url.user,
            "dbname": url.path,
            "password": options.password.read(),
        }
        return found | {name: value for name, value in given.items() if value} | dict(url.query)

    def _kept_out(self, error: Exception) -> OnceonlyError:
        """Return what an error of the connect means."""
        what = f"{self.options.url}: {_sentence(error)}"
        if _TLS.search(str(error)):
            return ConfigurationError(
                what,
                next_step="TLS is verified where the server is on another machine (sslmode=verify-full): name its "
                "authority in the url by ?sslrootcert=FILE, or ask for less by ?sslmode=require",
            )
        if _CONFIGURED.search(str(error)):
            return ConfigurationError(
                what, next_step="correct user, host and database in the url, or the option password"
            )
        return UnavailableError(what, next_step=_SEE_TO_IT)

    @property
    def _statement_ms(self) -> int:
        return max(round(self.options.statement_s * 1000), 1)

    def begin(self, db: Any) -> None:  # noqa: ANN401
        db.execute(
            f"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = {self._statement_ms};"
            "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
        )

    def lossy(self, db: Any) -> str:  # noqa: ANN401
        # Who has turned synchronous_commit off gets it for our transactions.
        names = [name for name in ("fsync", "full_page_writes") if self.run(db, f"SHOW {name}") == [("off",)]]
        return " and ".join(f"{name} = off" for name in names)

    def commit(self, db: Any) -> None:  # noqa: ANN401
        done = db.execute("COMMIT").statusmessage
        if done != "COMMIT":
            raise UnavailableError(f"{self.options.url}: COMMIT ended in {done}", next_step="it is looked up")

    def run(self, db: Any, sql: str, values: Sequence[object] = ()) -> list[Any]:  # noqa: ANN401
        cursor = db.execute(sql, tuple(values)) if values else db.execute(sql)
        return list(cursor.fetchall()) if cursor.description else []

    def hold(self, db: Any) -> None:  # noqa: ANN401
        # As its first insert will. Only whoever may insert may do this.
        db.execute(f"LOCK TABLE {self.path(self.options.table)} IN ROW EXCLUSIVE MODE")

    def settle(self, db: Any) -> None:  # noqa: ANN401
        db.execute("SET CONSTRAINTS ALL IMMEDIATE")
        db.execute("SET CONSTRAINTS ALL DEFERRED")  # for what follows of a part of it

    def describe(self, db: Any, name: tuple[str, ...]) -> Table | None:  # noqa: ANN401
        return described(partial(self.run, db), name, self.path(name), deletes=bool(self.options.op))

    def type_of(self, given: Given, *, is_key: bool) -> str:  # noqa: ARG002
        if given.kind == "decimal":
            return f"numeric({given.size},{given.scale})"
        return _NEW_NUMBERS.get((given.kind, given.size)) or _NEW.get(given.kind, "")

    def stage(self, match: Match) -> str:
        return super().stage(match).replace(" AS SELECT", " ON COMMIT DROP AS SELECT", 1)

    def waits_as(self, fit: Fit) -> str:
        name = super().waits_as(fit)
        return f"CAST({name} AS {fit.column.beneath}) AS {name}" if fit.column.beneath else name

    def unstage(self) -> str:
        return ""

    def load(self, db: Any, into: str, batch: pa.RecordBatch, match: Match) -> int:  # noqa: ANN401
        # Of texts in the binary form, a server takes those of the client's encoding.
        kinds = kinds_of(match) if db.info.parameter_status("client_encoding") == "UTF8" else []
        form = "FORMAT binary" if kinds else "ENCODING 'UTF8'"
        rows = (HEAD, binary(batch, kinds), TAIL) if kinds else (lines(batch, match),)
        statement = f"COPY {into} ({self.listed(batch.schema.names)}) FROM STDIN ({form})"
        with db.cursor() as cursor:
            with cursor.copy(statement) as copy:
                for some in rows:
                    copy.write(some)
            return int(cursor.rowcount)

    def read(self, db: Any, match: Match) -> Iterator[tuple[int, Sequence[Any]]]:  # noqa: ANN401
        # Numbers and times in the server's own form: Python has no day after the year 9999.
        forms = [_SENT.get("float" if fit.column.mantissa else fit.given.kind) for fit in match.fits]
        names = [self.quote(fit.column.name) for fit in match.fits]
        asked = [
            name if form is None else f"{form[0]}({name})" for form, name in zip(forms, names, strict=True)
        ]
        with db.cursor(name="onceonly_audit") as cursor:  # kept by the server, until the transaction ends
            cursor.execute(f"SELECT {', '.join(asked)} FROM {self.path(self.options.table)}")
            while rows := cursor.fetchmany(ROWS):
                columns = zip(*rows, strict=True)
                yield (
                    len(rows),
                    [
                        values if form is None else fixed(values, *form[1:])
                        for form, values in zip(forms, columns, strict=True)
                    ],
                )


_SEE_TO_IT = "see to the server and the network, and start the query again"
_PASSES = {
    _TOO_LONG: "let transaction_timeout of the server, or of this user, give an epoch more time, and start the query "
    "again",
}
_ADVICE = {
    _PUBLISHES: "give the table a primary key, or ALTER TABLE … REPLICA IDENTITY; or do not publish it",
    "25006": "the server only reads (a replica?): name the one that takes writes, e.g. by "
    "?target_session_attrs=read-write",
    _FORBIDDEN: "have the user granted what the sentence names; it needs INSERT on the table (with a key also SELECT "
    "and UPDATE, with op DELETE), SELECT, INSERT and DELETE on the books, and with a key TEMPORARY on the database",
}


def _driver() -> Any:  # noqa: ANN401
    with required("a sink for PostgreSQL needs the package psycopg", extra="postgres", where="on the driver"):
        import psycopg
    return psycopg


def _sentence(error: Exception) -> str:
    """Return what the server says, on one line, and the key that it names; never the whole row."""
    diag = getattr(error, "diag", None)
    primary = getattr(diag, "message_primary", None)
    if primary is None:
        return " ".join(str(error).split())[:_WORDS_MAX] or type(error).__name__
    detail = getattr(diag, "message_detail", None) or ""
    shown = f"{primary} ({detail.rstrip('.')})" if detail.startswith("Key ") else str(primary)
    return f"{shown} [{getattr(error, 'sqlstate', '')}]"[:_WORDS_MAX]


def _hosts(text: str) -> tuple[str, str]:
    """Return names and ports of ``host:port,host:port``, each separated by commas; in brackets stands IPv6."""
    names, ports = [], []
    for each in text.split(","):
        name, _, port = each.rpartition(":") if re.search(r":\d*$", each) else (each, "", "")
        names.append(name.strip("[]"))
        ports.append(port)
    return ",".join(names), ",".join(ports) if any(ports) else ""
