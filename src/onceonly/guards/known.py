"""What was found out of a query's sources, kept in its checkpoint: ``onceonly/sources.json``.

The ids of topics are compared at each start; formats and promise are for people. Written before the first decision of a
start, durably, and only where something is new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from onceonly.durable.sealed import Format
from onceonly.log.place import FOLDER
from onceonly.settings.query import SOURCE_CHANGED, GoOn

if TYPE_CHECKING:
    from onceonly.checkpoint.files import CheckpointFiles

NAME = f"{FOLDER}/sources.json"
_KIND = "sources"
_FORMAT = Format(
    name="onceonly",
    version=1,
    restore=f"start once with {SOURCE_CHANGED}={GoOn.GO_ON.value}, which finds it out anew: a topic that was made anew "
    "meanwhile is not noticed",
)


class Known(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``formats`` are those of the sources, none where nobody could look; ``promise`` is from end to end.

    ``topics`` has the ids of each topic of that name, of which a query with several clusters has several; ``since`` the
    epoch in which each was seen first. ``start`` names the start that has looked, empty where it has no name.
    """

    formats: tuple[str, ...] = ()
    promise: str = ""
    topics: dict[str, tuple[str, ...]] = {}
    since: dict[str, int] = {}
    start: str = ""


def read(checkpoint: CheckpointFiles) -> Known | None:
    """Return it, None where nothing was found out yet. Any process. Raises ``LogError``, ``UnavailableError``."""
    text = checkpoint.text(NAME)
    if text is None:
        return None
    where = checkpoint.where(NAME)
    return _FORMAT.read(text.encode(), Known, kind=_KIND, where=where)


def write(checkpoint: CheckpointFiles, known: Known) -> None:
    """Write it durably over what is there. Planner or driver, at a start. Raises ``UnavailableError``."""
    checkpoint.write(NAME, _FORMAT.seal(_KIND, msgspec.json.encode(known, order="deterministic")).decode())
