"""The options of the Redis sink."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from onceonly.errors import ConfigurationError
from onceonly.families import passwords
from onceonly.families.keyed import KeyedSink
from onceonly.families.passwords import Password
from onceonly.options import Option, some_time

if TYPE_CHECKING:
    from collections.abc import Mapping

_PORT = 6379
_FORM = "redis://host:6379/0, or rediss:// for TLS"
_NODES = "of a cluster, redis://one:6379,two:6379 names some nodes, of which the others are learned"


DECLARED = (
    Option(
        name="url",
        doc=f"where the server is: {_FORM}, whose certificate is verified; the number is that of the database. Of a "
        f"cluster, one node or several: {_NODES}",
        required=True,
    ),
    Option(name="user", doc="the user who writes, where the server has several (ACL)"),
    *passwords.DECLARED,
    Option(
        name="tls.ca",
        doc="a file with the certificates that are trusted, where the machine's own are not enough",
    ),
    Option(name="prefix", doc="what the names of all keys begin with, such as `order:`", default=""),
    Option(
        name="timeout",
        doc="how long an answer of the server is waited for",
        default="30 seconds",
        read=some_time,
    ),
    *KeyedSink.declared,
)

_PLACE, _PREFIX = (
    "write it into the option url: redis://host:6379/0",
    "name what keys begin with by the option prefix",
)
OF_SPARK_REDIS: Mapping[str, str] = {
    "host": _PLACE,
    "port": _PLACE,
    "dbnum": _PLACE,
    "auth": "give it as the option password or password.file",
    "table": _PREFIX,
    "keys.pattern": _PREFIX,
    "key.column": "name the columns of the key by the option key",
}
"""What spark-redis takes, in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions:
    """Where the server is, and how the keys are named. ``others`` are more nodes of its cluster."""

    host: str
    port: int
    database: int
    tls: bool
    prefix: str
    timeout_s: float
    tombstones_ms: int
    ca: str | None = None
    user: str | None = None
    password: Password = field(default_factory=Password)
    others: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> RedisOptions:
        """Read them. Raises ``ConfigurationError``."""
        try:
            url, others = _nodes(options["url"])
            port, database = url.port or _PORT, int(url.path.strip("/") or 0)
        except ValueError:
            raise _wrong("it is not an address") from None
        if url.scheme not in {"redis", "rediss"} or not url.hostname:
            raise _wrong("it is not one of a server")
        if parse_qs(url.query) or url.fragment:
            raise _wrong("nothing may stand behind the number of the database")
        password = Password.of(options, "the sink redis")
        if not password.is_given and url.password:
            password = Password(given=unquote(url.password))
        return cls(
            host=url.hostname,
            port=port,
            database=database,
            tls=url.scheme == "rediss",
            prefix=options["prefix"],
            timeout_s=options["timeout"],
            tombstones_ms=max(int(options["tombstones"] * 1000), 1),
            ca=options["tls.ca"],
            user=options["user"] or (unquote(url.username) if url.username else None),
            password=password,
            others=others,
        )

    @property
    def nodes(self) -> tuple[tuple[str, int], ...]:
        """All that the address names."""
        return ((self.host, self.port), *self.others)

    @property
    def where(self) -> str:
        """The server, for people and for ``identity``."""
        return ",".join(f"{host}:{port}" for host, port in self.nodes)

    @property
    def books(self) -> str:
        """The key of the books of all, which count the queries that come."""
        return f"{self.prefix}onceonly:books"

    def books_of(self, query: str) -> str:
        """Return the key of a query's books."""
        return f"{self.books}:{query}"

    @property
    def tried(self) -> str:
        """What the keys begin with that are there while a start tries what it may do."""
        return f"{self.prefix}onceonly:tried:"

    @property
    def witnesses(self) -> str:
        """What the keys of a cluster's witnesses begin with."""
        return f"{self.prefix}onceonly:witness:"


def _nodes(text: str) -> tuple[SplitResult, tuple[tuple[str, int], ...]]:
    """Return an address with its first server alone, and where the others are. Raises ``ValueError``."""
    url = urlsplit(text)
    who, at, servers = url.netloc.rpartition("@")
    first, *more = servers.split(",")
    others = [urlsplit(f"//{each}") for each in more]
    if not all(each.hostname for each in others):
        raise ValueError(text)
    return (
        url._replace(netloc=f"{who}{at}{first}"),
        tuple((str(each.hostname), each.port or _PORT) for each in others),
    )


def _wrong(why: str) -> ConfigurationError:
    # The address may hold a password.
    return ConfigurationError(
        f"The option url of the sink redis cannot be used: {why}.", next_step=f"write it as {_FORM}"
    )
