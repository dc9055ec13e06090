"""Folding: details become history, and narrow segments become wider ones.

Killed anywhere, it leaves files that a durable segment covers; readers prefer the wider, and the next fold
takes the rest away. Nothing is removed before what covers it is durable and has been read back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.errors import LogError, ProtocolError
from onceonly.log import files, history
from onceonly.log.history import Segment, Summary
from onceonly.log.survey import segments, survey
from onceonly.model import Link, Receipt
from onceonly.stores.port import put_once

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly.log.history import Range
    from onceonly.log.survey import Survey
    from onceonly.stores.port import Store


class Fold:
    """What folds one log. Driver; two drivers may fold at the same time and make the same segments."""

    def __init__(self, store: Store, *, keep: int) -> None:
        self._store = store
        self._keep = keep
        self._due_at = -1

    def due(self, newest: int) -> bool:
        """Say whether there is something to fold. No I/O."""
        return newest >= self._due_at

    def learn(self, found: Survey) -> None:
        """Take in what a survey found: when the next block will be due."""
        first = found.covered_to + 1 if found.segments else found.first
        unfinished = found.leftovers or history.merges(found.segments)
        self._due_at = -1 if first is None or unfinished else history.block_end(first) + self._keep

    def fold(self) -> None:
        """Fold all blocks that are due, merge, and clear away. Idempotent; safe to be killed in."""
        found = survey(self._store)
        first = found.covered_to + 1 if found.segments else found.first
        if first is not None and found.newest is not None:
            due = history.blocks(first, found.newest, self._keep)
            for block in due:
                self._fold_block(block)
            found = survey(self._store) if due else found
        groups = history.merges(found.segments)
        for group in groups:
            self._merge(group)
        found = survey(self._store) if groups else found
        cleared = self._clear(found)
        self._store.drop_leftovers(lambda name: _is_void(name, found.covered_to))
        self.learn(replace(found, leftovers=()) if cleared else found)

    def history(self, first: int | None = None) -> Iterator[Summary]:
        """Yield all lines from ``first`` on, oldest first; segments before it are not read.

        A segment that is merged meanwhile is found again in the wider one.
        """
        position = first
        missed = 0
        while True:
            chosen, _ = segments(self._store)
            start = position
            item = next((item for item in chosen if start is None or item[1] >= start), None)
            if item is None:
                return
            torn = start is not None and item[0] > start  # a listing that missed one
            segment = None if torn else self._read(item)
            if segment is None:
                missed += 1
                if missed > len(history.SIZES):
                    raise self._vanished(item)
                continue
            yield from (line for line in segment.epochs if start is None or line.epoch >= start)
            position, missed = item[1] + 1, 0

    def _fold_block(self, block: Range) -> None:
        lines: list[Summary] = []
        for epoch in range(block[0], block[1] + 1):
            line = self._summarise(epoch)
            if line is None:
                if self._is_covered(block):
                    return  # another process has folded it while we read
                raise LogError(
                    f"chk-{epoch} lacks a link or its receipt in {self._store.where(files.LINKS)}: removed by hand",
                    next_step=files.PUT_BACK,
                )
            lines.append(line)
        self._put(Segment(first=block[0], last=block[1], epochs=tuple(lines)))

    def _summarise(self, epoch: int) -> Summary | None:
        chain: list[Link] = []
        while (
            link := files.read(self._store, files.link(epoch, len(chain)), kind="link", into=Link)
        ) is not None:
            chain.append(link)
        receipt = files.read(self._store, files.receipt(epoch), kind="receipt", into=Receipt)
        return history.summarise(chain, receipt) if chain and receipt is not None else None

    def _merge(self, group: list[Range]) -> None:
        block = (group[0][0], group[-1][1])
        lines: list[Summary] = []
        for item in group:
            segment = self._read(item)
            if segment is None:
                if self._is_covered(block):
                    return  # another process has merged it while we read
                raise self._vanished(item)
            lines.extend(segment.epochs)
        self._put(Segment(first=block[0], last=block[1], epochs=tuple(lines)))

    def _put(self, segment: Segment) -> None:
        if not segment.complete:
            raise ProtocolError(
                f"History of {segment.first} to {segment.last} would lack epochs: a defect in onceonly.",
                next_step="Nothing was removed. Please report this.",
            )
        # One that stands already was made by another driver from the same details, and is as good.
        put_once(self._store, files.segment(segment.first, segment.last), files.encode("history", segment))

    def _clear(self, found: Survey) -> bool:
        """Remove what segments cover, each after its segment was synced and read; say whether all is gone."""
        trusted: set[Range] = set()
        for name, cover in sorted(found.leftovers, reverse=True):
            if cover not in trusted:
                self._store.sync(files.segment(*cover))
                if self._read(cover) is None:
                    return False  # merged meanwhile; the next fold sees the wider one
                trusted.add(cover)
            self._store.delete(name)
        return True

    def _read(self, item: Range) -> Segment | None:
        name = files.segment(*item)
        segment = files.read(self._store, name, kind="history", into=Segment)
        if segment is not None and ((segment.first, segment.last) != item or not segment.complete):
            raise LogError(
                f"{self._store.where(name)} does not hold the epochs that its name says: renamed or changed by hand",
                next_step=files.PUT_BACK,
            )
        return segment

    def _is_covered(self, block: Range) -> bool:
        for _ in range(2):  # one listing can miss a segment and the wider one that replaces it; two cannot
            chosen, _inside = segments(self._store)
            if any(first <= block[0] and block[1] <= last for first, last in chosen):
                return True
        return False

    def _vanished(self, item: Range) -> LogError:
        return LogError(
            f"{self._store.where(files.segment(*item))} vanished while it was read: removed by hand",
            next_step=files.PUT_BACK,
        )


def _is_void(name: str, covered_to: int) -> bool:
    """Say whether a put of this name could only be a sleeper's: its epoch is folded."""
    epoch = files.epoch_of(name)
    return epoch is not None and epoch <= covered_to
