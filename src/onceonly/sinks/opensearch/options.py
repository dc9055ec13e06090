"""The options of the sinks for OpenSearch and Elasticsearch."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from onceonly.errors import ConfigurationError
from onceonly.families import passwords
from onceonly.families.keyed import KeyedSink
from onceonly.families.passwords import Password
from onceonly.options import Option, some_time

if TYPE_CHECKING:
    from collections.abc import Mapping

_FORM = "https://host:9200, several of one cluster separated by commas"
_INDEX = re.compile(r"[a-z0-9][a-z0-9._+-]*")


def _index(text: str) -> str:
    if not _INDEX.fullmatch(text):
        raise ValueError(text)
    return text


DECLARED = (
    Option(name="url", doc=f"where the cluster is: {_FORM}; certificates are verified", required=True),
    Option(
        name="index",
        doc="the index that is written to; it exists, and is neither an alias nor a data stream",
        required=True,
        read=_index,
        form="the name of one index",
    ),
    Option(name="user", doc="the user who writes"),
    *passwords.DECLARED,
    Option(
        name="api.key",
        doc="in place of user and password: a key as Elasticsearch gives it, encoded",
        secret=True,
    ),
    Option(
        name="tls.ca",
        doc="a file with the certificates that are trusted, where the machine's own are not enough",
    ),
    Option(
        name="books",
        doc="the index in which the sink notes what it has committed; made where it is not there",
        default="onceonly-books",
        read=_index,
        form="the name of one index",
    ),
    Option(
        name="timeout",
        doc="how long an answer is waited for, and how long a cluster that has too much to do",
        default="60 seconds",
        read=some_time,
    ),
    *KeyedSink.declared,
)

OF_HADOOP: Mapping[str, str] = {
    f"{prefix}.{name}": step
    for prefix in ("es", "opensearch")
    for name, step in {
        "nodes": "write them into the option url: https://host:9200, several separated by commas",
        "port": "write it into the option url: https://host:9200",
        "resource": "name the index by the option index",
        "mapping.id": "name the columns of the key by the option key",
        "write.operation": "leave it out: a row replaces the document of its key",
        "net.http.auth.user": "give it as the option user",
        "net.http.auth.pass": "give it as the option password or password.file",
        "nodes.wan.only": "leave it out: only the url is asked",
        "net.ssl": "begin the option url with https://",
    }.items()
}
"""What the connectors of Elasticsearch and OpenSearch for Spark take, in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """Where the cluster is, and who writes what."""

    urls: tuple[str, ...]
    index: str
    books: str
    timeout_s: float
    tombstones_s: float
    ca: str | None = None
    user: str | None = None
    password: Password = field(default_factory=Password)
    api_key: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, options: Mapping[str, Any], who: str) -> SearchOptions:
        """Read them. Raises ``ConfigurationError``."""
        urls = tuple(each.strip().rstrip("/") for each in options["url"].split(","))
        for url in urls:
            # The address may hold a password.
            try:
                parts = urlsplit(url)
                is_one = parts.scheme in {"http", "https"} and parts.hostname and (parts.port or True)
            except ValueError:
                is_one = False
            if not is_one or parts.query or parts.username:
                raise ConfigurationError(
                    f"The option url of {who} cannot be used: it is not one of a cluster, or says who comes.",
                    next_step=f"write it as {_FORM}; user and password are options of their own",
                )
        password = Password.of(options, who)
        if options["api.key"] and (options["user"] or password.is_given):
            raise ConfigurationError(
                f"The option api.key of {who} is there, and so are user or password.",
                next_step="leave one out",
            )
        if options["books"] == options["index"]:
            raise ConfigurationError(
                f"The option books of {who} is its index, too.",
                next_step="name another index, or leave it out",
            )
        return cls(
            urls=urls,
            index=options["index"],
            books=options["books"],
            timeout_s=options["timeout"],
            tombstones_s=options["tombstones"],
            ca=options["tls.ca"],
            user=options["user"],
            password=password,
            api_key=options["api.key"],
        )

    @property
    def where(self) -> str:
        """The cluster, for people."""
        return self.urls[0]
