"""What Spark's ``offsets/N`` says: a version, a line of metadata, then the end offsets of each source. Pure."""

from __future__ import annotations

import re

# A version line and a line of metadata stand before the sources' lines (OffsetSeqLog.serialize).
_HEADER_LINES = 2
# Version 2 has "name:offsets" (PySpark 4.2). JSON that has a colon begins with a bracket or a quotation mark.
_NAMED = re.compile(r"(?P<name>[A-Za-z0-9_.-]+):(?=.)")


def barrier(text: str) -> tuple[str, ...]:
    """Give the end offsets of an epoch, one JSON text a source ("-" where it has none), without sources' names."""
    return tuple(json for _, json in lines(text))


def lines(text: str) -> tuple[tuple[str, str], ...]:
    """Give the name of each source, and its end offsets. In version 1 a source's name is its number."""
    found = [line for line in text.split("\n")[_HEADER_LINES:] if line]
    return tuple(_named(line, str(number)) for number, line in enumerate(found))


def plain(line: str) -> str:
    """Take the source's name off, where there is one."""
    return _named(line, "")[1]


def _named(line: str, number: str) -> tuple[str, str]:
    match = _NAMED.match(line)
    return (match["name"], line[match.end() :]) if match else (number, line)
