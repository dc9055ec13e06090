"""What the handles of an epoch say of the partitions of their targets: rows, bytes, where the rows begin. Pure.

Nothing is worked out that they do not say: what is not there is None. A sink is left out where one of its handles is
silent, as a sum without it would be wrong; and so is one of whose handles nothing is known here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from onceonly.model import Link, Vote


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What an epoch has in one partition of a target; ``partition`` is empty where that has none.

    ``bytes`` are those of its files, ``first`` is the offset of its first row.
    """

    sink: str
    partition: str
    rows: int | None = None
    bytes: int | None = None
    first: int | None = None


def parts(link: Link) -> tuple[Part, ...]:
    """Return what a decision has in each partition of its targets, by sink and in the order of its slots."""
    found: dict[tuple[str, str], Part] = {}
    silent: set[str] = set()
    for vote in link.output:
        own = _read(vote, link)
        if vote.rows and not own:
            silent.add(vote.sink)
        for part in own:
            key = part.sink, part.partition
            found[key] = _together(found[key], part) if key in found else part
    return tuple(part for part in found.values() if part.sink not in silent)


def _read(vote: Vote, link: Link) -> list[Part]:
    """Return what a handle says; nothing of one that is written in a way that is not known here."""
    use = link.uses.get(vote.sink)
    read = _READ.get(use.sink) if use is not None else None
    try:
        return list(read(vote)) if read is not None else []
    except (KeyError, TypeError, ValueError):
        return []


def _together(one: Part, two: Part) -> Part:
    def both(of: Callable[[Part], int | None], put: Callable[[int, int], int]) -> int | None:
        first, second = of(one), of(two)
        return None if first is None or second is None else put(first, second)

    return Part(
        sink=one.sink,
        partition=one.partition,
        rows=both(lambda part: part.rows, int.__add__),
        bytes=both(lambda part: part.bytes, int.__add__),
        first=both(lambda part: part.first, min),
    )


def _in_kafka(vote: Vote) -> Iterator[Part]:
    """Yield the partitions of a transaction; how many rows each has is known where it is one alone."""
    places = [
        (topic, place)
        for topic, _, some in (
            entry.partition(":") for entry in str(_data(vote).get("written", "")).split(";")
        )
        for place in filter(None, some.split(","))
    ]
    for topic, place in places:
        partition, _, offset = place.partition("@")
        yield Part(
            sink=vote.sink,
            partition=f"{topic}/{partition}",
            rows=vote.rows if len(places) == 1 else None,
            first=int(offset) if offset.isdecimal() else None,  # -1 is not known
        )


def _in_files(vote: Vote) -> Iterator[Part]:
    """Yield the files of a folder's transaction, by the folders of their partitions."""
    for path, size, rows, *_ in json.loads(str(_data(vote).get("files", "[]"))):
        yield Part(sink=vote.sink, partition=str(path).rpartition("/")[0], rows=rows, bytes=size)


def _in_table(vote: Vote) -> Iterator[Part]:
    """Yield the files of a table's transaction, by the values of their partitions."""
    for file in json.loads(str(_data(vote).get("files", "[]"))):
        keys = ["null" if key is None else str(key) for key in file.get("keys", ())]
        yield Part(sink=vote.sink, partition="/".join(keys), rows=file["rows"], bytes=file["bytes"])


def _data(vote: Vote) -> Mapping[str, Any]:
    return vote.handle.data if vote.handle is not None else {}


_READ: Final[Mapping[str, Callable[[Vote], Iterator[Part]]]] = {
    "kafka": _in_kafka, "files": _in_files, "delta": _in_table, "iceberg": _in_table,
}  # fmt: skip
"""How the handles of a built-in sink are read, without the packages that the sink itself needs."""
