"""What Kafka has of a transaction, in words for a person: coordinator, partitions and marker are asked. Looks only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceonly.errors import UnavailableError
from onceonly.ports.standing import Standing, Stands
from onceonly.sinks.kafka.committer import require_cluster
from onceonly.sinks.kafka.outcomes import marker, own_rows, standing
from onceonly.sinks.kafka.prepared import Prepared
from onceonly.sinks.kafka.wire.answers import NONE, NotAnsweredError
from onceonly.words import time_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.model import Handle
    from onceonly.sinks.kafka.wire.admin import Admin

_NAMED_MAX = 5
_NOT_OPEN = -1
_ENDING = {"PrepareCommit": "committed", "PrepareAbort": "aborted"}
"""States of a coordinator that has decided, and not told all partitions yet."""


def look_up(admin: Admin, handle: Handle) -> Standing:
    """Say what the cluster has of a transaction. Any process; some requests.

    One that no link names is known by its id alone. Raises ``UnavailableError``, ``ConfigurationError``.
    """
    known = "token" in handle.data
    try:
        require_cluster(admin, str(handle.data["cluster_id"]), handle.transaction)
        # The marker last: what is committed between the two looks is then seen as committed.
        state = standing.describe(admin, str(handle.data["transactional_id"]))
        return _named(admin, Prepared.of(handle), state) if known else _unnamed(state)
    except NotAnsweredError as error:
        raise UnavailableError(
            f"Kafka did not say what became of transaction {handle.transaction}: {error}",
            next_step="see to its brokers and ask again",
        ) from error


def _named(admin: Admin, prepared: Prepared, state: Any) -> Standing:  # noqa: ANN401  kafka-python is untyped
    is_open = standing.is_open(state, prepared)
    starts = standing.starts(admin, prepared, standing.places_of(state, prepared)) if is_open else {}
    shown = marker.read_once(admin, prepared.group, prepared.marker_topic, stable=False)
    if shown == prepared.token:
        return _ended(
            Stands.COMMITTED, f"group {prepared.group} shows its marker, which only its commit does"
        )
    if is_open:
        return Standing(
            stands=Stands.OPEN,
            told=f"its coordinator has it as {state.transaction_state}, prepared and neither committed nor aborted",
            blocks=_blocks(starts),
            until=_until(state),
        )
    if state.error_code == NONE and state.transaction_state in _ENDING:
        word = _ENDING[state.transaction_state]
        return Standing(
            stands=Stands.UNKNOWN,
            told=f"its coordinator has a transaction of this id that is just being {word}",
        )
    not_open = f"its coordinator does not have it open any more, and group {prepared.group} shows"
    if shown == prepared.predecessor:
        told = f"{not_open} the marker of before it"
        # A commit asks them, too, before it takes it for lost.
        found = own_rows.ends(admin, prepared)
        if Stands.COMMITTED not in found:
            return _ended(Stands.GONE, told)
        told = f"{told}, but its rows are committed, as at {found.pop(Stands.COMMITTED)}"
        if found:
            return Standing(stands=Stands.UNKNOWN, told=f"{told}, and not all: {', '.join(found.values())}")
        return _ended(Stands.COMMITTED, told)
    if shown is None:
        stands, told = own_rows.ended(admin, prepared)
        told = f"{not_open} no marker; {told}"
        return Standing(stands=stands, told=told) if stands is Stands.UNKNOWN else _ended(stands, told)
    return Standing(
        stands=Stands.UNKNOWN,
        told=f"{not_open} the marker {shown}, which is neither its own nor the one of before it",
    )


def _unnamed(state: Any) -> Standing:  # noqa: ANN401
    if state.error_code != NONE or state.transaction_state != standing.ONGOING:
        return _ended(Stands.GONE, "its coordinator has nothing open under this id")
    topics = [f"{topic.topic}-{partition}" for topic in state.topics for partition in topic.partitions]
    shown = ", ".join(topics[:_NAMED_MAX]) + _more(topics)
    return Standing(
        stands=Stands.OPEN,
        told=f"its coordinator has it as {state.transaction_state}, in {shown}",
        blocks="readers of committed rows stop at its first row in each of these partitions",
        until=_until(state),
    )


def _ended(stands: Stands, told: str) -> Standing:
    return Standing(
        stands=stands, told=told, blocks="nothing: it is not open in any partition", until="it has ended"
    )


def _blocks(starts: Mapping[tuple[str, int], int]) -> str:
    held = sorted((*place, start) for place, start in starts.items() if start != _NOT_OPEN)
    shown = ", ".join(
        f"offset {start} of {topic}-{partition}" for topic, partition, start in held[:_NAMED_MAX]
    )
    if not held:
        return ""
    return (
        f"readers of committed rows (isolation.level=read_committed) stop at {shown}{_more(held)}: the last stable "
        "offset is not above that while it is open"
    )


def _more(several: list[Any]) -> str:
    return f" and {len(several) - _NAMED_MAX} more" if len(several) > _NAMED_MAX else ""


def _until(state: Any) -> str:  # noqa: ANN401
    begun, limit_ms = int(state.transaction_start_time_ms), int(state.transaction_timeout_ms)
    if begun < 0:
        return ""
    return (
        f"until {time_of(begun + limit_ms)} by the brokers' clocks, {limit_ms / 1000:g} s after it began: then its "
        "coordinator aborts it"
    )
