"""What tasks have read: put once, by the first attempt that gets there; what stands is what all others read."""

from __future__ import annotations

import hashlib
import logging
import zlib
from collections.abc import Iterable, Iterator, Mapping  # noqa: TC003  msgspec reads it
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onceonly.durable.sealed import Format
from onceonly.errors import SourceChangedError, UnavailableError
from onceonly.sources.kinesis.positions import Position  # noqa: TC001  msgspec reads it
from onceonly.stores.opened import address_of, open_store
from onceonly.stores.port import put_once

if TYPE_CHECKING:
    from onceonly.stores.port import RewritableStore

log = logging.getLogger("onceonly")

_FORMAT = Format(
    name="onceonly", version=1, restore="restore the ranges of the query, or start on a new checkpoint"
)
_KIND, _MARK, _LOOK = "range", "reader", "look"
KEPT: Final = 100
"""How many epochs back ranges are kept: as many as Spark keeps offsets of by default."""


class End(msgspec.Struct, frozen=True, kw_only=True):
    """Where a shard's share ends. ``next`` is an iterator that saves a request, and may have expired.

    ``behind_ms`` is how far the service says that is from its newest record; ``is_closed`` says that the shard has no
    more; ``reached`` is the ``until`` of the plan, where no record before it is left. ``seen`` is since when, by the
    service's clock, it or its children may have records that were not read.
    """

    position: Position
    rows: int = 0
    behind_ms: int = 1
    is_closed: bool = False
    next: str | None = None
    reached: float | None = None
    seen: float | None = None


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """What one task has read. ``checksum`` is over its records' numbers and data, in their order."""

    start: Mapping[str, Position]
    ends: Mapping[str, End]
    checksum: int = 0


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """What a look has shown that found nothing behind an epoch: ``seen`` as in ``End``, by shard.

    ``places`` is a hash of where its shards ended; ``keeps`` as in an offset.
    """

    number: int
    places: str
    seen: Mapping[str, float]
    keeps: float | None = None


