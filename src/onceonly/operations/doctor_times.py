"""What ``onceonly doctor`` reads out of the stamps of a checkpoint: whose clock is wrong, how many drivers there are.

No guarantee rests on clocks; ages and time-outs are read by them, by people and by brokers.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

from onceonly.log import files as log_files
from onceonly.log import identity
from onceonly.log.actions import OPERATOR
from onceonly.model import LinkKind, Stamp, seconds_of
from onceonly.operations import disk, sinks
from onceonly.operations.probes import Sick

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly.operations.find import Checkpoint

APART_S_MAX: Final = 120.0
"""Clocks that are so far apart are told."""
_EPOCHS: Final = 20
_RETURNS: Final = 2
_NEXT: Final = "set both by NTP; no guarantee rests on clocks, but ages and time-outs are read by them"


def stamps(checkpoint: Checkpoint) -> None:
    """Compare what was stamped with this machine's clock, with the store's, and with what was stamped before."""
    now = time.time()
    before = ("", Stamp())
    for what, stamp, name in _moments(checkpoint):
        at = seconds_of(stamp)
        if at - now > APART_S_MAX:
            raise Sick(
                f"{what} was put {at - now:.0f} s in the future by this machine's clock: that of {stamp.host} or this "
                "one is wrong",
                _NEXT,
            )
        written = disk.written(checkpoint.folder / name) if checkpoint.folder is not None and name else None
        # A copy is later than what it is of; nothing is there before it is put.
        if written is not None and at - written > APART_S_MAX:
            raise Sick(
                f"{what} was put by the clock of {stamp.host} {at - written:.0f} s after its file was written by that "
                "of the file system: one of the two is wrong",
                _NEXT,
            )
        back_s = seconds_of(before[1]) - at
        if not name and back_s > 0:
            continue  # of an epoch that is run again, the plan is older
        if back_s > APART_S_MAX:
            raise Sick(
                f"{what} was put by the clock of {stamp.host} {back_s:.0f} s before {before[0]} by that of "
                f"{before[1].host}, and came after it: one of the two is wrong, or was set back",
                _NEXT,
            )
        before = (what, stamp)


def _moments(checkpoint: Checkpoint) -> Iterator[tuple[str, Stamp, str]]:
    """Yield what was stamped in the newest epochs, oldest first: what it is, when, and the name of its file."""
    for chain in reversed(list(sinks.chains(checkpoint))):
        epoch = chain[0].epoch
        planned = _planned(checkpoint, epoch)
        if planned is not None and chain[0].stamp is not None:
            yield f"the plan of chk-{epoch} by Spark", planned, ""
        for link in chain:
            if seconds_of(link.stamp) and link.stamp is not None:
                name = f"{identity.FOLDER}/{log_files.link(epoch, link.index)}"
                yield f"link {link.name}", link.stamp, name
        receipt = checkpoint.log.receipt(epoch)
        if receipt is not None and seconds_of(receipt.stamp) and receipt.stamp is not None:
            yield (
                f"the receipt of chk-{epoch}",
                receipt.stamp,
                f"{identity.FOLDER}/{log_files.receipt(epoch)}",
            )


def _planned(checkpoint: Checkpoint, epoch: int) -> Stamp | None:
    """Return when the driver has planned an epoch, as Spark's offsets say; None where they do not."""
    text = checkpoint.told.files.text(f"offsets/{epoch}") or ""
    try:
        at = int(json.loads(text.split("\n")[1])["batchTimestampMs"]) / 1000
    except (ValueError, LookupError, TypeError):
        return None
    return Stamp(at=disk.iso(at) or "", host="Spark's driver") if at > 0 else None


def one_driver(checkpoint: Checkpoint) -> None:
    """See that drivers do not take turns: each would fence the other for ever."""
    names: list[str] = []
    where: dict[str, str] = {}
    for epoch in checkpoint.epochs[-_EPOCHS:]:
        for link in checkpoint.log.chain(epoch):
            name = link.application
            is_drivers = name and link.kind is not LinkKind.SKIPPED and not name.startswith(OPERATOR)
            if is_drivers and link.stamp is not None:
                where[name] = f"host {link.stamp.host}, process {link.stamp.pid}"
            if is_drivers and names[-1:] != [name]:
                names.append(name)
    # One that comes back once may have been started again; it is another's turn each time.
    if len(names) - len(set(names)) >= _RETURNS:
        known = "; ".join(where[each] for each in dict.fromkeys(reversed(names)) if each in where)
        named = f" ({known})" if known else ""
        raise Sick(
            f"{len(set(names))} applications take turns in deciding the newest epochs{named}: the "
            "query was started twice, and each start ends the other's run as superseded",
            "stop all but one of them; a copy of the job needs a checkpoint of its own (onceonly savepoint fork)",
        )
