"""A job that is to be started, as a file describes it for ``onceonly doctor --for``.

One JSON object: ``format`` and ``options`` as on the query; and, where they are known, ``columns`` (name to Spark's
type), ``source`` (``format`` and ``options``), ``spark`` (settings of the session), ``trigger`` and ``outage`` (times
such as ``10 seconds``: how often it runs, and for how long it may be down).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from onceonly import options
from onceonly.durable.sealed import decoder
from onceonly.errors import ConfigurationError
from onceonly.guards.source import KAFKA, Source

if TYPE_CHECKING:
    from pathlib import Path

_KEY = re.compile(r'"([^"\\]+)"\s*:')
_NEWLINE = "\n"
_BYTE = re.compile(r"\(byte (\d+)\)")
Text = str | int | float | bool


class _Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: str
    options: dict[str, Text] = {}


class _Described(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: str
    options: dict[str, Text] = {}
    columns: dict[str, str] = {}
    source: _Source | None = None
    spark: dict[str, Text] = {}
    trigger: str = ""
    outage: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """What a file says of a job. Its options may hold secrets and are never shown; times are None where not said."""

    format: str
    options: dict[str, str] = field(repr=False)
    columns: tuple[tuple[str, str], ...] = ()
    source: Source | None = None
    spark: dict[str, str] = field(default_factory=dict, repr=False)
    trigger_s: float | None = None
    outage_s: float | None = None
    file: str = ""
    places: dict[str, tuple[int, ...]] = field(default_factory=dict, repr=False)
    """The lines of the file in which a name stands, in lower case."""

    def place_in(self, told: str) -> str:
        """Say where in the file stands what a sentence names; empty where it names nothing that does. Pure."""
        words = {word.strip("'\"").lower().rstrip(".,:;") for word in told.split()}
        named = [name for name in self.options if name in self.places and name in words]
        if not named:
            return ""
        lines = self.places[max(named, key=len)]
        return f"line {' and '.join(map(str, lines))} of {self.file}"

    @property
    def reads_kafka(self) -> bool:
        return self.source is not None and self.source.format == KAFKA


def read(path: Path) -> PlannedJob:
    """Read the file. Raises ``ConfigurationError`` that shows nothing of its values."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error.strerror}", next_step="name another file"
        ) from error
    try:
        found = decoder(_Described).decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        at = _BYTE.search(str(error))
        line = f", in line {1 + data.count(ord(_NEWLINE), 0, int(at[1]))}" if at else ""
        raise ConfigurationError(
            f"{path} does not describe a job: {error}{line}",
            next_step='write a JSON object with "format" and "options", and maybe "columns", "source", "spark", '
            '"trigger" and "outage"',
        ) from None
    given = found.source
    source = Source(given.format.removeprefix("onceonly."), _texts(given.options)) if given else None
    return PlannedJob(
        format=found.format,
        options=_texts(found.options),
        columns=tuple(found.columns.items()),
        source=source,
        spark={name: _text(value) for name, value in found.spark.items()},
        trigger_s=_time("trigger", found.trigger),
        outage_s=_time("outage", found.outage),
        file=str(path),
        places=_places(data.decode()),
    )


def _places(text: str) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for number, line in enumerate(text.split(_NEWLINE), start=1):
        for name in dict.fromkeys(match[1].lower() for match in _KEY.finditer(line)):
            found[name] = (*found.get(name, ()), number)
    return found


def _texts(found: dict[str, Any]) -> dict[str, str]:
    return {name.lower(): _text(value) for name, value in found.items()}


def _text(value: Text) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _time(name: str, text: str) -> float | None:
    try:
        return options.some_time(text) if text else None
    except ValueError:
        raise ConfigurationError(
            f"{name!r} cannot be {text!r}", next_step="write a time such as 10 seconds or 4 hours"
        ) from None
