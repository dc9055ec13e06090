"""The sweep: what earlier runs left open in the targets, and no link names, is aborted. Driver."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from onceonly import background, failpoints, protocol
from onceonly.coordinator.looking_back import EPOCHS_MAX
from onceonly.errors import LogError, OnceonlyError
from onceonly.model import Guarantee, LinkKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from onceonly.coordinator.left import LeftSink
    from onceonly.model import Link
    from onceonly.ports import DecisionLog, Leftover, QueryContext, Sink

log = logging.getLogger("onceonly")

THREADS_MAX = 64
"""More than commit at a time: an abort mostly waits (Kafka: for its logs, twice), and readers wait for the last."""


class Sweeper:
    """Carries out ``Sweep`` commands. Driver.

    ``context`` gives that of a sink; ``record`` is given each transaction that was aborted, for the event log. ``left``
    gives the sinks that are no more, which a claim asks once more.
    """

    def __init__(
        self,
        log: DecisionLog,
        sinks: Mapping[str, Sink],
        *,
        context: Callable[[str], QueryContext],
        record: Callable[..., None],
        left: Callable[[], Iterable[LeftSink]] = tuple,
    ) -> None:
        self._left = left
        self._log = log
        self._sinks = sinks
        self._context = context
        self._record = record

    def sweep(self, link: Link, keep: frozenset[str]) -> protocol.Event:
        """List what is open, look whether the link still stands, and abort what is not in ``keep``; repeatable.

        Raises ``LogError`` where something is newer than the checkpoint, and aborts nothing then.
        """
        answer = self._sweep(link, keep)
        if link.reason and isinstance(answer, protocol.Swept):  # a claim, once a start
            self._sweep_left(link)
        return answer

    def _sweep(self, link: Link, keep: frozenset[str]) -> protocol.Event:
        failpoints.hit("sweep.before")
        found: dict[str, list[Leftover]] = {}
        name = ""
        try:
            for name, sink in self._sinks.items():
                if sink.capabilities.recovers:
                    leftovers = sink.recover(self._context(name))
                    found[name] = [each for each in leftovers if each.transaction not in keep]
            everything = [each for leftovers in found.values() for each in leftovers]
            if not everything:
                return protocol.Swept(0)  # nothing is fenced, so nothing rests on a look
            # List, look, fence, in this order: see the command's docstring. Both looks are after the list.
            chain, following = background.at_once(
                self._log.abreast,
                partial(self._log.chain, link.epoch),
                partial(self._log.chain, link.epoch + 1),
            )
            if not chain or chain[-1] != link or following:
                return protocol.LinkTaken(chain[-1] if chain else link)
            newer = [each for each in everything if _is_newer(each, link)]
            newer += [each for name in found for each in self._forgotten(link, chain, name, found[name])]
            for name, each in found.items() if not newer else ():
                self._void(link, name, each, self._sinks[name])
        except Exception as error:  # noqa: BLE001  whatever a sink lets slip, what is decided is not touched by it
            log.warning("Query %s, chk-%s: sweep of %s put off: %s", self._log.query, link.epoch, name, error)
            if isinstance(error, OnceonlyError):
                needs = "" if error.restartable else error.next_step
                return protocol.SweepFailed(f"sink {name}: {error.what}", needs)
            return protocol.SweepFailed(f"sink {name}: {type(error).__name__}: {error}")
        if newer:
            raise self._older(link, _said(newer[0]))
        return protocol.Swept(len(everything))

    def _forgotten(
        self, link: Link, chain: Sequence[Link], name: str, leftovers: Sequence[Leftover]
    ) -> list[Leftover]:
        """Return what a sink was told to commit in an epoch that is claimed now, by a decision that the log lacks."""
        named = {vote.handle.transaction for each in chain for vote in each.output if vote.handle is not None}
        found = [
            each
            for each in leftovers
            if link.kind is LinkKind.ABORT
            and each.is_decided
            and each.epoch == link.epoch
            and each.transaction not in named
        ]
        return [] if not found or self._is_early(link, chain, name) else found

    def _is_early(self, link: Link, chain: Sequence[Link], name: str) -> bool:
        """Say whether a slot may have committed before anybody decided: at least once it does so itself.

        By the links of the epoch, and the newest before it that tell of the sink, which others may follow in turn.
        """
        told = list(chain)
        for epoch in range(link.epoch - 1, max(link.epoch - 1 - EPOCHS_MAX, -1), -1):
            before = self._log.chain(epoch)
            told += before
            if any(_guarantee(each, name) for each in before):
                break
        return any(_guarantee(each, name) is Guarantee.AT_LEAST_ONCE for each in told)

    def _sweep_left(self, link: Link) -> None:
        """Do the same for sinks that the query has no more, best effort, once the epoch is claimed by ``link``.

        Raises ``LogError`` where one of them is known to have come further than the checkpoint.
        """
        for each in self._left():
            ahead = ""
            try:
                chain = self._log.chain(link.epoch)
                if not chain or chain[-1] != link or self._log.chain(link.epoch + 1):
                    return
                if each.newest is not None and each.newest > _committed(link):
                    ahead = f"the target of its sink {each.name} has chk-{each.newest}"
                elif forgotten := self._forgotten(link, chain, each.name, each.leftovers):
                    ahead = _said(forgotten[0])
                else:
                    found = [one for one in each.leftovers if not _is_newer(one, link)]
                    self._void(link, each.name, found, each.sink)
            except Exception as error:  # noqa: BLE001  whatever it is, the query needs nothing of it
                log.warning("What sink %s left open is not all ended: %s", each.name, error)
            if ahead:
                raise self._older(link, ahead)

    def _older(self, link: Link, ahead: str) -> LogError:
        return LogError(
            f"Query {self._log.query} is at chk-{link.epoch} by its checkpoint, and {ahead}: an older checkpoint was "
            "restored. Nothing was written.",
            next_step="Restore the newest checkpoint; or start on a new one, and accept that rows are repeated.",
        )

    def _void(self, link: Link, name: str, leftovers: Sequence[Leftover], sink: Sink) -> None:
        """Abort what is left open; many at a time, as readers stand still before the first that is open."""

        def one(leftover: Leftover) -> Exception | None:
            try:
                sink.abort(leftover.handle)
            except Exception as error:  # noqa: BLE001  whatever it is, it keeps no other one open, and is raised below
                return error
            kind = "swept" if leftover.is_open else "tidied"
            self._record(kind, link.epoch, run=link.run, sink=name, transaction=leftover.transaction)
            return None

        for error in background.spread("onceonly-sweep", one, leftovers, threads_max=THREADS_MAX):
            if error is not None:
                raise error


def _is_newer(leftover: Leftover, link: Link) -> bool:
    """Say whether what was found is of a world that is ahead of the checkpoint."""
    belongs, follows = leftover.epoch, leftover.committed
    return (belongs is not None and belongs > link.epoch) or (
        follows is not None and follows > _committed(link)
    )


def _committed(link: Link) -> int:
    """Return the newest epoch of which a target may have something under a link."""
    # Of an epoch that is claimed, nothing is committed; of one that is decided, all or a part may be.
    return link.epoch if link.kind is LinkKind.COMMIT else link.epoch - 1


def _guarantee(link: Link, name: str) -> Guarantee | None:
    """Return what a sink promised by a link; None where that does not tell of it. The oldest tell of all at once."""
    if not link.uses:
        return link.guarantee
    return link.uses[name].guarantee if name in link.uses else None


def _said(leftover: Leftover) -> str:
    """Say of a transaction why it is of a world that is ahead."""
    if leftover.is_decided:
        place = f"was decided for chk-{leftover.epoch} by a link that the log does not have"
    elif leftover.epoch is not None:
        place = f"belongs to chk-{leftover.epoch}"
    elif leftover.is_open:
        place = f"is open beside the committed chk-{leftover.committed}"
    else:
        return f"{leftover.transaction} is chk-{leftover.committed} in its target"
    return f"transaction {leftover.transaction} {place}"
