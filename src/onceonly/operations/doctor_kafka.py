"""What ``onceonly doctor`` asks of the Kafka targets of a checkpoint: time-outs, changing nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from onceonly.errors import OnceonlyError
from onceonly.model import Guarantee, LinkKind, seconds_of
from onceonly.operations import before_kafka, sinks
from onceonly.operations.probes import NEAR, Sick
from onceonly.settings.registry import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly.coordinator.coordinator import Participant
    from onceonly.model import SinkUse
    from onceonly.operations.find import Checkpoint
    from onceonly.operations.given import Given

_EPOCHS_MAX = 20
"""How many of the newest epochs are looked at for the slowest."""


def writes(checkpoint: Checkpoint) -> bool:
    """Say whether the query writes to Kafka otherwise than at least once; no where the log cannot be read."""
    try:
        uses = [use for link in sinks.links(checkpoint) for use in link.uses.values()]
    except OnceonlyError:
        return False  # the probe of the log tells
    return any(map(_is_transactional, uses))


def transactions(checkpoint: Checkpoint, given: Given) -> None:
    """See that transactions live for as long as epochs take, and for no longer than the broker allows."""
    from onceonly.sinks.kafka.checks.ageing import ASKED_FROM, REFUSED_FROM

    for name, options, _ in _transactional(checkpoint, given):
        ours, most = before_kafka.timeouts_of(options)
        if most is not None and ours > most:
            raise Sick(
                f"the sink {name} asks for transactions of {ours / 1000:g} s, and the broker allows {most / 1000:g} s "
                f"by now ({before_kafka.MAX}): the next start is refused",
                f"set {before_kafka.TIMEOUT}={most}, or {before_kafka.MAX}={ours} on all brokers",
            )
        slow_s, epoch = _slowest(checkpoint, name)
        if 1000 * slow_s > ASKED_FROM * ours:
            raise Sick(
                f"chk-{epoch} took {slow_s:.0f} s, and an epoch older than {REFUSED_FROM * ours / 1000:g} s is not "
                f"decided: the broker drops the transactions of the sink {name} at {ours / 1000:g} s",
                f"{before_kafka.longer(int(1000 * slow_s / ASKED_FROM) + 1, most)}, or let an epoch read less",
            )


def markers(checkpoint: Checkpoint, given: Given) -> None:
    """See that what tells the outcome of transactions is there yet when a job that is down is started."""
    newest = checkpoint.log.newest()
    receipt = checkpoint.log.receipt(newest) if newest is not None else None
    moment = seconds_of(receipt.stamp if receipt is not None else None)
    if not moment or checkpoint.run.alive:
        return
    down_s = time.time() - moment
    for name, options, _ in _transactional(checkpoint, given):
        kept_s = before_kafka.markers_kept_s(options)
        if kept_s is not None and down_s > NEAR * kept_s:
            raise Sick(
                f"the job is down since {down_s:.0f} s, and the broker forgets the markers of the sink {name} after "
                f"{kept_s:g} s ({before_kafka.OFFSETS}): nobody could tell then whether the cluster went back",
                f"start the query now, or set a longer {before_kafka.OFFSETS} on all brokers",
            )


def _is_transactional(use: SinkUse) -> bool:
    is_ours = BUILT_IN.get(use.sink) == BUILT_IN["kafka"]
    return is_ours and use.guarantee is not Guarantee.AT_LEAST_ONCE


def _transactional(checkpoint: Checkpoint, given: Given) -> Iterator[tuple[str, dict[str, str], Participant]]:
    with sinks.participants(checkpoint, given) as made:
        for name, each in made.items():
            if each.use is not None and _is_transactional(each.use):
                yield name, sinks.options_of(given, name, each.use), each


def _slowest(checkpoint: Checkpoint, name: str) -> tuple[float, int]:
    """Return for how long an epoch took at most, from its plan to its decision, and which; of those with details."""
    found = [(0.0, -1)]
    for epoch in checkpoint.epochs[-_EPOCHS_MAX:]:
        for link in checkpoint.log.chain(epoch):
            planned, decided = seconds_of(link.planned), seconds_of(link.stamp)
            writes = any(vote.sink == name for vote in link.pending)
            if link.kind is LinkKind.COMMIT and planned and decided and writes:
                found.append((decided - planned, epoch))
    return max(found)
