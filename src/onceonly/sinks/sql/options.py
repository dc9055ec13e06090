"""The options of the SQL sinks, and where their target is."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from onceonly.durable.sealed import decoder
from onceonly.errors import ConfigurationError
from onceonly.families import behind
from onceonly.families.passwords import Password
from onceonly.options import Option, boolean, some_time, span

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r'(?:(?P<quoted>"(?:[^"]|"")+")|(?P<plain>[^".]+))(?:\.(?P<rest>.+))?')
_WHERE = ("host", "hostaddr", "port", "dbname", "service", "unix_socket")
"""What of an address's query says where the target is."""
CHECKED, TRUSTED = "checked", "trusted"
OF_FILES = frozenset({"sqlite", "duckdb"})
"""Schemes of databases in a file."""
_SECRET = re.compile(r"passw|secret|token", re.IGNORECASE)
_START = re.compile(r"([^:/?#]+://)([^/?#]*)")
"""Scheme, and login with hosts."""


def names(text: str) -> tuple[str, ...]:
    """Read names separated by commas. Raises ``ValueError`` for an empty one, or one that is there twice."""
    found = tuple(each.strip() for each in text.split(",")) if text.strip() else ()
    if not all(found) or len(set(found)) < len(found):
        raise ValueError(text)
    return found


def table_name(text: str) -> tuple[str, ...]:
    """Read ``table`` or ``schema.table``; quotes keep a point in a name."""
    found = []
    rest: str | None = text
    while rest is not None:
        match = _NAME.fullmatch(rest.strip())
        if match is None:
            raise ValueError(text)
        quoted = match["quoted"]
        found.append(quoted[1:-1].replace('""', '"') if quoted else match["plain"].strip())
        rest = match["rest"]
    if not all(found) or len(found) > 2:  # noqa: PLR2004  schema and table
        raise ValueError(text)
    return tuple(found)


DECLARED = (
    Option(
        name="url", required=True,
        doc="where the database is, as SQLAlchemy writes it, without a password: postgresql://user@host:5432/db, "
        "mysql://user@host:3306/db, sqlite:////data/r.db, duckdb:////data/r.db",
    ),
    Option(
        name="table", required=True, read=table_name, form="a table, or schema.table",
        doc='the table, or schema.table, as the server has it written; "quotes" keep a point in a name',
    ),
    Option(
        name="key", default="", read=names, form="names of columns, separated by commas",
        doc="the columns by which a row replaces the one that is there, separated by commas; by default rows are added",
    ),
    Option(
        name="op", default="",
        doc="the column that says what becomes of a row: insert, update or delete; it needs key, and is not written",
    ),
    Option(
        name="sequence", default="",
        doc="the column that says which of two rows with one key is the newer one: a whole number, a date or a time; "
        "by default such rows in one epoch are refused",
    ),
    Option(
        name="create", default="false", read=boolean,
        doc="true makes the table where it is missing, with columns for the query's",
    ),
    Option(name="password", secret=True, doc="of the user; by default as the client finds it (PGPASSWORD, ~/.pgpass)"),
    Option(name="password.file", doc="a file on the driver that holds the password, read at each connect"),
    Option(
        name="books", default="onceonly_commits", read=table_name, form="a table, or schema.table",
        doc="the table that notes what was committed; by default it lies in the schema of table",
    ),
    Option(
        name="connect.timeout", default="10s", read=span,
        doc="how long a connect may take, and how long a database file that others use is waited for",
    ),
    Option(name="statement.timeout", default="5m", read=some_time, doc="how long one statement may take"),
    Option(
        name="triggers", default=CHECKED, choices=(CHECKED, TRUSTED),
        doc=f"what becomes of an epoch of which triggers or rules of the table pass a row over: {CHECKED}, the "
        f"default, refuses it before the decision; {TRUSTED} leaves it to them, as where they send rows elsewhere",
    ),
    Option(
        name=behind.OPTION, default=behind.STOP, choices=(behind.STOP, behind.GO_ON), doc=behind.DOC,
    ),
)  # fmt: skip

