"""What Spark's ``offsets/N`` says: a version, a line of metadata, then the end offsets of each source. Pure."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# A version line and a line of metadata stand before the sources' lines (OffsetSeqLog.serialize).
_HEADER_LINES = 2
PARTITIONS = "spark.sql.shuffle.partitions"
"""What Spark notes the number of a state's partitions as."""
LISTED = '{"logOffset":'
"""How the offsets of a source begin that keeps lists of files."""
BEHIND_ROWS, BEHIND_MS = "onceonly.behind", "onceonly.behind.ms"
"""Where an offset of a source of ours says how far it was behind: rows that were there behind it, and milliseconds that
it was older than the newest record when the epoch was planned. Each by the names of the offset's own leaves."""
# Version 1 has offsets alone, which may be any text of the source's. Later ones have "name:offsets" (PySpark 4.2).
_WITHOUT_NAMES = "v1"
_NAMED = re.compile(r"(?P<name>[A-Za-z0-9_.-]+):(?=.)")


def barrier(text: str) -> tuple[str, ...]:
    """Return the end offsets of an epoch, one JSON text a source ("-" where it has none), without sources' names."""
    return tuple(json for _, json in lines(text))


def lines(text: str) -> tuple[tuple[str, str], ...]:
    """Return the name of each source, and its end offsets. In version 1 a source's name is its number."""
    version, *others = text.split("\n")
    found = [line for line in others[_HEADER_LINES - 1 :] if line]
    return tuple(_named(line, version, str(number)) for number, line in enumerate(found))


def is_numbered(lines: tuple[tuple[str, str], ...]) -> bool:
    """Say whether each source has the number of its line, as far as can be told.

    One that a plan reads twice has two lines and one number, so that those after it have other numbers.
    """
    return len({end for _, end in lines}) == len(lines)


def settings(text: str) -> dict[str, str]:
    """Return what Spark has noted of the query's session beside the offsets; nothing where that cannot be read."""
    try:
        noted = json.loads(text.split("\n", 2)[1])["conf"]
        return {str(name): str(value) for name, value in noted.items()}
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}


def partitions(text: str) -> int | None:
    """Return into how many partitions the state of an epoch is dealt, None where that is not told."""
    found = settings(text).get(PARTITIONS, "")
    return int(found) if found.isdigit() else None


def list_number(end: str) -> int | None:
    """Return the number of the newest list of files that a file source has read to; None for other sources' offsets."""
    if not end.startswith(LISTED):
        return None
    try:
        found = json.loads(end)["logOffset"]
    except (ValueError, KeyError):
        return None
    return found if isinstance(found, int) else None


def is_of_python(end: str) -> bool:
    """Say whether a source in Python has given these offsets: Spark keeps them as Python has written them, with spaces.

    Spark's own sources write JSON without any. For one in Python Spark keeps nothing but its offsets.
    """
    try:
        found = json.loads(end)
    except ValueError:
        return False
    return isinstance(found, dict) and " " in end and json.dumps(found) == end


def plain(line: str, version: str) -> str:
    """Take the source's name off a line, where files of this version line name their sources."""
    return _named(line, version, "")[1]


def is_same(noted: tuple[str, ...], barrier: tuple[str, ...]) -> bool:
    """Say whether end offsets that a decision notes are those of a barrier.

    The oldest decisions have sources' names, and others lack what looks like one in offsets that are text.
    """
    return len(noted) == len(barrier) and all(
        line == end or plain(line, "") == end or line == plain(end, "")
        for line, end in zip(noted, barrier, strict=True)
    )


def among(held: Iterable[str], written: Iterable[str]) -> bool:
    """Say whether each of these offsets is one of those that a file or a decision has.

    There may be more: one source twice, one that has no offset, one that is not read any more.
    """
    known = {_canonical(each) for line in written for each in (line, plain(line, ""))}
    return all(_canonical(each) in known or _canonical(plain(each, "")) in known for each in held)


def _canonical(offset: str) -> str:
    try:
        return json.dumps(json.loads(offset), sort_keys=True)
    except ValueError:
        return offset


def _named(line: str, version: str, number: str) -> tuple[str, str]:
    match = None if version == _WITHOUT_NAMES else _NAMED.match(line)
    return (match["name"], line[match.end() :]) if match else (number, line)
