"""One table of a cluster: what it is asked, and what each answer means. Threads may share it."""

from __future__ import annotations

import logging
import re
import ssl
import threading
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError, RecordRefusedError, UnavailableError, required

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cassandra.cluster import Cluster, Session
    from cassandra.query import PreparedStatement

    from onceonly.errors import OnceonlyError
    from onceonly.sinks.cassandra.options import CassandraOptions

log = logging.getLogger("onceonly")

WINDOW = 128
"""How many requests of one call are on their way at a time."""
_PROTOCOL = 4  # the first that tells a null from what is not set; of Cassandra 3.0 and newer, which know ids of tables
_CONNECT_S = 10.0
_PAGE = 1_000
# By their names in Cassandra 4.1 and before, and by which a mutation is less.
_MUTATION = {
    "max_mutation_size": 1,
    "max_mutation_size_in_kb": 1,
    "commitlog_segment_size": 2,
    "commitlog_segment_size_in_mb": 2,
}
_SIZE = re.compile(r"(\d+)(B|KiB|MiB|GiB|)")
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "_in_kb": 1 << 10, "_in_mb": 1 << 20}
_FULL, _CLOSED = "disk usage exceeds failure threshold", "denylisted partition"
_BOOKS = "(target text PRIMARY KEY, revision int, state text)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What a table is like: its columns with their types, and which of them mean what."""

    types: Mapping[str, str]
    partition: tuple[str, ...]
    key: tuple[str, ...]
    statics: frozenset[str]
    gc_grace_s: int
    lives_s: int = 0


