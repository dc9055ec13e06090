"""The ranges that a savepoint carries: where the tasks of its epoch ended. Any process.

Only they tell where what follows that epoch begins, and its query deletes them as it goes on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from onceonly.durable.sealed import UNREADABLE, decoder
from onceonly.errors import ConfigurationError, SetupError
from onceonly.sources.kinesis.positions import Offset, starts_of
from onceonly.sources.kinesis.ranges import KEPT, Range, Ranges, seal, unseal

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger("onceonly")


class DeletedError(Exception):
    """A range of an epoch was there, and the query has gone on and deleted it. Its text says which."""


def carried(line: str) -> dict[str, bytes]:
    """Return the files of the ranges of an epoch, by their names; none for the offset of another source.

    None, too, where not each task has left one, or nobody sees them from here. Raises ``DeletedError``,
    ``UnavailableError``.
    """
    offset = _offset(line)
    if offset is None or not offset.groups:
        return {}
    if not offset.ranges:
        return _without("the epoch was planned by an older onceonly, which has not noted where they are")
    try:
        standing = Ranges.at(offset.ranges, offset.former or offset.reader)
        files = _files(offset, standing, Ranges.at(offset.ranges, offset.reader))
        if len(files) == len(offset.groups):
            return files
        if standing.is_there():
            return {}
    except (ConfigurationError, SetupError) as error:  # it has no way to them
        return _without(error.what)
    return _without(f"they are not at {offset.ranges} as this machine sees it")


def _without(why: str) -> dict[str, bytes]:
    log.warning(
        "The savepoint goes without the ranges of the source kinesis, and can be started from as long as its query has "
        "them, for %d epochs: %s", KEPT, why,
    )  # fmt: skip
    return {}


def _files(offset: Offset, standing: Ranges, own: Ranges) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for group, start in enumerate(starts_of(offset)):
        each = standing.get(offset.number, group, start) or own.brought(offset.number, group, start)
        if each is not None:
            found[_name(offset, group)] = seal(each)
        elif standing.newest() > offset.number:
            message = f"the range of task {group} of epoch {offset.number} of the source kinesis"
            raise DeletedError(message)
    return found


def held(line: str, files: Mapping[str, bytes]) -> list[Range]:
    """Return the ranges of an epoch among the files of a savepoint, task by task; none unless all are there."""
    offset = _offset(line)
    names = [] if offset is None else [_name(offset, group) for group in range(len(offset.groups))]
    return [unseal(files[name], where=name) for name in names] if files.keys() >= set(names) else []


def bring(line: str, ranges: list[Range], place: str = "") -> str:
    """Put the ranges of a savepoint where a start from it looks for them; return this place, empty where there is none.

    ``line`` is the offset that is started from; ``place`` where ranges are kept, where that is not what it says.
    Idempotent. Raises ``ConfigurationError``, ``UnavailableError``.
    """
    offset = _offset(line)
    place = place or (offset.ranges if offset is not None else "")
    if offset is None or not ranges or not place:
        return ""
    into = Ranges.at(place, offset.reader)
    into.prepare()
    for group, each in enumerate(ranges):
        into.bring(offset.number, group, each)
    return place


def _offset(line: str) -> Offset | None:
    try:
        return decoder(Offset).decode(line)
    except UNREADABLE:
        return None


def _name(offset: Offset, group: int) -> str:
    return f"range.{offset.reader}.{offset.number}.{group}.json"
