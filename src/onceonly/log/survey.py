"""What names a log holds, and whether they fit together. One listing of each folder, no file is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly import background
from onceonly.errors import LogError
from onceonly.log import files, history

if TYPE_CHECKING:
    from onceonly.log.history import Range
    from onceonly.stores.port import Store

# A listing is not atomic: another process may put and fold while it runs. What is missing because of that is
# found by the next listing; what is still missing at the third is missing.
_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a log holds. ``chains`` gives the number of links of each epoch that is not folded.

    ``segments`` are contiguous; ``leftovers`` are files that a segment covers, each with that segment.
    """

    chains: dict[int, int]
    receipts: frozenset[int]
    segments: tuple[Range, ...]
    leftovers: tuple[tuple[str, Range], ...]

    @property
    def first(self) -> int | None:
        """The oldest epoch that the log knows."""
        return self.segments[0][0] if self.segments else min(self.chains, default=None)

    @property
    def newest(self) -> int | None:
        """The newest epoch that the log knows."""
        return max(self.chains, default=self.covered_to if self.segments else None)

    @property
    def covered_to(self) -> int:
        """The newest folded epoch, -1 where there is none."""
        return self.segments[-1][1] if self.segments else -1


def segments(store: Store) -> tuple[list[Range], list[Range]]:
    """List the segments of history: those to read, and those inside a wider one."""
    found = (files.parse_segment(name) for name in store.list_names(files.HISTORY))
    return history.widest([item for item in found if item is not None])


def survey(store: Store) -> Survey:
    """List everything. Raises ``LogError`` that names what is missing."""
    # A distant store is listed in one round first: what looks like a gap then is looked at again, in order.
    tries = [1] * _TRIES if store.abreast == 1 else [store.abreast, *[1] * _TRIES]
    for abreast in tries:
        found, problem = _look(store, abreast)
        if not problem:
            return found
    raise LogError(
        f"{problem}: removed by hand, or the checkpoint was restored in part",
        next_step=files.PUT_BACK,
    )


def _look(store: Store, abreast: int) -> tuple[Survey, str]:
    # The order matters: what was put after a file that we have seen is there when we look for it.
    # A link is put after the receipt of the epoch before; a segment is put before what it covers goes.
    links, receipts, (chosen, inside) = background.at_once(
        abreast,
        lambda: store.list_names(files.LINKS),
        lambda: store.list_names(files.RECEIPTS),
        lambda: segments(store),
    )
    covered_to = chosen[-1][1] if chosen else -1
    leftovers = [(files.segment(*item), _cover(chosen, item[0])) for item in inside]
    chains: dict[int, list[int]] = {}
    acknowledged: set[int] = set()
    for name in (*links, *receipts):
        epoch = files.epoch_of(name)
        if epoch is None:
            continue  # not ours
        if epoch <= covered_to:
            if epoch >= chosen[0][0]:
                leftovers.append((name, _cover(chosen, epoch)))
        elif parsed := files.parse_link(name):
            chains.setdefault(epoch, []).append(parsed[1])
        else:
            acknowledged.add(epoch)
    found = Survey(
        chains={epoch: len(indexes) for epoch, indexes in sorted(chains.items())},
        receipts=frozenset(acknowledged),
        segments=tuple(chosen),
        leftovers=tuple(leftovers),
    )
    return found, _gap(store, chains, found)


def _cover(chosen: list[Range], epoch: int) -> Range:
    return next((item for item in chosen if item[0] <= epoch <= item[1]), chosen[-1])


def _gap(store: Store, chains: dict[int, list[int]], found: Survey) -> str:
    """Name the first thing that is missing, empty where nothing is."""
    for before, after in zip(found.segments, found.segments[1:], strict=False):
        if after[0] != before[1] + 1:
            return f"{store.where(files.segment(*after))} does not follow on {files.segment(*before)}"
    epochs = sorted(chains)
    expected = found.covered_to + 1 if found.segments else min(epochs, default=0)
    newest = epochs[-1] if epochs else -1
    for epoch in epochs:
        if epoch != expected:
            return f"{store.where(files.link(expected, 0))} is missing, though there are links of chk-{epoch}"
        missing = set(range(max(chains[epoch]) + 1)) - set(chains[epoch])
        if missing:
            return f"{store.where(files.link(epoch, min(missing)))} is missing, though later links are there"
        if epoch != newest and epoch not in found.receipts:
            return (
                f"{store.where(files.receipt(epoch))} is missing, though there are links of chk-{epoch + 1}"
            )
        expected += 1
    orphans = found.receipts - chains.keys()
    if orphans:
        return f"{store.where(files.link(min(orphans), 0))} is missing, though its receipt is there"
    return ""
