"""What a savepoint says of itself: ``savepoint.json``, put last. Values and their form on disk; no I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping  # noqa: TC003  the codec reads the annotations at run time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import msgspec

from onceonly import events
from onceonly.durable.sealed import Format
from onceonly.model import Stamp, seconds_of

NAME: Final = "savepoint.json"
BEGUN: Final = "begun.json"
"""What says of a folder without a manifest that it is ours: put first, taken away last."""
SIGN: Final = "making.json"
"""What says when its maker has come further last: now and then put anew, taken away with the rest."""
FILES: Final = "files/"
"""Where the files are, under the names that they have in a checkpoint."""
_FOLDER: Final = re.compile(r"chk-\d+-(\d{8}T\d{9}Z)-[0-9a-f]{6}")
_KIND = "savepoint"
_FORMAT = Format(
    name="onceonly",
    version=1,
    restore="restore another savepoint: onceonly savepoint list PLACE shows which there are",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file, by its name in a checkpoint. ``checksum`` is ``sha256:`` and hex digits."""

    name: str
    bytes: int
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What the epoch gave to one sink: its target, its transactions, and what became of them, by the outcome's name."""

    sink: str
    target: Mapping[str, str | int] = field(default_factory=dict)
    rows: int = 0
    transactions: tuple[str, ...] = ()
    outcomes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Savepoint:
    """One savepoint. ``query`` and ``log`` say whose, ``home`` where that was at home, ``epoch`` after which it starts.

    ``barrier`` are the end offsets of the epoch, a text a source; ``watermark_ms`` is that of the next epoch, in
    milliseconds since 1970, 0 where the query has none. ``provider`` is in words, empty where there is no state;
    ``spark`` the version of the run that decided the epoch, empty where nothing tells it. ``by_itself`` tells one that
    the query has made, and drops when newer ones stand, from one that somebody asked for.
    """

    name: str
    query: str
    log: str
    home: str
    epoch: int
    made: Stamp
    barrier: tuple[str, ...] = ()
    watermark_ms: int = 0
    provider: str = ""
    spark: str = ""
    sinks: tuple[Output, ...] = ()
    by_itself: bool = False
    files: tuple[File, ...] = ()

    @property
    def bytes(self) -> int:
        """The size of all of its files."""
        return sum(each.bytes for each in self.files)


def encode(savepoint: Savepoint) -> bytes:
    """Return what the manifest holds."""
    return _FORMAT.seal(_KIND, msgspec.json.encode(savepoint, order="deterministic"))


def decode(data: bytes, *, where: str) -> Savepoint:
    """Read a manifest; ``where`` is its full address. Raises ``LogError`` for one that is damaged."""
    return _FORMAT.read(data, Savepoint, kind=_KIND, where=where)


def encode_begun(query: str, *, dropped: bool = False) -> bytes:
    """Return what says that a folder is that of a savepoint of this query, and whether somebody drops it."""
    return json.dumps({"query": query} | ({"dropped": True} if dropped else {})).encode()


def begun_of(data: bytes) -> str:
    """Return the id of the query that a savepoint was begun of; empty where it is not told."""
    try:
        return str(json.loads(data)["query"])
    except (ValueError, LookupError, TypeError):
        return ""


def moment_of(name: str) -> datetime:
    """Return when a savepoint was begun, by its name; long ago for a name that does not tell. Pure."""
    match = _FOLDER.fullmatch(name)
    try:
        return datetime.strptime(f"{match[1] if match else ''}+0000", "%Y%m%dT%H%M%S%fZ%z")
    except ValueError:
        return datetime.fromtimestamp(0, UTC)


def encode_sign() -> bytes:
    """Return what says that a savepoint is being made now."""
    return json.dumps({"at": events.stamp().at}).encode()


def sign_of(data: bytes | None) -> float:
    """Say when a maker has come further last, in seconds since 1970; 0 where that is not told."""
    try:
        return seconds_of(Stamp(at=str(json.loads(data or b"")["at"])))
    except (ValueError, LookupError, TypeError):
        return 0.0


def watermark_of(commit: str) -> int:
    """Return the watermark that the next epoch has, by the text of ``commits/N``; 0 where none is told."""
    try:
        return int(json.loads(commit.partition("\n")[2])["nextBatchWatermarkMs"])
    except (ValueError, LookupError, TypeError):
        return 0
