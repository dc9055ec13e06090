"""Patterns of dates and times, in Spark's spelling: ``dd.MM.yyyy HH:mm``. Pure.

Those letters are taken whose text is the same as Spark's for every value, and which its readers take, too (they refuse
the day of the week); another one is refused by name. Names of months are English, as Spark's are by default.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    Write = Callable[[Any], str]
    """Of a date or a datetime, as the letters need it."""

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_SHORT = 3


class PatternError(ValueError):
    """A pattern that cannot be given exactly; its text says which part, and why."""


def _offset(colon: str, zero: str) -> Write:
    def write(value: datetime) -> str:
        # Before standard time, offsets have seconds, which Spark leaves out.
        offset = value.utcoffset()
        seconds = 0 if offset is None else int(offset.total_seconds())
        hours, minutes = divmod(abs(seconds) // 60, 60)
        return (
            zero if seconds == 0 and zero else f"{'-' if seconds < 0 else '+'}{hours:02d}{colon}{minutes:02d}"
        )

    return write


_OF_DATES: dict[str, Write] = {
    "yyyy": lambda value: f"{value.year:04d}",
    "yy": lambda value: f"{value.year % 100:02d}",
    "y": lambda value: str(value.year),
    "MMMM": lambda value: _MONTHS[value.month - 1],
    "MMM": lambda value: _MONTHS[value.month - 1][:_SHORT],
    **dict.fromkeys(("MM", "LL"), lambda value: f"{value.month:02d}"),
    **dict.fromkeys(("M", "L"), lambda value: str(value.month)),
    "dd": lambda value: f"{value.day:02d}",
    "d": lambda value: str(value.day),
}
_OF_TIMES: dict[str, Write] = {
    "HH": lambda value: f"{value.hour:02d}",
    "H": lambda value: str(value.hour),
    "hh": lambda value: f"{(value.hour + 11) % 12 + 1:02d}",
    "h": lambda value: str((value.hour + 11) % 12 + 1),
    "mm": lambda value: f"{value.minute:02d}",
    "m": lambda value: str(value.minute),
    "ss": lambda value: f"{value.second:02d}",
    "s": lambda value: str(value.second),
    "a": lambda value: "PM" if value.hour >= 12 else "AM",  # noqa: PLR2004  noon
}
_DIGITS_MAX = 9
_OF_ZONES: dict[str, Write] = {
    "XXX": _offset(":", "Z"), "xxx": _offset(":", ""), "XX": _offset("", "Z"), "xx": _offset("", ""),
    **dict.fromkeys(("Z", "ZZ", "ZZZ"), _offset("", "")),
}  # fmt: skip
_TOKEN = re.compile(r"'((?:[^']|'')*)'|(([a-zA-Z])\3*)|([\[\]])|([{}#'])|([^a-zA-Z\[\]{}#']+)")


def of_dates(pattern: str) -> Write:
    """Read a ``dateFormat``. Raises ``PatternError``."""
    return _compiled(pattern, _OF_DATES)


def of_local_times(pattern: str) -> Write:
    """Read a ``timestampNTZFormat``. Raises ``PatternError``."""
    return _compiled(pattern, _OF_DATES | _OF_TIMES | _fractions())


def of_times(pattern: str) -> Write:
    """Read a ``timestampFormat``, for values that have a zone. Raises ``PatternError``."""
    return _compiled(pattern, _OF_DATES | _OF_TIMES | _fractions() | _OF_ZONES)


def _fractions() -> dict[str, Write]:
    def digits(count: int) -> Write:
        return lambda value: f"{value.microsecond:06d}000"[:count]

    return {"S" * count: digits(count) for count in range(1, _DIGITS_MAX + 1)}


def _compiled(pattern: str, letters: dict[str, Write]) -> Write:
    parts = list(_parts(pattern, letters))
    if not parts:
        raise PatternError("it is empty")

    def write(value: datetime) -> str:
        return "".join(part if isinstance(part, str) else part(value) for part in parts)

    return write


def _parts(pattern: str, letters: dict[str, Write]) -> Iterator[str | Write]:
    """Yield the parts of a pattern; one in brackets is left out where the type has not what it asks for."""
    every = {**_OF_DATES, **_OF_TIMES, **_fractions(), **_OF_ZONES}
    section: list[str | Write] | None = None
    dropped = False
    for match in _TOKEN.finditer(pattern):
        quoted, run, _, bracket, reserved, plain = match.groups()
        if reserved or (bracket and (bracket == "[") is not (section is None)):
            raise PatternError(f"{match[0]!r} has no meaning there")
        if bracket == "[":
            section, dropped = [], False
            continue
        if bracket == "]":
            yield from section if section and not dropped else ()
            section = None
            continue
        part: str | Write
        if run is None:
            part = plain if quoted is None else quoted.replace("''", "'") or "'"
        elif run in letters:
            part = letters[run]
        elif section is not None and run in every:
            dropped = True
            continue
        else:
            raise PatternError(f"{run!r} is not among {' '.join(letters)}")
        if section is None:
            yield part
        else:
            section.append(part)
    if section is not None:
        raise PatternError("'[' is not closed")