class Ranges:
    """The ranges of one query. Driver and executors, any number of processes."""

    def __init__(self, store: RewritableStore, reader: str) -> None:
        self._store, self._reader = store, reader

    @classmethod
    def at(cls, address: str, reader: str) -> Ranges:
        """Open them; nothing is asked or made yet. Raises ``ConfigurationError``, ``SetupError``."""
        return cls(open_store(address_of(address, what="the option onceonly.ranges")), reader)

    def is_there(self) -> bool:
        """Say whether their place is marked."""
        return self._store.get(self._marker) is not None

    def prepare(self) -> None:
        """Make their place, and do not mark it: whoever has lost its ranges is to notice. Idempotent."""
        self._store.prepare([self._reader])

    def begin(self) -> None:
        """Make their place and mark it, before the first offset is durable. Driver, idempotent."""
        self.prepare()
        put_once(self._store, self._marker, _FORMAT.seal(_MARK, b"{}"))

    def require(self) -> None:
        """See that they are there: what is missing would be read again. Raises ``SourceChangedError``."""
        if not self.is_there():
            raise SourceChangedError(
                f"the ranges that this query's checkpoint stands on are not at {self._store.where(self._reader)}: they "
                "were deleted, or onceonly.ranges is another place than before",
                next_step="name their place in onceonly.ranges; where they are lost, start on a new checkpoint with "
                "startingPosition at a time before the last epoch: rows of that time are read again",
            )

    def get(self, number: int, group: int, start: Mapping[str, Position]) -> Range | None:
        """Return what stands for a task of an epoch that reads from ``start``. Raises a typed error."""
        found = self._get(self._name(number, group))
        if found is None or found.start == start:
            return found
        return self._get(self._own_name(number, group, start))

    def fix(self, number: int, group: int, found: Range) -> Range:
        """Put what a task has read, unless another attempt has; return what stands. Raises a typed error.

        A query that was restored has those of its former life beside its own, and so have forks and originals of
        before forks had ranges of their own: what was planned alike is read alike, and the rest has names of its own.
        """
        standing = self._fix(self._name(number, group), found)
        if standing.start == found.start:
            return standing
        return self._fix(self._own_name(number, group, found.start), found)

    def brought(self, number: int, group: int, start: Mapping[str, Position]) -> Range | None:
        """Return what a savepoint has brought of a task. Raises a typed error."""
        return self._get(self._brought_name(number, group, start))

    def bring(self, number: int, group: int, found: Range) -> None:
        """Put what a savepoint has of a task, under a name that no life of the query deletes. Operator, idempotent."""
        put_once(self._store, self._brought_name(number, group, found.start), seal(found))

    def note_look(
        self, number: int, ends: Mapping[str, End], seen: Mapping[str, float], keeps: float | None
    ) -> None:
        """Note what a look behind an epoch has shown, for a later life. Driver. Raises ``UnavailableError``."""
        looked = Looked(number=number, places=_places(ends), seen=seen, keeps=keeps)
        self._store.replace(self._look, _FORMAT.seal(_LOOK, msgspec.json.encode(looked)))

    def looked(self, number: int, ends: Mapping[str, End]) -> Looked | None:
        """Return what was noted of these places; None where that is not known. Raises a typed error."""
        data = self._store.get(self._look)
        if data is None:
            return None
        found = _FORMAT.read(data, Looked, kind=_LOOK, where=self._store.where(self._look))
        return found if (found.number, found.places) == (number, _places(ends)) else None

    def newest(self) -> int:
        """Return the newest epoch that has a range; 0 where there is none."""
        return max((each for _, each in self._numbers()), default=0)

    def forget(self, before: int) -> None:
        """Delete ranges of older epochs. Driver, idempotent. Raises ``UnavailableError``."""
        for name, number in self._numbers():
            if number < before:
                self._store.delete(name)

    def require_not_passed(self, number: int) -> None:
        """See that an epoch without a range is the newest: of an older one it was there, and its end is not known.

        Raises ``SourceChangedError``.
        """
        newest = self.newest()
        if newest > number:
            raise SourceChangedError(
                f"where epoch {number} of the source kinesis ended is not known any more: its range at "
                f"{self._store.where(self._reader)} is gone, and those of up to epoch {newest} are there, as the query "
                f"has gone on since; the ranges of the newest {KEPT} epochs are kept",
                next_step="go back to a newer savepoint or checkpoint; or start on a new checkpoint, with "
                "startingPosition at a time before",
            )

    def require_before(self, number: int) -> None:
        """See that those of the epoch before are there, as they stood before ``number`` was planned.

        Where there are none at all, a fork or a savepoint has begun here. Raises ``SourceChangedError``.
        """
        newest = self.newest() if number > 2 else 0  # noqa: PLR2004  none may have been there before
        if 0 < newest < number - 1:
            raise SourceChangedError(
                f"the ranges at {self._store.where(self._reader)} end with epoch {newest}, and this query's checkpoint "
                f"is at epoch {number}: they were restored from an older copy, and what was read since would be read "
                "again",
                next_step="restore their newest state; or go back to a savepoint of that time, or start on a new "
                "checkpoint",
            )

    def tell_unread(self, number: int, *, fails: bool) -> None:
        """Say that an epoch of an earlier start is done, and none of its tasks has left a range.

        Its query may have read nothing of it; or its ranges are lost, and its rows would be read again. Raises
        ``SourceChangedError`` where that ``fails``.
        """
        text = (
            f"epoch {number} is done by this query's checkpoint, and its ranges are not at "
            f"{self._store.where(self._reader)}: they were restored from an older copy, or the query's function has "
            "read nothing of it"
        )
        if fails:
            raise SourceChangedError(
                text,
                next_step="restore their newest state, or go back to a savepoint of that time; if the function has "
                "read nothing, set failOnDataLoss=false for one start, which reads the rows of this epoch (again)",
            )
        log.warning("%s. Its rows are read, as failOnDataLoss=false says.", text)

    def _numbers(self) -> Iterator[tuple[str, int]]:
        for name in self._store.list_names(f"{self._reader}/"):
            number = name.rpartition("/")[2].partition(".")[0]
            if number.isdecimal():
                yield name, int(number)

    def _get(self, name: str) -> Range | None:
        data = self._store.get(name)
        return None if data is None else self._read(name, data)

    def _fix(self, name: str, found: Range) -> Range:
        data = put_once(self._store, name, seal(found))
        if data is None:
            raise UnavailableError(
                f"{self._store.where(name)} was there and is gone: its epoch was completed meanwhile",
                next_step="nothing: whoever has gone on reads what follows",
            )
        return self._read(name, data)

    def _read(self, name: str, data: bytes) -> Range:
        return unseal(data, where=self._store.where(name))

    @property
    def _marker(self) -> str:
        return f"{self._reader}/reader.json"

    @property
    def _look(self) -> str:
        return f"{self._reader}/look.json"

    def _name(self, number: int, group: int) -> str:
        return f"{self._reader}/{number:020d}.{group}.json"

    def _own_name(self, number: int, group: int, start: Mapping[str, Position]) -> str:
        return f"{self._reader}/{number:020d}.{group}.{_told(start)}.json"

    def _brought_name(self, number: int, group: int, start: Mapping[str, Position]) -> str:
        return f"{self._reader}/savepoint.{number}.{group}.{_told(start)}.json"


def seal(found: Range) -> bytes:
    """Return what the file of a range holds. Pure."""
    return _FORMAT.seal(_KIND, msgspec.json.encode(found))


def unseal(data: bytes, *, where: str) -> Range:
    """Read the file of a range; ``where`` is its address. Pure. Raises ``LogError`` for one that is damaged."""
    return _FORMAT.read(data, Range, kind=_KIND, where=where)


def _places(ends: Mapping[str, End]) -> str:
    return _told({name: end.position for name, end in ends.items()})


def _told(start: Mapping[str, Position]) -> str:
    return hashlib.sha256(msgspec.json.encode(sorted(start.items()))).hexdigest()[:16]


def checksum(records: Iterable[Mapping[str, Any]], before: int = 0) -> int:
    """Add records to a checksum. Pure."""
    for record in records:
        before = zlib.crc32(record["Data"], zlib.crc32(record["SequenceNumber"].encode(), before))
    return before
