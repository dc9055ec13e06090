"""Whether a cluster still holds an epoch that was committed to it. Driver, once a start; only looks.

A cluster goes back when a backup is restored, or when clients are led to a mirror that lags. Its markers are offsets of
groups, and go back with it: one that is older than what the log knows to be committed proves it. One that is not there
proves nothing, as offsets expire and groups are deleted.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from onceonly import background
from onceonly.errors import TargetBehindError
from onceonly.sinks.kafka import marker, topic_ids
from onceonly.sinks.kafka.options import BEHIND_OPTION
from onceonly.sinks.kafka.prepared import Prepared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceonly.model import Handle
    from onceonly.ports import QueryContext
    from onceonly.sinks.kafka.admin import Admin
    from onceonly.sinks.kafka.options import KafkaOptions

log = logging.getLogger("onceonly")

_THREADS_MAX = 16


def look_back(
    admin: Admin, options: KafkaOptions, context: QueryContext, epoch: int, handles: Sequence[Handle]
) -> None:
    """Compare the markers with those of ``epoch``, all of whose ``handles`` were committed.

    Raises ``TargetBehindError`` where one is older, unless the user has said to go on; ``UnavailableError``.
    """
    written = [Prepared.of(handle) for handle in handles]

    def read(each: Prepared) -> str | None:
        return marker.read(admin, each.group, each.marker_topic, stable=False)

    shown = background.spread("onceonly-past", read, written, threads_max=_THREADS_MAX)
    behind: list[tuple[Prepared, str | None]] = []
    absent: list[tuple[Prepared, str | None]] = []
    for each, token in zip(written, shown, strict=True):
        if token == each.token or (token is not None and marker.epoch_of(token) >= epoch):
            continue
        # A seed that is not its predecessor was drawn after the marker had gone, whatever epoch it tells.
        is_older = token is not None and (
            token == each.predecessor or (marker.epoch_of(token) >= 0 and not marker.is_seed(token))
        )
        (behind if is_older else absent).append((each, token))
    who = f"Query {context.query}, sink {context.sink}"
    _tell_made_anew(admin, written, who, epoch)
    if absent:
        log.warning(
            "%s: %d of %d markers of chk-%d are not in Kafka any more (group %s): their offsets have expired, or the "
            "groups or the marker's topic were deleted. Whether the cluster still holds that epoch cannot be told.",
            who,
            len(absent),
            len(written),
            epoch,
            absent[0][0].group,
        )
    if not behind:
        return
    newest = max(marker.epoch_of(token or "") for _, token in behind)
    missing = f"chk-{newest + 1}" + (f" to chk-{epoch}" if newest + 1 < epoch else "")
    what = (
        f"{who}: the target went back. By the log chk-{epoch} is complete, and in cluster {admin.cluster_id} "
        f"{len(behind)} of {len(written)} markers are older (group {behind[0][0].group} shows {behind[0][1]}): "
        f"{missing} {'is' if newest + 1 == epoch else 'are'} not there. A backup was restored, or another cluster "
        f"answers that lags behind"
    )
    if options.goes_on_behind:
        log.warning("%s. It goes on without these epochs, as %s says.", what, BEHIND_OPTION)
        return
    start = f"the offsets at which chk-{newest} ends" if newest >= 0 else "the offsets at which chk-0 began"
    raise TargetBehindError(
        what,
        next_step=f"to have them written again, start on a new checkpoint from {start} (onceonly checkpoints show); to "
        f"go on without them, start once with {BEHIND_OPTION}=go-on",
    )


def _tell_made_anew(admin: Admin, written: Sequence[Prepared], who: str, epoch: int) -> None:
    """Say which topics that rows of an epoch have named are other ones by now; the next epoch knows the new ones."""
    ids: dict[str, str] = {}
    for each in written:
        ids |= topic_ids.read(each.topic_ids)
    if changed := topic_ids.changed(admin, ids):
        log.warning(
            "%s: deleted since chk-%d, and made anew where they are there again: topics %s. The rows that they held "
            "are gone; the query goes on with the new ones.",
            who,
            epoch,
            ", ".join(changed),
        )
