"""Whether a cluster still holds an epoch that was committed to it. Driver, once a start; only looks.

A cluster goes back when a backup is restored, or when clients are led to a mirror that lags. Its markers are offsets of
groups, and go back with it: one that is older than what the log knows to be committed proves it, unless the rows are
seen to be there: brokers that lose their power together keep some ends of partitions, and lose others. One that is not
there proves nothing, as offsets expire and groups are deleted; then the rows are looked for, too.

What is proven of a slot: it lacks the epoch whose marker it should show, unless its rows are there; and where it shows
an older one than the predecessor of that, also the epoch of the predecessor. Of epochs between nothing is proven, as
the slot may have had no rows in them; those that no slot of the sink has come to are named as doubtful.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from onceonly import background
from onceonly.families import behind
from onceonly.ports.standing import Stands
from onceonly.sinks.kafka.checks import topic_ids
from onceonly.sinks.kafka.checks.target import id_prefix
from onceonly.sinks.kafka.outcomes import marker, own_rows
from onceonly.sinks.kafka.prepared import Prepared
from onceonly.sinks.kafka.wire.answers import NotAnsweredError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from onceonly.model import Handle
    from onceonly.ports import QueryContext
    from onceonly.sinks.kafka.options import KafkaOptions
    from onceonly.sinks.kafka.wire.admin import Admin

    _Shown = tuple[Prepared, str | None]

log = logging.getLogger("onceonly")

_THREADS_MAX = 16
_NAMED_MAX = 5


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
    older: list[_Shown] = []
    absent: list[_Shown] = []
    for each, token in zip(written, shown, strict=True):
        if token == each.token or (token is not None and marker.epoch_of(token) >= epoch):
            continue
        # A seed that is not its predecessor was drawn after the marker had gone, whatever epoch it tells.
        is_older = token is not None and (
            token == each.predecessor or (marker.epoch_of(token) >= 0 and not marker.is_seed(token))
        )
        (older if is_older else absent).append((each, token))
    who = f"Query {context.query}, sink {context.sink}"
    _tell_made_anew(admin, written, who, epoch)
    unseen, there = _parted(admin, older)
    # Of the transaction before, which is not shown either, these rows tell nothing.
    older = unseen + [pair for pair in there if _lacks_predecessor(*pair)]
    if found := [pair for pair in there if not _lacks_predecessor(*pair)]:
        log.warning(
            "%s: %d of %d markers are older than chk-%d, whose rows are there (group %s shows %s): the brokers have "
            "lost what was newer, and the query goes on.",
            who,
            len(found),
            len(written),
            epoch,
            found[0][0].group,
            found[0][1],
        )
    absent, _ = _parted(admin, absent)
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
    if not older:
        return
    lost = {marker.epoch_of(each.predecessor) for each, token in older if _lacks_predecessor(each, token)}
    if unseen:
        lost |= {epoch}
    newest = marker.newest_epoch(admin, id_prefix(options, context.query, context.sink))
    doubtful = set(range(newest + 1, epoch)) - lost
    doubt = f", and nothing shows that {_named(doubtful)} {_are(doubtful)}" if doubtful else ""
    what = (
        f"{who}: the target went back. By the log chk-{epoch} is complete, and in cluster {admin.cluster_id} "
        f"{len(older)} of {len(written)} markers are older (group {older[0][0].group} shows {older[0][1]}): "
        f"{_named(lost)} {_are(lost)} not there{doubt}. A backup was restored, or another cluster answers that lags "
        f"behind"
    )
    behind.refuse(
        what,
        f"{_advice(min(lost), doubtful)} ({behind.SHOW}); what is there of the epochs from then on would "
        "be there twice",
        goes_on=options.goes_on_behind,
    )


def _parted(admin: Admin, some: list[_Shown]) -> tuple[list[_Shown], list[_Shown]]:
    """Part those whose rows are not seen to be there from those whose rows are; each with what its group shows."""
    if not some:
        return [], []
    stand = background.spread(
        "onceonly-past", lambda pair: _stands(admin, pair[0]), some, threads_max=_THREADS_MAX
    )
    pairs = list(zip(some, stand, strict=True))
    return [pair for pair, is_there in pairs if not is_there], [pair for pair, is_there in pairs if is_there]


def _stands(admin: Admin, each: Prepared) -> bool:
    """Say whether the rows of a transaction are seen to be there; not, too, where that cannot be told."""
    try:
        return own_rows.ended(admin, each)[0] is Stands.COMMITTED
    except NotAnsweredError:
        return False


def _lacks_predecessor(each: Prepared, token: str | None) -> bool:
    """Say whether a marker is older than the transaction before; a seed is no transaction, whatever epoch it tells."""
    before = each.predecessor
    return not marker.is_seed(before) and marker.epoch_of(token or "") < marker.epoch_of(before)


def _advice(first: int, doubtful: Collection[int]) -> str:
    if doubtful:
        return (
            f"see whether rows of {_named(doubtful)} are in the target; to have what is missing written again, start "
            "on a new checkpoint from the offsets at which the first epoch that is missing begins"
        )
    start = f"the offsets at which chk-{first - 1} ends" if first > 0 else "the offsets at which chk-0 began"
    return f"to have them written again, start on a new checkpoint from {start}"


def _named(epochs: Collection[int]) -> str:
    first, last = min(epochs), max(epochs)
    if first == last:
        return f"chk-{first}"
    if last - first + 1 == len(epochs):
        return f"chk-{first} to chk-{last}"
    more = f" and {len(epochs) - _NAMED_MAX} more" if len(epochs) > _NAMED_MAX else ""
    return ", ".join(f"chk-{each}" for each in sorted(epochs)[:_NAMED_MAX]) + more


def _are(epochs: Collection[int]) -> str:
    return "is" if len(epochs) == 1 else "are"


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
