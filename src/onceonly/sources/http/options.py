"""The options of ``onceonly.http``."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from onceonly.errors import ConfigurationError
from onceonly.options import Option, some_time

if TYPE_CHECKING:
    from collections.abc import Mapping

HEADER: Final = "header."
_TOKEN: Final = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")

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
        if self._kind == "header" and not _TOKEN.fullmatch(self._name):
            raise ConfigurationError(
                f"The option resume of onceonly.http is {text!r}, which names no header.",
                next_step="header:Last-Event-ID is the one of server-sent events",
            )

    def __bool__(self) -> bool:
        return self._kind != "none"

    def headers(self, last: str | None) -> dict[str, bytes]:
        """Return the headers that say where to go on. Raises ``ConfigurationError`` for an id that fits into none."""
        if self._kind != "header" or not last:
            return {}
        if last != last.strip() or _CONTROL.search(last):
            raise ConfigurationError(
                f"the id {last!r}, after which the server is to go on, does not fit into the header {self._name}",
                next_step="set resume=query:NAME, if the server knows that; or have ids without line ends and without "
                "spaces around them",
            )
        return {self._name.lower(): last.encode()}  # in place of one that the user gives, for the beginning

    def query(self, last: str | None) -> dict[str, str]:
        """Return the part of the query that says where to go on."""
        return {self._name: last} if self._kind == "query" and last else {}


def headers_of(options: Mapping[str, Any]) -> dict[str, bytes]:
    """Return what the options ``header.NAME`` say. Raises ``ConfigurationError``, which shows no value."""
    found = {}
    for option, text in options.items():
        if not option.lower().startswith(HEADER):
            continue
        name, value = option[len(HEADER) :], str(text).strip()
        if not _TOKEN.fullmatch(name):
            raise ConfigurationError(
                f"The option {option} of onceonly.http names no header.",
                next_step="write it as header.NAME, such as header.Authorization",
            )
        if _CONTROL.search(value):
            raise ConfigurationError(
                f"The option {option} of onceonly.http has a line end or another control character inside.",
                next_step="give its value on one line",
            )
        found[name] = value.encode()
    return found


def id_of(line: bytes, field: str) -> str | None:
    """Return what a line of JSON has in a field, as text; None where it is no JSON object or has none.

    A text that is empty, or that no UTF-8 can hold, names nothing.
    """
    try:
        found = json.loads(line)[field]
        text = found if isinstance(found, str) else json.dumps(found)
        text.encode()
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return None if found is None or not text else text


def is_whole(line: bytes) -> bool:
    """Say whether a line without its end is whole: a JSON object ends in itself."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
