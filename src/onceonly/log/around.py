"""What stands around an epoch, read in order: what others put meanwhile does not look like a gap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from onceonly.model import Around

if TYPE_CHECKING:
    from onceonly.model import Link, Receipt


class Readable(Protocol):
    """What is asked of a log, one question after the other."""

    def chain(self, epoch: int) -> tuple[Link, ...]: ...
    def receipt(self, epoch: int) -> Receipt | None: ...
    def newest(self) -> int | None: ...
    def owners(self) -> tuple[str, ...]: ...


def in_order(log: Readable, epoch: int, *, owners: bool) -> Around:
    """Return it, however much of it is missing or is being put just now."""
    before = log.chain(epoch - 1) if epoch > 0 else ()
    before_receipt = log.receipt(epoch - 1) if before else None
    # The links last: what a living run puts meanwhile must not look like a gap before it.
    newest = log.newest()
    receipt = log.receipt(epoch)
    links = log.chain(epoch)
    last, last_receipt = before[-1] if before else None, before_receipt
    if newest is None or newest >= epoch:
        last, last_receipt = None, None
    elif newest < epoch - 1:
        chain = log.chain(newest)
        last, last_receipt = chain[-1] if chain else None, log.receipt(newest)
    return Around(
        links=links,
        receipt=receipt,
        before=before,
        before_receipt=before_receipt,
        newest=newest,
        last=last,
        last_receipt=last_receipt,
        owners=log.owners() if owners else (),
    )