class Target:
    """A session; connects when it is first asked. One connection for each node, and one that hears of others."""

    def __init__(self, options: CassandraOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._cluster: Cluster | None = None
        self._session: Session | None = None
        self._prepared: dict[str, PreparedStatement] = {}
        self._table: Table | None = None
        self.name = quoted(options.keyspace, options.table)
        self._books = quoted(options.keyspace, options.books)

    def close(self) -> None:
        """Give back the connections. Idempotent."""
        with self._lock:
            cluster, self._cluster, self._session = self._cluster, None, None
            self._prepared, self._table = {}, None
        if cluster is not None:
            cluster.shutdown()

    # --- rows -----------------------------------------------------------------------------------------------

    def run(self, calls: Iterable[tuple[str, Sequence[Any]]]) -> list[Any]:
        """Run statements, many at a time; return the rows that each gives. Raises a typed error.

        Then a part of them has run, and the same again changes nothing.
        """
        session = self._connected()
        under_way: deque[Any] = deque()
        found = []

        def await_one() -> None:
            one = under_way.popleft()
            found.append(self._asked(one.result))

        # The client's own way of doing many at a time fails in its error path where all nodes are gone.
        for text, values in calls:
            if len(under_way) == WINDOW:
                await_one()
            under_way.append(session.execute_async(self._statement(session, text), values))
        while under_way:
            await_one()
        return found

    def read(self, text: str) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows of a query, some at a time. Raises a typed error."""
        from cassandra.query import SimpleStatement

        session = self._connected()
        try:
            rows = iter(session.execute(SimpleStatement(text, fetch_size=_PAGE)))
            while some := list(islice(rows, _PAGE)):
                yield some
        except Exception as error:
            raise self._meaning(error) from error

    def _statement(self, session: Session, text: str) -> PreparedStatement:
        if text not in self._prepared:
            self._prepared[text] = self._asked(lambda: session.prepare(text))
        return self._prepared[text]

    # --- the table ------------------------------------------------------------------------------------------

    def table(self) -> Table:
        """Return what the table is like. Raises ``ConfigurationError`` where there is none that rows can go to."""
        if self._table is None:
            self._table = self._look()
        return self._table

    def _look(self) -> Table:
        options, keyspaces = self._options, self._connected().cluster.metadata.keyspaces
        keyspace = keyspaces.get(options.keyspace)
        if keyspace is None:
            names = sorted(name for name in keyspaces if not name.startswith("system"))
            raise ConfigurationError(
                f"{options.cluster} has no keyspace {options.keyspace}: it has {', '.join(names) or 'none'}.",
                next_step="see to the option keyspace, or make it: CREATE KEYSPACE",
            )
        if options.table in keyspace.views:
            raise ConfigurationError(
                f"{options.where} is a view, which takes no rows.",
                next_step="name its table in the option table",
            )
        found = keyspace.tables.get(options.table)
        if found is None:
            raise ConfigurationError(
                f"The keyspace {options.keyspace} has no table {options.table}: it has "
                f"{', '.join(sorted(keyspace.tables)) or 'none'}.",
                next_step="see to the option table, or make it: CREATE TABLE",
            )
        if not keyspace.durable_writes:
            raise ConfigurationError(
                f"The keyspace {options.keyspace} keeps no log of writes (durable_writes = false): a crash of nodes "
                "would take what was committed.",
                next_step=f"ALTER KEYSPACE {quoted(options.keyspace)} WITH durable_writes = true",
            )
        return Table(
            types={name: column.cql_type for name, column in found.columns.items()},
            partition=tuple(column.name for column in found.partition_key),
            key=tuple(column.name for column in found.primary_key),
            statics=frozenset(name for name, column in found.columns.items() if column.is_static),
            gc_grace_s=int(found.options.get("gc_grace_seconds") or 0),
            lives_s=int(found.options.get("default_time_to_live") or 0),
        )

    def try_permission(self, text: str) -> bool:
        """Run a statement that changes nothing, to see whether the user may; say whether the server tells.

        Raises ``ConfigurationError``.
        """
        from cassandra import InvalidRequest, Unauthorized
        from cassandra.protocol import SyntaxException

        try:
            self._connected().execute(text)
        except Unauthorized as error:
            raise self._meaning(error) from error
        except (InvalidRequest, SyntaxException):  # an older server may not know it
            return False
        except Exception as error:
            raise self._meaning(error) from error
        return True

    def id(self) -> str:
        """Return the table's own id, which one that is made anew has not; empty where it is not there."""
        asked = "SELECT id FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s"
        names, session = (self._options.keyspace, self._options.table), self._connected()
        found = self._asked(lambda: session.execute(asked, names).one())
        return "" if found is None else str(found[0])

    def mutation_max(self) -> int:
        """Return how many bytes a mutation may have, as far as the node tells; as it comes, 16 MiB."""
        names = ", ".join(f"'{name}'" for name in _MUTATION)
        asked = f"SELECT name, value FROM system_views.settings WHERE name IN ({names})"  # noqa: S608  they are ours
        try:
            told = {name: _bytes(name, value) for name, value in self._connected().execute(asked)}
        except Exception as error:  # noqa: BLE001  older ones have no such table, and not every user may read it
            log.debug("%s does not tell its settings: %s", self._options.cluster, error)
            told = {}
        sizes = [size // part for name, part in _MUTATION.items() if (size := told.get(name, 0))]
        return sizes[0] if sizes else 16 << 20

    # --- books ----------------------------------------------------------------------------------------------

    def try_books(self) -> bool:
        """As ``try_permission``, of what is done with the books; of those that are not there nobody tells."""
        if not self._has_books():
            return False
        never = f"UPDATE {self._books} SET state = null WHERE target = 'x' IF state IN ()"  # noqa: S608  names are quoted
        return self.try_permission(never)

    def _has_books(self) -> bool:
        keyspace = self._connected().cluster.metadata.keyspaces.get(self._options.keyspace)
        return keyspace is not None and self._options.books in keyspace.tables

    def open_books(self) -> None:
        """Make the table of the books where it is not there. Idempotent."""
        if self._has_books():
            return
        session = self._connected()
        self._asked(lambda: session.execute(f"CREATE TABLE IF NOT EXISTS {self._books} {_BOOKS}"))

    def book(self, query: str) -> tuple[int, str]:
        """Return number and text of a query's row of the books, or the table's (""); 0 and none where it is not there.

        What is being changed is waited for.
        """
        from cassandra import ConsistencyLevel, InvalidRequest
        from cassandra.query import SimpleStatement

        text = f"SELECT revision, state FROM {self._books} WHERE target = %s"  # noqa: S608  names are quoted
        asked = SimpleStatement(text, consistency_level=ConsistencyLevel.SERIAL)
        session = self._connected()
        try:
            found = session.execute(asked, (self._row(query),)).one()
        except InvalidRequest as error:
            if "does not exist" in str(error) or "unconfigured table" in str(error):
                return 0, ""
            raise self._meaning(error) from error
        except Exception as error:
            raise self._meaning(error) from error
        return (0, "") if found is None else (found[0], found[1])

    def put_book(self, query: str, revision: int, text: str) -> bool:
        """Put a row of the books where its number still is ``revision``; say whether it was."""
        row, session = self._row(query), self._connected()
        if revision == 0:
            asked = f"INSERT INTO {self._books} (target, revision, state) VALUES (%s, %s, %s) IF NOT EXISTS"  # noqa: S608
            values: tuple[Any, ...] = (row, 1, text)
        else:
            asked = f"UPDATE {self._books} SET revision = %s, state = %s WHERE target = %s IF revision = %s"  # noqa: S608
            values = (revision + 1, text, row, revision)
        is_done: bool = self._asked(lambda: session.execute(asked, values).was_applied)
        return is_done

    def _row(self, query: str) -> str:
        """Return the key of a row of the books. No table has a slash in its name."""
        return f"{self._options.table}/{query}" if query else self._options.table

    # --- the cluster ----------------------------------------------------------------------------------------

    def _asked(self, ask: Callable[[], Any]) -> Any:  # noqa: ANN401  whatever ``ask`` gives
        try:
            return ask()
        except Exception as error:
            raise self._meaning(error) from error

    def _connected(self) -> Session:
        with self._lock:
            if self._session is None:
                self._cluster = self._made()
                try:
                    self._session = self._cluster.connect()
                except Exception as error:
                    self._cluster.shutdown()
                    self._cluster = None
                    raise meaning(error, self._options) from error
            return self._session

    def _made(self) -> Cluster:
        with required("the sink cassandra needs the package cassandra-driver", extra="cassandra"):
            from cassandra import ConsistencyLevel
            from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
            from cassandra.policies import (
                ConstantReconnectionPolicy,
                DCAwareRoundRobinPolicy,
                TokenAwarePolicy,
            )
            from cassandra.query import tuple_factory
        given, most_s = self._options, min(self._options.timeout_s, _CONNECT_S)
        given.password.read()  # where it cannot be read, that is the error, and not that nobody answers
        profile = ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(given.datacenter or "")),
            consistency_level=getattr(ConsistencyLevel, given.consistency),
            serial_consistency_level=ConsistencyLevel.SERIAL,
            request_timeout=given.timeout_s,
            row_factory=tuple_factory,
        )
        return Cluster(
            contact_points=list(given.hosts),
            port=given.hosts[0][1],
            protocol_version=_PROTOCOL,
            auth_provider=_login(given) if given.user else None,
            ssl_context=_tls(given) if given.tls else None,
            connect_timeout=most_s,
            control_connection_timeout=most_s,
            # By default it waits up to ten minutes before it asks a node that was down again.
            reconnection_policy=ConstantReconnectionPolicy(1.0, max_attempts=None),
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            monitor_reporting_enabled=False,
        )

    def _meaning(self, error: Exception) -> OnceonlyError:
        from cassandra.cluster import NoHostAvailable
        from cassandra.connection import ConnectionException

        if isinstance(error, NoHostAvailable | ConnectionException | OSError):
            self.close()  # it would refuse all for a while; whoever asks next connects anew
        return meaning(error, self._options)


