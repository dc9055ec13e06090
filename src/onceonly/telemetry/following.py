"""Following the log of a query: what has been settled since the last look is added to its totals. Only reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.log.history import summarise
from onceonly.log.opening import look
from onceonly.telemetry.totals import Totals

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly.log import FileDecisionLog
    from onceonly.model import Link, Receipt


def _nothing(_chain: tuple[Link, ...], _receipt: Receipt) -> None:
    """Do nothing with a settled epoch, where nobody wants to know."""


class Follower:
    """The totals of one log, and the chain of its newest epoch while that is not settled. One thread at a time.

    ``settled`` is given each epoch that has its details, once, when it is found to be settled.
    """

    def __init__(
        self, location: str, *, settled: Callable[[tuple[Link, ...], Receipt], None] = _nothing
    ) -> None:
        self.totals = Totals()
        self.chain: tuple[Link, ...] = ()
        self._location = location
        self._settled = settled
        self._log: FileDecisionLog | None = None

    def look(self) -> None:
        """Take in what is new: all lines of history at first, then two reads an epoch.

        Raises ``LogError`` (also while there is no log yet), ``UnavailableError``; the next look goes on from there.
        """
        if self._log is None:
            self.totals = Totals()
            log, _ = look(self._location)
            self._fold_in(log, None)
            self._log = log
        log = self._log
        newest = log.newest()
        if newest is None:
            return
        epoch = self.totals.through + 1 if self.totals.through >= 0 else log.epochs().start
        while epoch <= newest:
            chain = log.chain(epoch)
            receipt = log.receipt(epoch) if chain else None
            if chain and receipt is not None:
                self._settled(chain, receipt)
                self.totals.add(summarise(chain, receipt))
                self.chain = ()
            elif epoch == newest:
                self.chain = chain
                return
            else:  # folded since
                self._fold_in(log, epoch)
                if self.totals.through < epoch:
                    return  # it is just being folded: the next look finds it in history
            epoch = self.totals.through + 1

    def _fold_in(self, log: FileDecisionLog, since: int | None) -> None:
        for line in log.history(since):
            self.totals.add(line)
