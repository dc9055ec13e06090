"""Names of what is staged: an attempt's epoch and slot, and a word that is drawn once. Pure, but for the draw.

In a folder one file of that name holds the rows. On a store parts hold them, ``NAME.0`` and so on, and an object of the
name alone says that the attempt has begun. A checkpoint may be moved from one to the other, so each reads both.
"""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from onceonly.families.staged.area import Names
    from onceonly.model import Handle
    from onceonly.ports import WriteContext

PARTS = "parts"
"""What a handle's data say where parts hold the rows: how many."""
ROWS, BYTES = "rows", "bytes"
"""What a handle's data say of all of it: how many rows, and in a folder, how long the file is."""
_FILE = re.compile(r"(?P<name>(?P<epoch>\d+)\.\d+\.[0-9a-f]{32}\.arrow)(?:\.(?P<part>\d{1,9}))?")


def new_name(context: WriteContext) -> str:
    """Return a name for what an attempt stages. It is never given again, so that nothing can be put in its place."""
    return f"{context.epoch}.{context.slot}.{uuid.uuid4().hex}.arrow"


def part_name(name: str, number: int) -> str:
    """Return the name of a part."""
    return f"{name}.{number}"


def epoch_of(name: str) -> int | None:
    """Return the epoch that a staged name tells, None for another name."""
    match = _FILE.fullmatch(name)
    return None if match is None else int(match["epoch"])


def owner_of(file: str) -> str:
    """Return the name to which a file or a part belongs; empty for those of others."""
    match = _FILE.fullmatch(file)
    return "" if match is None else match["name"]


def parts_of(handle: Handle) -> tuple[str, ...]:
    """Return the names of its parts."""
    return tuple(part_name(handle.transaction, number) for number in range(int(handle.data.get(PARTS, 0))))


def query_of(data: Mapping[str, str | int]) -> str:
    """Return the query that has staged something, by its handle's data: the folder is that of a query's sink."""
    return str(data["folder"]).partition("/")[0]


def by_query(names: Names) -> dict[str, set[str]]:
    """Return names by the queries that have staged them."""
    found: dict[str, set[str]] = {}
    for name, data in names.items():
        found.setdefault(query_of(data), set()).add(name)
    return found


def rows_of(handle: Handle) -> tuple[str, ...]:
    """Return the names under which its rows are, in their order."""
    return parts_of(handle) if PARTS in handle.data else (handle.transaction,)


def told(handle: Handle, what: str) -> int | None:
    """Return a number that a handle's data say, None where an older version wrote them without it."""
    return int(handle.data[what]) if what in handle.data else None


def grouped(files: Iterable[str], data: Mapping[str, str | int]) -> dict[str, Mapping[str, str | int]]:
    """Return the names to which files belong, each with ``data`` and the number of its parts."""
    parts: dict[str, int] = {}
    for file in sorted(files):
        match = _FILE.fullmatch(file)
        if match is not None:
            many = 0 if match["part"] is None else int(match["part"]) + 1
            parts[match["name"]] = max(parts.get(match["name"], 0), many)
    return {name: {**data, PARTS: many} if many else data for name, many in parts.items()}
