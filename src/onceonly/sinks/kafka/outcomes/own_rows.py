"""How a transaction has ended, by its own rows: where its marker is gone, its partitions still tell. Looks only.

A handle names the offset of its first row in each partition. The leader gives the batch that stands there, and names
the transactions in it that were aborted; what has not ended, or follows an open one, it does not give to a reader of
committed rows. An end that stands in a partition never changes.

What is proven: only a coordinator that has decided to commit ends a transaction as committed. So rows that are
committed in all partitions are there, and rows that were aborted in all never will be, by whomever. Nothing is proven
where they are not to be seen (retention, compaction, a topic that was made anew, no READ on it), or ended in different
ways.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError
from onceonly.ports.standing import Stands
from onceonly.sinks.kafka.outcomes import standing
from onceonly.sinks.kafka.outcomes.fetching import OUT_OF_RANGE, Place, fetch
from onceonly.sinks.kafka.prepared import read_places

if TYPE_CHECKING:
    from onceonly.sinks.kafka.prepared import Prepared
    from onceonly.sinks.kafka.wire.admin import Admin

_BYTES_MAX = 1  # the first batch is given whole in any case
_NOT_KNOWN = -1
_UNTOLD = "its handle does not say where its rows begin"


def ended(admin: Admin, prepared: Prepared) -> tuple[Stands, str]:
    """Say how a transaction has ended that its coordinator does not hold open, and by what; UNKNOWN with why.

    Any process; two requests to each leader and one more a partition. Raises ``NotAnsweredError``.
    """
    found = ends(admin, prepared)
    if Stands.UNKNOWN in found:
        return Stands.UNKNOWN, found[Stands.UNKNOWN]
    if len(found) > 1:
        return (
            Stands.UNKNOWN,
            f"its rows are committed at {found[Stands.COMMITTED]} and aborted at {found[Stands.GONE]}",
        )
    [(stands, where)] = found.items()
    word = "committed" if stands is Stands.COMMITTED else "aborted"
    return stands, f"its own rows are {word} in each of its partitions, as at {where}"


def ends(admin: Admin, prepared: Prepared) -> dict[Stands, str]:
    """Return each way in which a transaction has ended in a partition, and where; of UNKNOWN, why. As ``ended``."""
    firsts = read_places(prepared.written)
    if not firsts or min(firsts.values()) == _NOT_KNOWN:
        return {Stands.UNKNOWN: _UNTOLD}
    leaders = {place: leader for leader, some in standing.by_leader(admin, firsts).items() for place in some}
    found: dict[Stands, str] = {}
    for (topic, partition), first in firsts.items():
        leader = leaders.get((topic, partition))
        if leader is None:
            found.setdefault(Stands.UNKNOWN, f"{topic}-{partition} is not there any more")
            continue
        place = Place(topic, partition, leader)
        stands, where = _in(admin, prepared, place, first), f"offset {first} of {place}"
        if stands is Stands.UNKNOWN:
            where = f"its rows from {where} on are not to be seen, or follow an open one"
        found.setdefault(stands, where)
    return found


def _in(admin: Admin, prepared: Prepared, place: Place, first: int) -> Stands:
    """Say how a transaction has ended in one partition; UNKNOWN where that is not to be seen."""
    from onceonly.sinks.kafka.wire.requests import MemoryRecords

    try:
        answer = fetch(admin, place, first, bytes_max=_BYTES_MAX, committed=True)
    except ConfigurationError:
        return Stands.UNKNOWN  # this user may not READ it
    batch = (
        None
        if answer.error_code == OUT_OF_RANGE
        else MemoryRecords(bytes(answer.records or b"")).next_batch()
    )
    if batch is None or not _is_own(batch, prepared, first):
        return Stands.UNKNOWN
    gone = {(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()}
    return Stands.GONE if (prepared.producer_id, first) in gone else Stands.COMMITTED


def _is_own(batch: Any, prepared: Prepared, first: int) -> bool:  # noqa: ANN401  kafka-python is untyped
    """Say whether a batch is the first one that a transaction has in its partition."""
    return (
        batch.is_transactional
        and not batch.is_control_batch
        and batch.base_offset == first
        and (batch.producer_id, batch.producer_epoch) == (prepared.producer_id, prepared.producer_epoch)
    )
