"""History: one line for each epoch whose details are gone, in segments that are merged in levels.

The arithmetic here is pure. Blocks are aligned by number, so that two drivers that fold at the same time
make the same segments: 20 epochs a block, five of them make one of 100, then 1,000, then 10,000. (A log of
100,000 epochs has at most 4 + 9 + 9 + 10 segments; each epoch is rewritten three times in its life.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence  # noqa: TC003  the codec reads the annotations at run time
from dataclasses import dataclass, field
from typing import TypeAlias

from onceonly.checksums import added
from onceonly.model import Link, LinkKind, Receipt, Vote, letters_of, seconds_of

SIZES = (20, 100, 1_000, 10_000)
_DIGEST = 8
Range: TypeAlias = tuple[int, int]
"""First and last epoch, both included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What history keeps of one epoch.

    ``sinks`` gives rows and transactions of each sink's output; ``outcomes`` and ``seconds`` are the receipt's.
    ``aborts`` is the number of its ABORT links. For people: ``at`` is when the last link was put, in seconds since
    1970, ``planned_s`` how long before that its plan was handed out, ``settled_s`` how long after it the receipt was
    put; all 0 where it is not known, as before format 2. ``bytes`` is the size of each sink's rows, as Arrow held them;
    none before format 3. ``sums`` gives the digest of each sink's columns and the checksum of its rows; none where the
    columns are not known, as before format 4.
    """

    epoch: int
    kind: LinkKind
    links: int
    sinks: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    outcomes: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    aborts: int = 0
    at: float = 0.0
    planned_s: float = 0.0
    settled_s: float = 0.0
    bytes: Mapping[str, int] = field(default_factory=dict)
    sums: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The lines of all epochs from ``first`` to ``last``."""

    first: int
    last: int
    epochs: tuple[Summary, ...]

    @property
    def complete(self) -> bool:
        """Say whether there is one line for each epoch, in order."""
        return [line.epoch for line in self.epochs] == list(range(self.first, self.last + 1))


def summarise(chain: Sequence[Link], receipt: Receipt | None) -> Summary:
    """Return the line of an epoch that has at least one link."""
    last = chain[-1]
    planned, decided, settled = map(
        seconds_of, (last.planned, last.stamp, receipt.stamp if receipt else None)
    )
    return Summary(
        epoch=last.epoch,
        kind=last.kind,
        links=len(chain),
        sinks=by_sink(last),
        outcomes=receipt.outcomes if receipt else {},
        seconds=round(receipt.seconds, 3) if receipt else 0.0,
        aborts=sum(link.kind is LinkKind.ABORT for link in chain),
        at=decided,
        planned_s=_between(planned, decided),
        settled_s=_between(decided, settled),
        bytes=_bytes_by_sink(last),
        sums=sums_by_sink(last),
    )


def _between(before: float, after: float) -> float:
    """Return the seconds between two moments; 0 where one is not known, or a clock was set."""
    return max(round(after - before, 3), 0.0) if before and after else 0.0


def by_sink(link: Link) -> dict[str, tuple[int, int]]:
    """Return rows and transactions of each sink's output."""
    sinks: dict[str, tuple[int, int]] = {}
    for vote in link.output:
        rows, transactions = sinks.get(vote.sink, (0, 0))
        sinks[vote.sink] = (rows + vote.rows, transactions + (vote.handle is not None))
    return sinks


def _bytes_by_sink(link: Link) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for vote in link.output:
        if vote.bytes:
            sizes[vote.sink] = sizes.get(vote.sink, 0) + vote.bytes
    return sizes


def sums_by_sink(link: Link) -> dict[str, tuple[str, str]]:
    """Return of each sink's rows the digest of their columns, and their checksum."""
    votes: dict[str, list[Vote]] = {}
    for vote in link.output:
        votes.setdefault(vote.sink, []).append(vote)
    known = {
        sink: link.uses[sink].columns for sink in votes if sink in link.uses and letters_of(sink) is None
    }
    return {
        sink: (columns_digest(columns), total)
        for sink, columns in known.items()
        if columns and (total := sum_of([vote.checksum for vote in votes[sink] if vote.rows]))
    }


def columns_digest(columns: Sequence[tuple[str, str]]) -> str:
    """Return a word that says of rows whether they have the same columns, in the same order."""
    return hashlib.sha256(repr(tuple(map(tuple, columns))).encode()).hexdigest()[:_DIGEST]


def sum_of(checksums: Iterable[str]) -> str:
    """Return the checksum of all rows together; empty without any, and where they are not of one algorithm."""
    named = list(checksums)
    try:
        return added(named) if all(":" in each for each in named) else ""
    except ValueError:
        return ""


def block_end(epoch: int, size: int = SIZES[0]) -> int:
    """Return the last epoch of the aligned block that holds ``epoch``."""
    return epoch - epoch % size + size - 1


def blocks(first: int, newest: int, keep: int) -> list[Range]:
    """Return the blocks that are to be folded: whole ones, older than the ``keep`` newest epochs.

    ``first`` is the oldest epoch with details; the first block may begin in its middle.
    """
    found: list[Range] = []
    while (last := block_end(first)) <= newest - keep:
        found.append((first, last))
        first = last + 1
    return found


def widest(ranges: Sequence[Range]) -> tuple[list[Range], list[Range]]:
    """Split segments into those to read, in order, and those that lie inside a wider one."""
    chosen: list[Range] = []
    inside: list[Range] = []
    for first, last in sorted(set(ranges), key=lambda item: (item[0], -item[1])):
        (inside if chosen and last <= chosen[-1][1] else chosen).append((first, last))
    return chosen, inside


def merges(ranges: Sequence[Range]) -> list[list[Range]]:
    """Return the groups of contiguous segments that each become one wider segment, the widest possible."""
    groups: list[list[Range]] = []
    rest = list(ranges)
    for size in reversed(SIZES[1:]):
        by_block: dict[int, list[Range]] = {}
        for item in rest:
            by_block.setdefault(block_end(item[0], size), []).append(item)
        for end, group in by_block.items():
            if len(group) > 1 and group[-1][1] == end:
                groups.append(group)
                rest = [item for item in rest if item not in group]
    return groups
