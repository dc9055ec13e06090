"""The options of ``onceonly.http``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from onceonly.errors import ConfigurationError
from onceonly.options import Option, some_time

if TYPE_CHECKING:
    from collections.abc import Mapping

HEADER: Final = "header."

DECLARED: tuple[Option, ...] = (
    Option(
        name="url",
        doc="The address to read from, `http` or `https`. What is secret belongs into `header.Authorization`.",
        required=True,
        secret=True,
    ),
    Option(
        name="id",
        doc="The JSON field of a line that names it for good. Server-sent events have an id of their own.",
    ),
    Option(
        name="resume",
        doc="How the server is told after which id to go on: `header:Last-Event-ID`, `query:NAME`, or `none`.",
        default="none",
    ),
    Option(
        name="stallTimeout",
        doc="After how long without a byte the connection is made anew.",
        default="60 s",
        read=some_time,
        form="a time such as 60 s",
    ),
)


class Resume:
    """Where the last id goes in a request. Raises ``ConfigurationError`` for a way that there is none of."""

    def __init__(self, text: str) -> None:
        kind, _, self._name = text.partition(":")
        self._kind = kind.strip().lower()
        self._name = self._name.strip()
        if self._kind not in {"none", "header", "query"} or bool(self._name) == (self._kind == "none"):
            raise ConfigurationError(
                f"The option resume of onceonly.http is {text!r}, and must be header:NAME, query:NAME or none.",
                next_step="header:Last-Event-ID is the one of server-sent events",
            )

    def __bool__(self) -> bool:
        return self._kind != "none"

    def headers(self, last: str | None) -> dict[str, str]:
        """Return the headers that say where to go on."""
        return {self._name: last} if self._kind == "header" and last is not None else {}

    def query(self, last: str | None) -> dict[str, str]:
        """Return the part of the query that says where to go on."""
        return {self._name: last} if self._kind == "query" and last is not None else {}


def headers_of(options: Mapping[str, Any]) -> dict[str, str]:
    """Return what the options ``header.NAME`` say."""
    return {
        name[len(HEADER) :]: str(text)
        for name, text in options.items()
        if name.lower().startswith(HEADER) and len(name) > len(HEADER)
    }


def id_of(line: bytes, field: str) -> str | None:
    """Return what a line of JSON has in a field, as text; None where it is no JSON object or has none."""
    try:
        found = json.loads(line)[field]
    except (ValueError, KeyError, TypeError):
        return None
    if isinstance(found, str):
        return found
    return None if found is None else json.dumps(found)
