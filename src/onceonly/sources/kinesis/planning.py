"""What the next epoch reads: where every shard's share ended, which shards follow, and whether there is anything new.

Driver, one thread, as long as the query runs.
"""

from __future__ import annotations

import math
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from onceonly.errors import SourceChangedError, UnavailableError
from onceonly.families.kinesis import RefusedCallError, Stream
from onceonly.sources.kinesis.options import WHO, SourceOptions
from onceonly.sources.kinesis.positions import AFTER, LATEST, TIME, TRIM, Offset, Position, starts_of
from onceonly.sources.kinesis.ranges import KEPT, End, Range, Ranges
from onceonly.sources.kinesis.shards import FAR_MS, KEPT_ALWAYS_S, Shard, listed, told_s
from onceonly.stores.opened import address_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_PROBE_S = 0.25
"""A shard answers five times a second, to all who read it."""
_LIST_S = 30.0
_FORGET_EVERY = 10
_TELL_S = 600.0
_NOTE_S = 600.0
"""How much more a look must have shown to be worth a note."""


class Planner:
    """Makes offsets out of offsets."""

    def __init__(self, options: SourceOptions, stream: Stream | None = None) -> None:
        self._options = options
        self._stream = stream or Stream(options.stream, WHO)
        self._until: float | None = None
        self._known = ""
        """The reader whose stream and ranges were seen to be those of its offset."""
        self._is_brought = False
        """Whether a savepoint has brought the ranges of the epoch, and there are no others."""
        self._ran = 0
        """The newest epoch that was planned in this life, or read again: whether its tasks have run is known here."""
        self._told_keeps_s: float | None = None
        """For how long the stream keeps records, as it has told when it was asked; None where it may not be."""
        self._told_at = -math.inf
        self.keeps_s = KEPT_ALWAYS_S
        """For how long it keeps them in this life, and has kept them since the one before has looked."""
        self._began_s = -math.inf
        """When this life began, by the service's clock, until it has looked itself."""
        self._ends: tuple[int, Mapping[str, End]] = (0, {})
        self._since: dict[str, float] = {}
        """Since when, by the service's clock, a shard or its children may have records that were not read."""
        self._probes: dict[str, Shard] = {}
        self._at_tip: set[str] = set()
        """Shards of which an ``availableNow`` has seen the newest record."""
        self._begins: dict[str, str] = {}
        """With which number each shard begins that was listed in this life: no two streams have the same."""
        self._probed_s = self._listed_s = float("-inf")
        self._listed_at: float | None = None
        """The same by the service's clock."""

    def initial(self) -> Offset:
        """Return the offset of a new query, whose ranges have a place from now on. Raises a typed error."""
        made, _ = self._look()
        keeps = self._told_keeps_s
        offset = Offset(reader=uuid.uuid4().hex, number=0, made=made, ranges=self._place, keeps=keeps)
        self._ranges(offset).begin()
        return offset

    def stop_at_now(self) -> None:
        """Read until what is there now, and no further. Raises a typed error."""
        _, self._until = self._look()
        self._until += 1  # the service tells its time in seconds
        self._at_tip.clear()

    def following(self, offset: Offset, records_max: int | None = None) -> Offset:
        """Return the offset of the next epoch; the same one where there is nothing new. Raises a typed error."""
        self._require(offset)
        if offset.number == 0:
            start, done = self._first()
            more = bool(start)
        else:
            start, done, more = self._next(offset)
        if not more:
            return offset
        if offset.former or self._is_brought:
            self._ranges(offset).begin()
            self._is_brought = False
        self._ran = offset.number + 1
        names = sorted(start)
        count = min(self._options.tasks, len(names))
        return Offset(
            reader=offset.reader,
            number=offset.number + 1,
            made=offset.made,
            start=start,
            done=tuple(done),
            groups=tuple(tuple(names[group::count]) for group in range(count)),
            until=self._until,
            records_max=records_max,
            ranges=self._place,
            behind={f"start/{name}": end.behind_ms for name, end in self._ends[1].items() if name in start},
            seen={name: self._since[name] for name in start if name in self._since},
            keeps=self._told_keeps_s,
        )

    def require_kept(self, offset: Offset, held: Sequence[Range] = ()) -> None:
        """See that the stream keeps what follows an epoch. Any process; only looks. Raises ``SourceChangedError``.

        ``held`` are the ranges that a savepoint of the epoch carries.
        """
        self._require(offset, is_held=bool(held))
        for group, start in enumerate(starts_of(offset)):
            found = held[group] if held else self._range(offset, group, start)
            if found is None:
                self._standing(offset).require_not_passed(offset.number)
            ends = found.ends if found is not None else {}
            for name in start:
                end = ends.get(name) or End(position=offset.start[name], seen=offset.seen.get(name))
                shard = Shard(self._stream, name, end.position, seen_s=end.seen, keeps_s=self.keeps_s)
                shard.is_closed = end.is_closed
                shard.require_kept(self._began_s - self.keeps_s)
                shard.read(1)

    def require_replayable(self, offset: Offset) -> None:
        """See, where an earlier life has planned an epoch, that the stream keeps what it is to read.

        What a task has fixed is compared as it is read again. Raises ``SourceChangedError``.
        """
        self._ran = offset.number
        if self._known == offset.reader:
            return
        self._require(offset)
        for group, start in enumerate(starts_of(offset)):
            unread = {name for name in offset.seen.keys() & start.keys() if start[name].kind != AFTER}
            if unread and self._range(offset, group, start) is None:
                self._require_unread(
                    {name: End(position=start[name], seen=offset.seen.get(name)) for name in start}
                )

    def nexts(self, offset: Offset) -> dict[str, str]:
        """Return iterators that save the tasks of an epoch a request, by shard."""
        number, ends = self._ends
        if number != offset.number - 1:
            return {}
        return {
            name: end.next
            for name, end in ends.items()
            if end.next and end.behind_ms < FAR_MS and offset.start.get(name) == end.position
        }

    def forget(self, offset: Offset) -> None:
        """Delete what no replay needs, as this epoch is complete. Raises ``UnavailableError``."""
        if offset.number % _FORGET_EVERY == 0:
            self._ranges(offset).forget(offset.number - KEPT)

    # --- its parts ------------------------------------------------------------------------------------------

    def _ranges(self, offset: Offset) -> Ranges:
        return Ranges.at(self._options.ranges, offset.reader)

    def _standing(self, offset: Offset) -> Ranges:
        """Return the ranges among which those of an epoch are: of a fork's first offset, those of its original."""
        return Ranges.at(self._options.ranges, offset.former or offset.reader)

    def _range(self, offset: Offset, group: int, start: Mapping[str, Position]) -> Range | None:
        """Return what stands for a task of an epoch, whether it is still there or a savepoint has brought it."""
        found = self._standing(offset).get(offset.number, group, start)
        return found or self._ranges(offset).brought(offset.number, group, start)

    @property
    def _place(self) -> str:
        return address_of(self._options.ranges, what="the option onceonly.ranges").shown

    def _look(self) -> tuple[str, float]:
        """Return when the stream was made, empty where nobody may know, and the service's time."""
        self._told_at = time.monotonic()
        try:
            answer = self._stream.ask("describe_stream_summary", own=("AccessDeniedException",))
        except RefusedCallError:
            return "", listed(self._stream)[1] or time.time()
        summary = answer["StreamDescriptionSummary"]
        made = summary.get("StreamCreationTimestamp")
        hours = summary.get("RetentionPeriodHours")
        self._told_keeps_s = None if hours is None else 3600.0 * hours
        return "" if made is None else f"{made.timestamp():.3f}", told_s(answer) or time.time()

    def _keep(self, before: float | None) -> None:
        """Take the shorter of two retentions: that of ``before``, when the life before has looked, and that of now.

        One that is not known is the shortest that there is.
        """
        self.keeps_s = min(before or KEPT_ALWAYS_S, self._told_keeps_s or KEPT_ALWAYS_S)

    def _require(self, offset: Offset, *, is_held: bool = False) -> None:
        """See once that stream and ranges are those that the offset stands on."""
        if self._known == offset.reader:
            return
        made, now = self._look()
        self._began_s = now
        self._keep(offset.keeps)
        if offset.made and made and made != offset.made:
            raise self._made_anew("since this query's checkpoint, or the option stream names another one")
        if is_held:
            return
        standing, own = self._standing(offset), self._ranges(offset)
        if not standing.is_there():
            self._is_brought = bool(offset.groups) and all(
                own.brought(offset.number, group, start) for group, start in enumerate(starts_of(offset))
            )
            if not self._is_brought:
                standing.require()
        else:
            standing.require_before(offset.number)
        self._known = offset.reader

    def _require_unread(self, ends: Mapping[str, End]) -> None:
        """See that shards of which nothing was read yet have lost nothing before this life began."""
        for name, end in ends.items():
            if not end.is_closed:
                self._shard(name, end.position, end.seen).require_kept(self._began_s - self.keeps_s)

    def _shard(self, name: str, position: Position, seen_s: float | None, next_: str | None = None) -> Shard:
        fails_on_loss = self._options.fails_on_loss
        return Shard(
            self._stream,
            name,
            position,
            seen_s=seen_s,
            keeps_s=self.keeps_s,
            fails_on_loss=fails_on_loss,
            next_=next_,
        )

    def _first(self) -> tuple[dict[str, Position], list[str]]:
        """Return where a new query begins, and the shards that lie before that."""
        starting = self._options.starting
        shards = self._shards()
        if starting.kind == LATEST:
            _, now = self._look()
            closed = [name for name, shard in shards.items() if _is_closed(shard)]
            return {name: Position.since(now) for name in shards if name not in closed}, closed
        return {name: starting for name, shard in shards.items() if not _parents(shard) & shards.keys()}, []

    def _next(self, offset: Offset) -> tuple[dict[str, Position], list[str], bool]:
        ends = self._fixed(offset)
        self._require_unread(ends)
        self._began_s = -math.inf  # while it lives, it looks
        closed = [name for name, end in ends.items() if end.is_closed]
        start = {name: end.position for name, end in ends.items() if not end.is_closed}
        done = [*offset.done, *closed]
        more = False
        now = time.monotonic()
        if closed or not start or now - self._listed_s > _LIST_S:
            self._listed_s = now
            shards = self._shards()
            unread = {name: _parents(each) for name, each in shards.items() if name not in {*start, *done}}
            for name, parents in unread.items():
                # A child follows when all of its parents are at their end: a key's records keep their order.
                if parents & shards.keys() <= set(done):
                    start[name] = self._of_child(parents, ends)
                    self._begin(name, start[name], parents, parents - shards.keys() - set(done))
                    more = True
            waited = set().union(*unread.values())
            done = [name for name in done if name in shards or name in waited]
        left = {name: end for name, end in ends.items() if not end.is_closed}
        if self._until is not None:
            left = {
                name: end
                for name, end in left.items()
                if end.reached != self._until and name not in self._at_tip
            }
        more = more or any(end.behind_ms for end in left.values()) or self._has_news(left)
        if not more:
            self._note_look(offset)
        return start, done, more

    def _note_look(self, offset: Offset) -> None:
        """Note that nothing was there, so that a later life does not take what has expired since for a loss."""
        number, ends = self._ends
        later = {
            name: msgspec.structs.replace(end, seen=self._since[name])
            for name, end in ends.items()
            if not end.is_closed and self._since.get(name, 0.0) > (end.seen or 0.0) + _NOTE_S
        }
        if later:
            ends = {**ends, **later}
            self._ends = number, ends
            seen = {name: end.seen for name, end in ends.items() if end.seen is not None}
            with suppress(UnavailableError):  # without it, a later life is only more careful
                self._ranges(offset).note_look(number, ends, seen, self._told_keeps_s)

    def _of_child(self, parents: Iterable[str], ends: Mapping[str, End]) -> Position:
        """Return where a child begins: where its parents lay before the time of the beginning, at that time."""
        waiting = [ends[name].position for name in parents if name in ends]
        times = [position for position in waiting if position.kind == TIME]
        return times[0] if times and len(times) == len(waiting) else Position(TRIM)

    def _begin(self, name: str, at: Position, parents: Iterable[str], expired: set[str]) -> None:
        """See that a child that is begun has lost nothing, and note since when it may have records."""
        since = max((self._since[each] for each in parents if each in self._since), default=self._listed_at)
        shard = self._shard(name, at, since)
        shard.require_parents(expired)
        if since is not None and self._listed_at is not None:
            shard.require_kept(self._listed_at - self.keeps_s)
            self._since[name] = since

    def _fixed(self, offset: Offset) -> Mapping[str, End]:
        """Return where all shares of an epoch ended. One that no task has put is empty, from now on."""
        if self._ends[0] == offset.number:
            return self._ends[1]
        ranges = self._standing(offset)
        starts = starts_of(offset)
        standing = [self._range(offset, group, start) for group, start in enumerate(starts)]
        if self._ran != offset.number and starts and not any(standing):
            ranges.require_not_passed(offset.number)
            ranges.tell_unread(offset.number, fails=self._options.fails_on_loss)
        ends: dict[str, End] = {}
        for group, (start, found) in enumerate(zip(starts, standing, strict=True)):
            if found is None:
                ranges.require_not_passed(offset.number)
                nothing = {name: End(position=start[name], seen=offset.seen.get(name)) for name in start}
                ends |= ranges.fix(offset.number, group, Range(start=start, ends=nothing)).ends
            else:
                ends |= found.ends
        if self._ran != offset.number:
            self._take_over(offset, ends)
        self._ends = (offset.number, ends)
        self._since = {name: end.seen for name, end in ends.items() if end.seen is not None}
        self._probes.clear()
        return ends

    def _take_over(self, offset: Offset, ends: dict[str, End]) -> None:
        """Take the ends of an epoch of an earlier life for its own."""
        for name, end in ends.items():
            # No iterator of that life, but the record that was read last shows that the stream is still the same.
            ends[name] = msgspec.structs.replace(end, next=None)
        looked = self._ranges(offset).looked(offset.number, ends)
        if looked is not None:
            self._keep(looked.keeps)
            for name, seen in looked.seen.items():
                ends[name] = msgspec.structs.replace(ends[name], seen=max(seen, ends[name].seen or 0.0))

    def _has_news(self, ends: Mapping[str, End]) -> bool:
        """Look whether a shard that was read to its newest record has another one; seldom."""
        now = time.monotonic()
        if self._until is None and now - self._probed_s < _PROBE_S:
            return False
        self._probed_s = now
        for name, end in ends.items():
            if name not in self._probes:
                next_ = end.next if end.behind_ms < FAR_MS else None
                self._probes[name] = self._shard(name, end.position, self._since.get(name), next_)
            probe = self._probes[name]
            if probe.read(1) or probe.is_closed or probe.behind_ms:
                self._probes.clear()
                return True
            if probe.seen_s is not None:
                self._since[name] = probe.seen_s
            if self._until is not None:
                self._at_tip.add(name)
        return False

    def _shards(self) -> dict[str, dict[str, Any]]:
        if time.monotonic() - self._told_at > _TELL_S:
            self._look()  # the next life is told which retention this one had
        shards, self._listed_at = listed(self._stream)
        begins = {
            name: each["SequenceNumberRange"]["StartingSequenceNumber"] for name, each in shards.items()
        }
        if any(self._begins.get(name, at) != at for name, at in begins.items()):
            raise self._made_anew("while this query ran; some of what the new one has may have been read")
        self._begins |= begins
        return shards

    def _made_anew(self, when: str) -> SourceChangedError:
        return SourceChangedError(
            f"the stream {self._options.stream.where} was deleted and made anew {when}",
            next_step="name the stream of before, if the option stream was changed; else start on a new checkpoint. "
            "What the old stream held and nobody has read is lost",
        )


def _parents(shard: Mapping[str, Any]) -> set[str]:
    """Return the parents of a shard, also those that have expired."""
    named = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
    return {name for name in named if name is not None}


def _is_closed(shard: Mapping[str, Any]) -> bool:
    return "EndingSequenceNumber" in shard["SequenceNumberRange"]
