"""The decision log on a store: chains, receipts, and folding into history."""

from __future__ import annotations

import contextlib
from itertools import groupby
from typing import TYPE_CHECKING

from onceonly import background, failpoints
from onceonly.errors import LogError, ProtocolError, SupersededError, UnavailableError
from onceonly.log import files
from onceonly.log.folding import Fold
from onceonly.log.survey import segments, survey
from onceonly.model import Link, Receipt
from onceonly.stores.port import put_once

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from onceonly.log.history import Summary
    from onceonly.stores.port import Store

_READERS_MAX = 16
_READERS_EACH = 16
# So that a log whose epochs are quicker than its folds does not grow for ever.
_LAG_MAX = 3


class FileDecisionLog:
    """Fulfils ``onceonly.ports.DecisionLog`` on any ``Store``. Driver, one thread; make it by ``open_log``.

    With ``aside``, a fold runs in a thread of its own. Other processes use the same log at the same time. What is kept
    in memory is only what cannot become untrue: a lower bound of the newest epoch, and of the newest folded one.
    """

    def __init__(self, store: Store, *, query: str, keep: int, aside: bool = False) -> None:
        self._store = store
        self._query = query
        self._keep = keep
        self._newest: int | None = None
        self._covered_to = -1
        self._applications: dict[int, tuple[str, ...]] = {}  # by epoch, of each of its links
        self._fold = Fold(store, keep=keep)
        self._aside = aside
        self._folding: Future[None] | None = None
        self._lag = 0  # epochs that have passed since it began

    @property
    def query(self) -> str:
        return self._query

    # --- checks -------------------------------------------------------------------------------------------

    def check(self) -> None:
        """See that nothing is missing between the first epoch and the newest. At open; three listings.

        Raises ``LogError`` that names the file.
        """
        found = survey(self._store)
        self._covered_to = max(self._covered_to, found.covered_to)
        if found.newest is not None:
            self._saw(found.newest)
        self._fold.learn(found)

    def verify(self) -> None:
        """Read every link and receipt that is not folded. At open by the planner; tools. Raises ``LogError``."""

        def read(epoch: int) -> None:
            self.chain(epoch)
            self.receipt(epoch)

        # Some hundred files, which a shared mount gives one after the other only if they are asked for so.
        chains = list(survey(self._store).chains)
        readers = min(_READERS_MAX, len(chains) // _READERS_EACH)
        background.spread("onceonly-verify", read, chains, threads_max=max(readers, 1))

    # --- reading ------------------------------------------------------------------------------------------

    def chain(self, epoch: int) -> tuple[Link, ...]:
        """Read the links of an epoch; none where it is folded. One read a link, and one more."""
        if epoch <= self._covered_to:
            return ()
        links: list[Link] = []
        while (link := self._link(epoch, len(links))) is not None:
            links.append(link)
        if links:
            self._saw(epoch)
            self._applications[epoch] = tuple(link.application for link in links)
        return tuple(links)

    def owners(self) -> tuple[str, ...]:
        """Name the applications that put the links that are not folded, oldest first, neighbours once; known ones.

        Reads the newest epoch, and those before that this process has not read yet.
        """
        self._applications = {
            epoch: each for epoch, each in self._applications.items() if epoch > self._covered_to
        }
        newest = self.newest()
        if newest is None:
            return ()
        # An epoch gets no link once there is a later one, so what was read of it then stays.
        self.chain(newest)
        epoch = newest - 1
        while epoch > self._covered_to and (epoch in self._applications or self.chain(epoch)):
            epoch -= 1
        names_of = (each for _, several in sorted(self._applications.items()) for each in several if each)
        return tuple(name for name, _ in groupby(names_of))

    def receipt(self, epoch: int) -> Receipt | None:
        """Read the receipt of an epoch; None where there is none, or the epoch is folded."""
        if epoch <= self._covered_to:
            return None
        name = files.receipt(epoch)
        receipt = files.read(self._store, name, kind="receipt", into=Receipt)
        if receipt is not None and receipt.epoch != epoch:
            raise self._misplaced(name, f"the receipt of chk-{receipt.epoch}")
        return receipt

    def newest(self) -> int | None:
        """Return the newest epoch known, by looking for the ones after the last that was seen."""
        newest = self._newest
        if newest is None or self._store.get(files.link(newest, 0)) is None:
            # Nothing known, or so much is new that what was known is folded.
            found = survey(self._store)
            self._covered_to = max(self._covered_to, found.covered_to)
            newest = found.newest
            if newest is None:
                return None
        while self._store.get(files.link(newest + 1, 0)) is not None:
            newest += 1
        self._saw(newest)
        return newest

    def history(self) -> Iterator[Summary]:
        """Return the lines of the epochs that are folded, oldest first. Tools; any number of times."""
        return self._fold.history()

    def epochs(self) -> range:
        """Return all epochs that the log knows. Tools."""
        found = survey(self._store)
        if found.first is None or found.newest is None:
            return range(0)
        return range(found.first, found.newest + 1)

    # --- writing ------------------------------------------------------------------------------------------

    def put_link(self, link: Link) -> Link:
        """Append a link, durably; give the one that stands at its place. Idempotent for an equal link.

        Links are equal whenever they were put (see ``Stamp``): the time of the one that stands stays.

        Raises ``UnavailableError`` where nothing was put or no answer told it, so that the chain must be read again,
        ``SupersededError`` where the epoch was folded meanwhile, so that this run is very old.
        """
        self._refuse_gap(link)
        name = files.link(link.epoch, link.index)
        data = files.encode("link", link)
        standing = put_once(self._store, name, data, before_publish=lambda: failpoints.hit("link.during_put"))
        # Folding frees names. It puts the segment before it removes a link, so this look cannot miss it.
        if self._is_folded(link.epoch):
            if standing == data:
                with contextlib.suppress(UnavailableError):  # it is void; the next fold takes it away
                    self._store.delete(name)
            raise self._superseded(link)
        if standing is None:
            raise UnavailableError(
                f"{self._store.where(name)} was taken, and then not to be found",
                next_step="see to this file system (a mount with stale caches?) and start the query again",
            )
        self._saw(link.epoch)
        if standing == data:
            return link
        found = self._in_place(
            files.decode(standing, kind="link", into=Link, where=self._store.where(name)),
            link.epoch,
            link.index,
        )
        if found == link:  # ours, but for the time of the put: what is put again is durable, too
            self.sync(link)
        return found

    def sync(self, link: Link) -> None:
        """Make a link that was read durable. Idempotent; raises ``UnavailableError``."""
        self._store.sync(files.link(link.epoch, link.index))

    def put_receipt(self, receipt: Receipt) -> None:
        """Put a receipt, durably; one that stands already stays. Raises as ``put_link`` does."""
        name = files.receipt(receipt.epoch)
        data = files.encode("receipt", receipt)
        standing = put_once(self._store, name, data)
        if standing is not None and standing != data:
            self._store.sync(name)

    def fold(self) -> None:
        """Turn details beyond the limit into history. After each epoch: one comparison, if nothing is to do.

        Safe to be killed in, and beside another process that folds. Raises ``LogError`` for what is damaged or missing,
        ``UnavailableError``; with ``aside``, the next call does.
        """
        folding = self._folding
        if folding is not None:
            if not folding.done() and self._lag < _LAG_MAX:
                self._lag += 1
                return
            self._folding, self._lag = None, 0
            folding.result()  # raises what it raised
        if self._newest is None or not self._fold.due(self._newest):
            return
        if self._aside:
            # Some hundred operations, which the epoch need not wait for. To this process it is as if another folded.
            self._folding = background.begin("onceonly-fold", self._fold.fold)
        else:
            self._fold.fold()

    # --- helpers ------------------------------------------------------------------------------------------

    def _link(self, epoch: int, index: int) -> Link | None:
        link = files.read(self._store, files.link(epoch, index), kind="link", into=Link)
        return None if link is None else self._in_place(link, epoch, index)

    def _in_place(self, link: Link, epoch: int, index: int) -> Link:
        if (link.epoch, link.index) != (epoch, index):
            raise self._misplaced(files.link(epoch, index), f"link {link.name}")
        return link

    def _refuse_gap(self, link: Link) -> None:
        """See that a link follows on what stands: a defect must not make a log that cannot be opened."""
        if link.index:
            follows = self._store.get(files.link(link.epoch, link.index - 1)) is not None
        else:
            known = self._newest
            if known is None or link.epoch != known + 1:
                known = self.newest()
            # Below the newest its place must be taken already, unless it is folded.
            follows = (
                known is None
                or link.epoch == known + 1
                or self._store.get(files.link(link.epoch, 0)) is not None
            )
        if follows:
            return
        if self._is_folded(link.epoch):
            raise self._superseded(link)
        raise ProtocolError(
            f"Query {self._query}: link {link.name} does not follow on the decision log: a defect in onceonly.",
            next_step="Start the query again; nothing was sent. Please report this.",
        )

    def _is_folded(self, epoch: int) -> bool:
        for _ in range(2):  # one listing can miss a segment and the wider one that replaces it; two cannot
            if epoch > self._covered_to:
                chosen, _inside = segments(self._store)
                self._covered_to = max(self._covered_to, chosen[-1][1] if chosen else -1)
        return epoch <= self._covered_to

    def _saw(self, epoch: int) -> None:
        self._newest = epoch if self._newest is None else max(self._newest, epoch)

    def _superseded(self, link: Link) -> SupersededError:
        return SupersededError(
            f"Query {self._query}: chk-{link.epoch} was decided and folded long ago by a newer run.",
            next_step="Nothing; the newer run goes on.",
        )

    def _misplaced(self, name: str, what: str) -> LogError:
        return LogError(
            f"{self._store.where(name)} holds {what}: a file was renamed or copied by hand",
            next_step=files.PUT_BACK,
        )