def _login(options: CassandraOptions) -> Any:  # noqa: ANN401  the driver's own
    from cassandra.auth import AuthProvider, PlainTextAuthenticator

    class Login(AuthProvider):  # type: ignore[misc]
        """Reads the password at each connect, as a file may have another one by then."""

        def new_authenticator(self, host: object) -> Any:  # noqa: ANN401, ARG002  as above
            return PlainTextAuthenticator(options.user, options.password.read())

    return Login()


def _tls(options: CassandraOptions) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=options.ca)
    except OSError as error:
        raise ConfigurationError(
            f"The option tls.ca of the sink cassandra names {options.ca}, which cannot be used: {error}.",
            next_step="name a file of certificates in PEM that driver and executors can read",
        ) from error


def meaning(error: Exception, options: CassandraOptions) -> OnceonlyError:
    """Return what an answer of the cluster, or of the network, means for the query; raise what is none. Pure."""
    from cassandra import AuthenticationFailed, DriverException, InvalidRequest, Unauthorized
    from cassandra.cluster import NoHostAvailable
    from cassandra.connection import ConnectionException
    from cassandra.protocol import ErrorMessage, SyntaxException

    causes = (
        list((getattr(error, "errors", None) or {}).values()) if isinstance(error, NoHostAvailable) else []
    )
    said = "; ".join(sorted({str(each) for each in causes})) or str(error) or type(error).__name__
    if any(isinstance(each, AuthenticationFailed) for each in (error, *causes)):
        return ConfigurationError(
            f"{options.cluster} does not let the user {options.user or 'nobody'} in: {said}",
            next_step="see to the options user and password",
        )
    if isinstance(error, Unauthorized):
        names = f"{options.keyspace}.{options.table} and {options.keyspace}.{options.books}"
        return ConfigurationError(
            f"{options.cluster} does not permit the user {options.user or 'nobody'} what the sink does: {said}",
            next_step=f"grant SELECT and MODIFY on the tables {names}, and CREATE on the keyspace where there are no "
            f"{options.books}",
        )
    if "CERTIFICATE_VERIFY_FAILED" in said or "certificate verify failed" in said:
        return ConfigurationError(
            f"the certificate of {options.cluster} is not trusted: {said}",
            next_step="name the file of its authority in the option tls.ca; it must name the addresses of the nodes",
        )
    if _FULL in said:
        return UnavailableError(
            f"the disks of {options.cluster} are full: {said}",
            next_step="make room there, or add nodes; the query goes on by itself, or at its next start",
        )
    if _CLOSED in said:
        return RecordRefusedError(
            f"an operator of {options.cluster} has closed a partition of {options.where}: {said}",
            next_step="leave its rows out of the query, or take it out of system_distributed.partition_denylist",
        )
    if isinstance(error, InvalidRequest | SyntaxException):
        return ConfigurationError(
            f"{options.cluster} refuses what goes to {options.where}: {said}",
            next_step="see what it says; the table may have been changed since the query was started",
        )
    if isinstance(error, NoHostAvailable | DriverException | ErrorMessage | ConnectionException | OSError):
        return UnavailableError(
            f"{options.cluster} does not answer: {type(error).__name__}: {said}",
            next_step="see whether its nodes run and can be reached; rows that it has are not written twice",
        )
    raise error


def quoted(*names: str) -> str:
    """Return names as statements have them, with dots between them."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def _bytes(name: str, value: str | None) -> int:
    """Return the bytes that a setting of this name says; 0 where it says none."""
    found = _SIZE.fullmatch(str(value))
    return int(found[1]) * _UNITS.get(found[2] or name[-6:], 1) if found is not None else 0
