"""Keeping a fork away from the targets of the query that it comes from. Driver.

At its first start its log says so, too; but each later start may name another target, and a later epoch another sink.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly import background
from onceonly.coordinator.stops import error_of
from onceonly.log import origin
from onceonly.log.place import log_store
from onceonly.model import differing
from onceonly.protocol import Stop, StopReason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.coordinator.coordinator import Participant
    from onceonly.log.origin import Target
    from onceonly.model import Plan


class Apart:
    """What one process knows of the former query's targets. It is read once, beside what else a start reads."""

    def __init__(self, checkpoint: str, query: str) -> None:
        self._query = query
        self._origin = background.begin("onceonly-origin", origin.read, log_store(checkpoint))
        # By sink: the target that was seen to be its own.
        self._seen: dict[str, dict[str, str | int]] = {}

    def require(self, plan: Plan, participants: Mapping[str, Participant]) -> None:
        """See that an epoch writes to no target of the former query, before its tasks run.

        Raises ``ConfigurationError``, ``LogError``, ``UnavailableError``.
        """
        found = self._origin.result()
        if found is None:
            return
        new = {name: dict(now) for name, now in plan.settings.items() if self._seen.get(name) != now}
        shared = [
            f"sink {name}: {now}"
            for name, now in new.items()
            if any(_overlaps(participants[name], now, each) for each in found.targets)
        ]
        if shared:
            stop = Stop(StopReason.SHARED, "; ".join(shared))
            raise error_of(stop, query=self._query, epoch=plan.epoch)
        self._seen |= new


def _overlaps(participant: Participant, now: Mapping[str, str | int], then: Target) -> bool:
    if not differing(then.identity, now):
        return True
    # By another prefix of ids, another format: rows of both would lie together all the same.
    is_alike = participant.use is not None and participant.use.sink == then.sink
    return is_alike and then.identity.keys() <= now.keys() and participant.sink.overlaps(then.identity)
