"""One task's share of an epoch: read once and fixed, or exactly what is fixed. Executor, one thread."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from onceonly import failpoints
from onceonly.errors import SourceChangedError, UnavailableError
from onceonly.families.kinesis import Stream
from onceonly.sources.kinesis.options import WHO, SourceOptions
from onceonly.sources.kinesis.positions import Position, starts_of
from onceonly.sources.kinesis.ranges import End, Range, Ranges, checksum
from onceonly.sources.kinesis.rows import is_aggregate
from onceonly.sources.kinesis.shards import KEPT_ALWAYS_S, LIMIT_MAX, Shard, arrival_s, listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.sources.kinesis.positions import Offset

    Records = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one task reads: its shards, from where, and how much of them at most."""

    reader: str
    number: int
    group: int
    start: Mapping[str, Position]
    nexts: Mapping[str, str] = field(default_factory=dict, repr=False)
    seen: Mapping[str, float] = field(default_factory=dict)
    keeps_s: float = KEPT_ALWAYS_S
    until: float | None = None
    records_max: int | None = None


def shares(offset: Offset, nexts: Mapping[str, str], keeps_s: float = KEPT_ALWAYS_S) -> list[Share]:
    """Return the shares of an epoch; ``keeps_s`` is for how long the stream keeps records. Pure."""
    found = []
    for group, start in enumerate(starts_of(offset)):
        most = offset.records_max
        found.append(
            Share(
                reader=offset.reader,
                number=offset.number,
                group=group,
                start=start,
                nexts={name: nexts[name] for name in start if name in nexts},
                seen={name: offset.seen[name] for name in start if name in offset.seen},
                keeps_s=keeps_s,
                until=offset.until,
                records_max=None if most is None else max(most // len(offset.groups), 1),
            )
        )
    return found


class Task:
    """One attempt at a share."""

    def __init__(self, options: SourceOptions, share: Share, stream: Stream | None = None) -> None:
        self._options, self._share = options, share
        self._stream = stream or Stream(options.stream, WHO)

    def records(self) -> Records:
        """Return the records of the share, by shard, once it is fixed which they are. Raises a typed error.

        Whichever attempt this is, it returns the same.
        """
        share = self._share
        ranges = Ranges.at(self._options.ranges, share.reader)
        standing = ranges.get(share.number, share.group, share.start)
        if standing is None:
            ranges.require()
            records, found = self._fresh()
            failpoints.hit("range.before_put")
            standing = ranges.fix(share.number, share.group, found)
            failpoints.hit("range.after_put")
            if standing == found:
                return records
        return self._exactly(standing)

    def hash_keys(self, records: Records) -> dict[str, tuple[int, int]]:
        """Return the first and the last hash key of each shard, where messages with others are left out.

        One request, where there are aggregates. Raises a typed error.
        """
        if not self._options.keeps_ranges or not any(
            map(is_aggregate, chain.from_iterable(records.values()))
        ):
            return {}
        ranges = {name: shard["HashKeyRange"] for name, shard in listed(self._stream)[0].items()}
        return {
            name: (int(each["StartingHashKey"]), int(each["EndingHashKey"])) for name, each in ranges.items()
        }

    def _shard(self, name: str, next_: str | None = None) -> Shard:
        return Shard(
            self._stream,
            name,
            self._share.start[name],
            seen_s=self._share.seen.get(name),
            keeps_s=self._share.keeps_s,
            fails_on_loss=self._options.fails_on_loss,
            next_=next_,
        )

    def _fresh(self) -> tuple[Records, Range]:
        """Read what there is, within the limits; shard by shard, so that none waits for the others' ends."""
        share, options = self._share, self._options
        shards = {name: self._shard(name, share.nexts.get(name)) for name in share.start}
        records: Records = {name: [] for name in shards}
        ends = {
            name: End(position=position, seen=share.seen.get(name)) for name, position in share.start.items()
        }
        sizes = dict.fromkeys(shards, 0)
        left = share.records_max
        names = sorted(shards)
        first = share.number % len(names)  # each in turn, where less may be read than there are shards
        unread = [*names[first:], *names[:first]]
        deadline = time.monotonic() + options.fetch_s
        while unread and (left is None or left > 0):
            for name in list(unread):
                room = LIMIT_MAX if left is None else max(left // len(unread), 1)
                more, end = _advance(shards[name], room, share.until, len(records[name]))
                records[name] += more
                ends[name] = end
                sizes[name] += sum(len(each["Data"]) for each in more)
                left = None if left is None else left - len(more)
                is_done = end.is_closed or shards[name].is_at_tip or end.reached is not None
                if is_done or sizes[name] >= options.shard_bytes_max:
                    unread.remove(name)
                if left is not None and left <= 0:
                    break
            if time.monotonic() > deadline:
                break
        return records, Range(start=dict(share.start), ends=ends, checksum=_checksum(records))

    def _exactly(self, standing: Range) -> Records:
        """Read again what was fixed. Raises ``SourceChangedError`` where the stream has it no more."""
        share = self._share
        records: Records = {name: [] for name in share.start}
        for name, end in standing.ends.items():
            if end.rows:
                records[name] = self._again(name, end)
        if _checksum(records) != standing.checksum:
            raise self._differs("other data")
        return records

    def _again(self, name: str, end: End) -> list[dict[str, Any]]:
        shard, found = self._shard(name), list[dict[str, Any]]()
        deadline = time.monotonic() + self._options.stream.timeout_s
        while len(found) < end.rows:
            more = shard.read(end.rows - len(found))
            found += more
            if not more and (shard.is_closed or not shard.behind_ms):
                break
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"shard {name} of the stream {self._options.stream.where} did not give all records of epoch "
                    f"{self._share.number} again in time",
                    next_step="nothing: it is read again",
                )
        if len(found) != end.rows or shard.position != end.position:
            raise self._differs(f"{len(found)} of {end.rows} records of shard {name}")
        return found

    def _differs(self, what: str) -> SourceChangedError:
        return SourceChangedError(
            f"epoch {self._share.number} must be read again, and the stream {self._options.stream.where} now gives "
            f"{what}: its retention has passed",
            next_step="start on a new checkpoint, from the oldest record that is kept; what was lost must come from "
            "elsewhere",
        )


def _advance(shard: Shard, room: int, until: float | None, before: int) -> tuple[list[dict[str, Any]], End]:
    """Read once more of a shard; return records and where its share ends with them. ``before`` were read already."""
    began = shard.position
    records = shard.read(room)
    if until is not None:
        kept = 0
        while kept < len(records) and arrival_s(records[kept]) <= until:
            kept += 1
        if kept < len(records):
            last = Position.after(records[kept - 1]["SequenceNumber"]) if kept else began
            seen = arrival_s(records[kept])
            return records[:kept], End(position=last, rows=before + kept, reached=until, seen=seen)
    is_done = shard.is_closed or shard.is_at_tip
    return records, End(
        position=shard.position,
        rows=before + len(records),
        behind_ms=shard.behind_ms,
        is_closed=shard.is_closed,
        next=shard.next,
        reached=until if is_done else None,
        seen=shard.seen_s,
    )


def _checksum(records: Records) -> int:
    found = 0
    for name in sorted(records):
        found = checksum(records[name], found)
    return found
