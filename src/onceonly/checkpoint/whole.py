"""What a whole file of Spark's looks like, so that a torn one is told from it. Pure."""

from __future__ import annotations

import contextlib
import json
import re

from onceonly import offsets

# A clock in milliseconds, which a rate source keeps: 13 digits from 2001 to 2286.
_CLOCK_DIGITS = 13
# What a file source says: the number of its newest list of files.
_LISTED = re.compile(r'^\{"logOffset":(\d+)\}$')
# How each list of Spark's own sources begins; a Kafka source puts a zero byte first.
_BEGINNING = re.compile(r"\0?v(?:\d+)?(?:\n|\Z)")


def is_id(text: str) -> bool:
    """Say whether it is the file of a query's id."""
    try:
        return bool(json.loads(text)["id"])
    except (ValueError, KeyError, TypeError):
        return False


def is_commit(text: str) -> bool:
    """Say whether it is the note of a complete epoch."""
    version, _, rest = text.partition("\n")
    return _is_version(version) and _is_value(rest) and rest.startswith("{")


def is_barrier(text: str, before: str) -> bool:
    """Say whether it is whole: as many sources as the one before, and none that went back."""
    version, *lines = _plain(text)
    others = _plain(before)[1:]
    if not _is_version(version) or len(lines) < 2:  # noqa: PLR2004  metadata, a source
        return False
    if not others:
        return all(map(_is_value, lines))
    return len(lines) == len(others) and all(map(_follows, lines, others))


def _plain(text: str) -> list[str]:
    """Return the lines of a barrier without the names of sources."""
    version, *lines = text.split("\n")
    return [version, *(offsets.plain(line, version) for line in lines)]


def _follows(new: str, old: str) -> bool:
    """Say whether a line is whole, and not before the one of the former barrier: a number that is cut is smaller."""
    if old and not _is_value(old):  # a source whose offsets are text: only what is no text can be told
        return bool(new) and "\0" not in new
    return _is_value(new) and (not (new.isdigit() and old.isdigit()) or int(new) >= int(old))


def list_needed(end: str, *, is_first: bool) -> int:
    """Return the number of the list that must be there with an end offset; -1 where none must."""
    listed = _LISTED.search(end)
    if listed:
        return int(listed[1])
    if is_first and end != "-" and not offsets.is_of_python(end):
        # Most other sources keep where they began as their list 0; of one in Python there are offsets alone.
        return 0
    return -1


def is_torn_list(text: str) -> bool:
    """Say whether it is a part of what a source of Spark's keeps. A source of somebody else's keeps what it likes."""
    return not text.strip("\0") or (_BEGINNING.match(text) is not None and not _is_list(text))


def _is_list(text: str) -> bool:
    version, *lines = text.split("\n")
    if not _is_version(version):
        # A Kafka source puts a zero byte first.
        return version.startswith("\0v") and bool(lines) and _is_value(lines[-1])
    return (
        bool(lines)
        and all(map(_is_value, lines))
        and (not lines[-1].isdigit() or len(lines[-1]) >= _CLOCK_DIGITS)
    )


def _is_version(line: str) -> bool:
    return line.startswith("v") and line[1:].isdigit()


def _is_value(line: str) -> bool:
    """Say whether a line is JSON, or a dash for a source that has said nothing."""
    if line == "-":
        return True
    with contextlib.suppress(ValueError):
        json.loads(line)
        return True
    return False
