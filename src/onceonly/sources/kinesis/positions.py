"""Where a shard is read from, and what an offset says. Pure; JSON on both sides."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping  # noqa: TC003  msgspec reads it
from typing import Any

import msgspec

from onceonly.durable.sealed import decoder
from onceonly.offsets import BEHIND_MS
from onceonly.sources.versioned import read_offset

TRIM, LATEST, TIME, AFTER = "trim_horizon", "latest", "time", "after"
VERSION = 1


class Position(msgspec.Struct, frozen=True, array_like=True):
    """A place in a shard: its oldest record, a time, or behind the record with a sequence number."""

    kind: str
    value: str = ""

    @classmethod
    def since(cls, seconds: float) -> Position:
        """Return the place of the first record that came at a time, in seconds since 1970, or later."""
        return cls(TIME, f"{seconds:.3f}")

    @classmethod
    def after(cls, sequence: str) -> Position:
        """Return the place behind a record."""
        return cls(AFTER, sequence)


class Offset(msgspec.Struct, frozen=True, kw_only=True):
    """What an epoch reads: the plan that is durable before its tasks run. ``number`` 0 is the beginning, of nothing.

    ``reader`` names the query among all that keep their ranges in one place; ``made`` is when the stream was made, so
    that another one of its name is noticed. ``start`` is where each open shard is read from, ``done`` are shards that
    were read to their end, ``groups`` the shards of each task. ``until`` is when an ``availableNow`` has begun, by the
    service's clock; ``records_max`` what all tasks together may read. ``behind`` is for people: how many milliseconds
    the places in ``start`` were behind the newest record of their shard, by the service, named as in this offset.
    ``seen`` is since when shards may have records that were not read, ``keeps`` for how many seconds the stream kept
    records then; None where that was not told.
    ``former`` is in the first offset of a fork: the reader among whose ranges are those of this epoch. ``ranges`` is
    where they are kept, for who makes a savepoint and has no options; the query's option counts.
    """

    version: int = VERSION
    reader: str
    number: int
    made: str
    start: Mapping[str, Position] = {}
    done: tuple[str, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()
    until: float | None = None
    records_max: int | None = None
    behind: Mapping[str, int] = msgspec.field(name=BEHIND_MS, default_factory=dict)
    former: str = ""
    ranges: str = ""
    seen: Mapping[str, float] = {}
    keeps: float | None = None

    @property
    def json(self) -> dict[str, Any]:
        """The offset as Spark keeps it."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Offset:
        """Read one of a checkpoint. Raises ``ConfigurationError``."""
        return read_offset(cls, given, version=VERSION, of="Kinesis", source="the source kinesis")


def starts_of(offset: Offset) -> list[dict[str, Position]]:
    """Return where each task of an epoch begins, by shard."""
    return [{name: offset.start[name] for name in names} for names in offset.groups]


def forked(offset: str, query: str) -> str:
    """Return the text of an offset as a fork begins with it, which keeps its ranges apart; another source's as it is.

    ``query`` is the fork's id: the same fork always has the same ranges.
    """
    try:
        given = decoder(Offset).decode(offset)
    except msgspec.MsgspecError:
        return offset
    reader = hashlib.sha256(f"{query} {given.reader}".encode()).hexdigest()[: len(given.reader)]
    former = given.former or given.reader
    # As Spark has it from Python: it compares texts.
    return json.dumps({**json.loads(offset), "reader": reader, "former": former})
