"""A decision log in memory, with the semantics of the one on disk. For tests.

A ``MemoryDisk`` outlives the drivers of a test; each driver, living, dead or paused, opens a ``MemoryLog`` on it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from onceonly.errors import ProtocolError, SupersededError
from onceonly.log.around import in_order
from onceonly.model import Link

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly.model import Around, Receipt


@dataclass(slots=True, kw_only=True)
class MemoryDisk:
    """What survives the drivers. Any thread.

    ``hook`` is called with ``link.before``, ``link.after``, ``receipt.before``, ``receipt.after`` or ``sync``
    and the value; what it raises leaves the put where a crash would leave it: not begun, or done.
    """

    links: dict[int, list[Link]] = field(default_factory=dict)
    receipts: dict[int, Receipt] = field(default_factory=dict)
    folded: set[int] = field(default_factory=set)
    unsynced: set[tuple[int, int]] = field(default_factory=set)
    hook: Callable[[str, Link | Receipt], None] | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)

    def power_loss(self) -> None:
        """Drop every link that nobody has synced, as a machine may that loses power."""
        with self.lock:
            for epoch, index in sorted(self.unsynced):
                del self.links[epoch][index:]
            self.links = {epoch: chain for epoch, chain in self.links.items() if chain}
            self.unsynced.clear()

    def passing(self, step: str, value: Link | Receipt) -> None:
        """Tell the hook, if there is one."""
        if self.hook is not None:
            self.hook(step, value)


class MemoryLog:
    """One driver's view of a ``MemoryDisk``; fulfils ``onceonly.ports.DecisionLog``.

    ``keep`` is the number of newest epochs whose details ``fold`` leaves. With ``syncs`` false a put is seen
    by everybody, but lost at ``MemoryDisk.power_loss`` unless somebody calls ``sync``: what is left when a
    driver dies between writing and syncing.
    """

    abreast = 1

    def __init__(
        self, disk: MemoryDisk | None = None, *, query: str = "query", keep: int = 100, syncs: bool = True
    ) -> None:
        self.disk = disk if disk is not None else MemoryDisk()
        self._query = query
        self._keep = keep
        self._syncs = syncs

    @property
    def query(self) -> str:
        return self._query

    def around(self, epoch: int, *, owners: bool) -> Around:
        return in_order(self, epoch, owners=owners)

    def chain(self, epoch: int) -> tuple[Link, ...]:
        with self.disk.lock:
            return tuple(self.disk.links.get(epoch, ()))

    def receipt(self, epoch: int) -> Receipt | None:
        with self.disk.lock:
            return self.disk.receipts.get(epoch)

    def newest(self) -> int | None:
        with self.disk.lock:
            return max(self.disk.folded | self.disk.links.keys(), default=None)

    def owners(self) -> tuple[str, ...]:
        with self.disk.lock:
            links = [link for _, chain in sorted(self.disk.links.items()) for link in chain]
        return tuple(name for name, _ in groupby(link.application for link in links if link.application))

    def put_link(self, link: Link) -> Link:
        self.disk.passing("link.before", link)
        with self.disk.lock:
            if link.epoch in self.disk.folded:
                raise SupersededError(
                    f"Query {self._query}: chk-{link.epoch} was decided and folded long ago by a newer run.",
                    next_step="Nothing; the newer run goes on.",
                )
            chain = self.disk.links.get(link.epoch, [])
            if link.index > len(chain):
                raise ProtocolError(
                    f"Query {self._query}: link {link.name} was put before link {link.epoch}.{len(chain)}: "
                    "a defect in onceonly.",
                    next_step="Start the query again; please report this.",
                )
            if link.index == len(chain):
                chain = self.disk.links.setdefault(link.epoch, chain)
                chain.append(link)
                self.disk.unsynced.add((link.epoch, link.index))
            standing = chain[link.index]
            if standing == link and self._syncs:
                self.disk.unsynced.discard((link.epoch, link.index))
        self.disk.passing("link.after", link)
        return standing

    def sync(self, standing: Link | Receipt) -> None:
        self.disk.passing("sync", standing)
        with self.disk.lock:
            if isinstance(standing, Link):
                self.disk.unsynced.discard((standing.epoch, standing.index))

    def put_receipt(self, receipt: Receipt) -> None:
        self.disk.passing("receipt.before", receipt)
        with self.disk.lock:
            self.disk.receipts.setdefault(receipt.epoch, receipt)
        self.disk.passing("receipt.after", receipt)

    def fold(self) -> None:
        with self.disk.lock:
            newest = self.newest()
            if newest is None:
                return
            for epoch in [epoch for epoch in self.disk.links if epoch <= newest - self._keep]:
                self.disk.folded.add(epoch)
                del self.disk.links[epoch]
                self.disk.receipts.pop(epoch, None)
                self.disk.unsynced = {name for name in self.disk.unsynced if name[0] != epoch}