_LOGIN = "write the user into the option url: postgresql://user@host:5432/db"
OF_JDBC: Mapping[str, str] = {
    "user": _LOGIN,
    "username": _LOGIN,
    "dbtable": "name the table by the option table",
    "driver": "leave it out: no driver of JDBC is used",
    "batchsize": "leave it out: rows are sent in batches",
    "numpartitions": "leave it out: the driver writes, over one connection",
    "isolationlevel": "leave it out: each epoch is one transaction",
    "stringtype": "leave it out: types are compared before the first record",
}
"""What Spark's JDBC writer takes, in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Url:
    """A checked address, without a password. ``path`` is a file or a database; ``query`` goes to the client."""

    scheme: str
    user: str = ""
    hosts: str = ""
    path: str = ""
    query: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str, *, who: str) -> Url:
        """Read an address. Raises ``ConfigurationError``, which shows nothing of one that may hold a password."""
        if text.lower().startswith("jdbc:"):
            raise ConfigurationError(
                f"The option url of {who} is one for JDBC, which is not used here.",
                next_step=f"write it without jdbc: {DECLARED[0].doc}",
            )
        # Several hosts are nothing that newer Pythons read as one: each is looked at by itself.
        start = _START.match(text)
        login, _, hosts = start[2].rpartition("@") if start else ("", "", "")
        try:
            parts = urlsplit(start[1] + text[start.end() :] if start else text)
            for each in hosts.split(","):
                urlsplit(f"//{each}")
        except ValueError as error:
            raise ConfigurationError(
                f"The option url of {who} cannot be read: {error}.", next_step=DECLARED[0].doc
            ) from error
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        if ":" in login or any(map(_SECRET.search, query)):
            raise ConfigurationError(
                f"The option url of {who} holds a password, which plans and logs would show.",
                next_step="give it as the option password or password.file, or in the client's own environment",
            )
        # A driver's name behind the dialect's (postgresql+psycopg) says nothing here: there is one for each.
        scheme = parts.scheme.lower().partition("+")[0]
        path = unquote(parts.path.removeprefix("/"))
        return cls(scheme=scheme, user=unquote(login), hosts=hosts, path=path, query=query)

    def __str__(self) -> str:
        where = "&".join(f"{name}={self.query[name]}" for name in _WHERE if name in self.query)
        return f"{self.scheme}://{self.hosts}/{self.path}{'?' if where else ''}{where}"


class Meaning(msgspec.Struct, frozen=True):
    """Which columns say what becomes of a row. Rows wait with it for their commit, by whichever options that is."""

    key: tuple[str, ...] = ()
    op: str = ""
    sequence: str = ""

    @classmethod
    def loads(cls, text: str) -> Meaning:
        return decoder(cls).decode(text)

    def dumps(self) -> str:
        return msgspec.json.encode(self).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlOptions:
    """The checked options. ``table`` and ``books`` are a name with or without its schema."""

    url: Url
    table: tuple[str, ...]
    books: tuple[str, ...]
    key: tuple[str, ...]
    op: str
    sequence: str
    create: bool
    connect_s: float
    statement_s: float
    goes_on_behind: bool
    trusts: bool
    password: Password = field(default_factory=Password)
    """Asked for on the driver; where there is none, the client looks for it itself."""

    @classmethod
    def of(cls, values: Mapping[str, Any], *, who: str) -> SqlOptions:
        """Take values that ``read_options`` has read. Raises ``ConfigurationError``. Pure."""
        table, books = values["table"], values["books"]
        for name in ("op", "sequence"):
            if values[name] and not values["key"]:
                raise ConfigurationError(
                    f"The option {name} of {who} is given without key.",
                    next_step="name by key the columns that tell rows apart, or leave it out",
                )
        return cls(
            url=Url.of(values["url"], who=who),
            table=table,
            books=books if len(books) > 1 else (*table[:-1], *books),
            key=values["key"],
            op=values["op"],
            sequence=values["sequence"],
            create=values["create"],
            connect_s=values["connect.timeout"],
            statement_s=values["statement.timeout"],
            goes_on_behind=values[behind.OPTION] == behind.GO_ON,
            trusts=values["triggers"] == TRUSTED,
            password=Password.of(values, who, place="the driver runs, readable by its user"),
        )

    @property
    def meaning(self) -> Meaning:
        return Meaning(self.key, self.op, self.sequence)
