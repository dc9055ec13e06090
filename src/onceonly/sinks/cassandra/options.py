"""The options of the Cassandra sink."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from onceonly.errors import ConfigurationError
from onceonly.families import passwords
from onceonly.families.keyed import KeyedSink
from onceonly.families.passwords import Password
from onceonly.options import Option, boolean, some_time

if TYPE_CHECKING:
    from collections.abc import Mapping

_PORT = 9042
_BOOKS = re.compile(r"[a-z][a-z0-9_]{0,47}")
WRITE, KEEP = "write", "keep"


def _hosts(text: str) -> tuple[tuple[str, int], ...]:
    found = []
    for each in text.split(","):
        parts = urlsplit(f"//{each.strip()}")
        if not parts.hostname or parts.path or parts.query or parts.username is not None:
            raise ValueError(text)
        found.append((parts.hostname, parts.port or _PORT))
    return tuple(found)


def _books(text: str) -> str:
    if not _BOOKS.fullmatch(text):
        raise ValueError(text)
    return text


DECLARED = (
    Option(
        name="hosts",
        doc=f"nodes that are asked for the others: host, or host:{_PORT}, separated by commas",
        required=True,
        read=_hosts,
        form=f"names of hosts, each with a port behind a colon where it is not {_PORT}, separated by commas",
    ),
    Option(name="keyspace", doc="the keyspace of the table, as it is spelled there", required=True),
    Option(name="table", doc="the table that is written to; it exists", required=True),
    Option(name="user", doc="the user who writes"),
    *passwords.DECLARED,
    Option(
        name="tls",
        doc="whether nodes are reached over TLS; their certificates and names are verified then",
        default="false",
        read=boolean,
    ),
    Option(
        name="tls.ca",
        doc="a file with the certificates that are trusted, where the machine's own are not enough",
    ),
    Option(name="datacenter", doc="the data centre whose nodes are asked; that of the first host by default"),
    Option(
        name="consistency",
        doc="how many replicas have a row before it counts as written",
        default="LOCAL_QUORUM",
        choices=("LOCAL_QUORUM", "QUORUM", "ALL"),
    ),
    Option(
        name="nulls",
        doc=f"what a null does: {WRITE}, the default, removes what its column had; {KEEP} leaves it",
        default=WRITE,
        choices=(WRITE, KEEP),
    ),
    Option(
        name="books",
        doc="the table of that keyspace in which the sink notes what it has committed; made where it is not there",
        default="onceonly_books",
        read=_books,
        form="a name of small letters, digits and underscores",
    ),
    Option(
        name="timeout",
        doc="how long an answer is waited for",
        default="30 seconds",
        read=some_time,
    ),
    *KeyedSink.declared,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraOptions:
    """Where the table is, and how it is written."""

    hosts: tuple[tuple[str, int], ...]
    keyspace: str
    table: str
    books: str
    consistency: str
    keeps_nulls: bool
    timeout_s: float
    tombstones_s: float
    tls: bool
    ca: str | None = None
    datacenter: str | None = None
    user: str | None = None
    password: Password = field(default_factory=Password)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> CassandraOptions:
        """Read them. Raises ``ConfigurationError``."""
        password = Password.of(options, "the sink cassandra")
        for option, needed, is_there in (
            ("tls.ca", "tls", options["tls"]),
            ("user", "password", password.is_given),
        ):
            if options[option] and not is_there:
                raise ConfigurationError(
                    f"The option {option} of the sink cassandra is there, and {needed} is not.",
                    next_step=f"set {needed}, or leave {option} out",
                )
        if password.is_given and not options["user"]:
            raise ConfigurationError(
                "The sink cassandra has a password, and nobody whose it is.", next_step="set the option user"
            )
        return cls(
            hosts=options["hosts"],
            keyspace=options["keyspace"],
            table=options["table"],
            books=options["books"],
            consistency=options["consistency"],
            keeps_nulls=options["nulls"] == KEEP,
            timeout_s=options["timeout"],
            tombstones_s=options["tombstones"],
            tls=options["tls"],
            ca=options["tls.ca"],
            datacenter=options["datacenter"],
            user=options["user"],
            password=password,
        )

    @property
    def cluster(self) -> str:
        """The nodes that it was told of, for people and for ``identity``."""
        return ",".join(sorted(f"{host}:{port}" for host, port in self.hosts))

    @property
    def where(self) -> str:
        """The table, for people."""
        return f"{self.keyspace}.{self.table}"
