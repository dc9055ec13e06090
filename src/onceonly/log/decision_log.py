"""The decision log on a store: chains, receipts, and folding into history."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial
from itertools import groupby, takewhile
from typing import TYPE_CHECKING

from onceonly import background, failpoints
from onceonly.errors import LogError, ProtocolError, SupersededError, UnavailableError
from onceonly.log import files, history
from onceonly.log.around import in_order
from onceonly.log.folding import Fold
from onceonly.log.survey import segments, survey
from onceonly.model import Around, Link, Receipt
from onceonly.stores.port import put_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future

    from onceonly.log.history import Summary
    from onceonly.log.survey import Survey
    from onceonly.stores.port import Store

_READERS_MAX = 16
_READERS_EACH = 32
# So that a log whose epochs are quicker than its folds does not grow for ever.
_LAG_MAX = 3


class FileDecisionLog:
    """Fulfils ``onceonly.ports.DecisionLog`` on any ``Store``. Driver, one thread; make it by ``open_log``.

    ``token`` is the log's own id. With ``aside``, a fold runs in a thread of its own. Other processes use the same log
    at the same time. What is kept in memory is only what cannot become untrue: a lower bound of the newest epoch, and
    of the newest folded one, and who put which links.
    """

    def __init__(
        self, store: Store, *, query: str, keep: int, aside: bool = False, token: str | None = None
    ) -> None:
        self.token = token
        self._store = store
        self._query = query
        # Older ones are folded, or about to be.
        self._details_max = keep + 2 * history.SIZES[0]
        self._newest: int | None = None
        self._covered_to = -1
        self._applications: dict[int, tuple[str, ...]] = {}  # by epoch, of each of its links
        self._open: set[int] = set()  # those of them that may have got more links since
        self._fold = Fold(store, keep=keep)
        self._aside = aside
        self._folding: Future[None] | None = None
        self._lag = 0  # epochs that have passed since it began

    @property
    def query(self) -> str:
        return self._query

    @property
    def abreast(self) -> int:
        return self._store.abreast

    # --- checks -------------------------------------------------------------------------------------------

    def check(self) -> Survey:
        """See that nothing is missing between the first epoch and the newest; return what was found. Three listings.

        Raises ``LogError`` that names the file.
        """
        found = survey(self._store)
        self.learn(found)
        return found

    def learn(self, found: Survey) -> None:
        """Take in what a survey found. At open."""
        self._covered_to = max(self._covered_to, found.covered_to)
        if found.newest is not None:
            self._saw(found.newest)
        self._fold.learn(found)

    def verify(self, found: Survey) -> None:
        """Read every link and receipt that is not folded. At open by the planner; tools. Raises ``LogError``."""
        links = [(epoch, index) for epoch, count in found.chains.items() for index in range(count)]
        places = [*links, *((epoch, -1) for epoch in found.receipts)]

        def read(place: tuple[int, int]) -> Link | Receipt | None:
            epoch, index = place
            return self.receipt(epoch) if index < 0 else self._link(epoch, index)

        # Some hundred files, which a shared mount, too, gives one after the other only if they are asked for so.
        readers = max(min(_READERS_MAX, len(places) // _READERS_EACH), self.abreast)
        read_ones = background.spread("onceonly-verify", read, places, threads_max=readers)
        for epoch, each in groupby(zip(links, read_ones, strict=False), key=lambda one: one[0][0]):
            names = tuple(link.application for _, link in each if isinstance(link, Link))
            if len(names) == found.chains[epoch]:  # else another process has folded it since
                self._remember(epoch, names, closed=epoch != found.newest)

    # --- reading ------------------------------------------------------------------------------------------

    def around(self, epoch: int, *, owners: bool) -> Around:
        """Read what stands around an epoch: in one round of reads, unless others are at work or something is missing.

        ``owners`` asks for the applications that put the links that are not folded.
        """
        found = self._in_one_round(epoch)
        if found is None:
            return in_order(self, epoch, owners=owners)
        return replace(found, owners=self._owners(found.newest)) if owners else found

    def chain(self, epoch: int) -> tuple[Link, ...]:
        """Read the links of an epoch; none where it is folded. One read a link, and one more."""
        if epoch <= self._covered_to:
            return ()
        links: list[Link] = []
        ended = False
        while not ended:
            # As many as are known of and one more in one round; then what has come since.
            known = max(len(self._applications.get(epoch, ())), len(links))
            found = self._links(epoch, range(len(links), known + 1))
            ended = len(found) < known + 1 - len(links)
            links += found
        if links:
            # An epoch gets no link once there is a later one.
            self._note(epoch, links, closed=self._newest is not None and self._newest > epoch)
        return tuple(links)

    def owners(self) -> tuple[str, ...]:
        """Name the applications that put the links that are not folded, oldest first, neighbours once; known ones.

        Reads the newest epoch, and those before that this process has not read yet.
        """
        newest = self.newest()
        if newest is not None:
            self.chain(newest)
        return self._owners(newest)

    def applications(self) -> frozenset[str]:
        """Name the applications that have put links which this process has read; reads nothing."""
        return frozenset(name for several in self._applications.values() for name in several)

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

    def history(self, first: int | None = None) -> Iterator[Summary]:
        """Return the lines of the epochs that are folded, from ``first`` on. Tools; any number of times."""
        return self._fold.history(first)

    def epochs(self) -> range:
        """Return all epochs that the log knows. Tools."""
        found = survey(self._store)
        if found.first is None or found.newest is None:
            return range(0)
        return range(found.first, found.newest + 1)

    # --- writing ------------------------------------------------------------------------------------------

    def put_link(self, link: Link) -> Link:
        """Append a link, durably; return the one that stands at its place. Idempotent for an equal link.

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
            known = self._applications.get(link.epoch, ())
            if len(known) == link.index:
                self._remember(link.epoch, (*known, link.application), closed=False)
            return link
        found = self._in_place(
            files.decode(standing, kind="link", into=Link, where=self._store.where(name)),
            link.epoch,
            link.index,
        )
        if found == link:  # ours, but for the time of the put: what is put again is durable, too
            self.sync(link)
        return found

    def sync(self, standing: Link | Receipt) -> None:
        """Make a link or receipt that was read durable. Idempotent; raises ``UnavailableError``."""
        is_link = isinstance(standing, Link)
        self._store.sync(
            files.link(standing.epoch, standing.index) if is_link else files.receipt(standing.epoch)
        )

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

    def _in_one_round(self, epoch: int) -> Around | None:
        """Read all that is around an epoch at the same time; None where it must be read in order.

        The answers are of several moments, and what is there stays. So they fit together where the epoch before is
        settled, and the epoch itself is the newest or has no link yet; whoever puts one then is found by its name.
        """
        if epoch - 1 <= self._covered_to:
            return None
        known, known_before = (len(self._applications.get(each, ())) for each in (epoch, epoch - 1))
        # Of an epoch that has no link, nothing else is there.
        begun = known > 0
        before, before_receipt, links, receipt, later = background.at_once(
            self.abreast,
            lambda: self._whole(epoch - 1, max(known_before, 1)),
            lambda: self.receipt(epoch - 1),
            lambda: self._whole(epoch, known),
            lambda: self.receipt(epoch) if begun else None,
            lambda: self._link(epoch + 1, 0) if begun else None,
        )
        if not before or before_receipt is None or before_receipt.index != before[-1].index:
            return None
        if links is None or len(links) < known or later is not None:
            return None
        if receipt is not None and receipt.index != links[-1].index:
            return None
        newest = epoch if links else epoch - 1
        if self._newest is not None and self._newest > newest:
            return None
        self._note(epoch - 1, before, closed=True)
        if links:
            self._note(epoch, links, closed=False)
        return Around(
            links=links,
            receipt=receipt,
            before=before,
            before_receipt=before_receipt,
            newest=newest,
            last=None if links else before[-1],
            last_receipt=None if links else before_receipt,
        )

    def _whole(self, epoch: int, count: int) -> tuple[Link, ...] | None:
        """Read a chain of at most so many links in one round; None where it may have more."""
        links = self._links(epoch, range(count + 1))
        return tuple(links) if len(links) <= count else None

    def _links(self, epoch: int, indexes: range) -> list[Link]:
        """Read these links of a chain at the same time, up to the first that is not there."""
        found = background.spread(
            "onceonly-read", partial(self._link, epoch), indexes, threads_max=self.abreast
        )
        return [link for link in takewhile(lambda link: link is not None, found) if link is not None]

    def _link(self, epoch: int, index: int) -> Link | None:
        link = files.read(self._store, files.link(epoch, index), kind="link", into=Link)
        return None if link is None else self._in_place(link, epoch, index)

    def _note(self, epoch: int, links: Sequence[Link], *, closed: bool) -> None:
        """Note who put the links of an epoch, that were read; ``closed`` says that it gets no more of them."""
        self._saw(epoch)
        self._remember(epoch, tuple(link.application for link in links), closed=closed)

    def _remember(self, epoch: int, applications: tuple[str, ...], *, closed: bool) -> None:
        self._applications[epoch] = applications
        (self._open.discard if closed else self._open.add)(epoch)
        if len(self._applications) > 2 * self._details_max:
            last = epoch - self._details_max
            self._applications = {at: each for at, each in self._applications.items() if at > last}
            self._open = {at for at in self._open if at > last}

    def _owners(self, newest: int | None) -> tuple[str, ...]:
        """Name the applications, where the newest epoch has just been read."""
        if newest is None:
            return ()
        oldest = max(self._covered_to + 1, newest - self._details_max)
        epoch = newest - 1
        while epoch >= oldest and (
            (epoch in self._applications and epoch not in self._open) or self.chain(epoch)
        ):
            epoch -= 1
        known = sorted((at, each) for at, each in self._applications.items() if at >= oldest)
        return tuple(name for name, _ in groupby(each for _, several in known for each in several if each))

    def _in_place(self, link: Link, epoch: int, index: int) -> Link:
        if (link.epoch, link.index) != (epoch, index):
            raise self._misplaced(files.link(epoch, index), f"link {link.name}")
        return link

    def _refuse_gap(self, link: Link) -> None:
        """See that a link follows on what stands: a defect must not make a log that cannot be opened."""
        if link.index:
            # One that was seen stands, or is folded, which is looked at after the put.
            is_seen = len(self._applications.get(link.epoch, ())) >= link.index
            follows = is_seen or self._store.get(files.link(link.epoch, link.index - 1)) is not None
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
        if epoch > self._covered_to and not self._has_later(epoch):
            return False
        for _ in range(2):  # one listing can miss a segment and the wider one that replaces it; two cannot
            if epoch > self._covered_to:
                chosen, _inside = segments(self._store)
                self._covered_to = max(self._covered_to, chosen[-1][1] if chosen else -1)
        return epoch <= self._covered_to

    def _has_later(self, epoch: int) -> bool:
        """Say whether a later epoch has a link: a fold leaves those of the newest epochs, so at each moment one has."""
        first = files.link(epoch + 1, 0)  # by name as by number
        names = self._store.list_names(files.LINKS)
        return any(name >= first and files.parse_link(name) is not None for name in names)

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
