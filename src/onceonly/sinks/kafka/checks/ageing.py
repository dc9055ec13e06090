"""Whether prepared transactions will live until they are committed. Driver; only looks.

The broker aborts a transaction that is open for longer than its time-out. What it says of a transaction is no proof
(a committed one may be shown as aborted, see the committer), so it leads to one thing only: the epoch is given up
before it is decided. Once it is decided, the marker tells what became of it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from onceonly import background
from onceonly.errors import UnavailableError
from onceonly.sinks.kafka.outcomes.standing import describe, fallen, is_open
from onceonly.sinks.kafka.prepared import Prepared
from onceonly.sinks.kafka.wire.answers import ID_NOT_FOUND

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onceonly.model import Handle
    from onceonly.sinks.kafka.wire.admin import Admin

ASKED_FROM = 0.5
"""The share of the time-out from which on the broker is asked: 7.5 of the usual 15 minutes."""
REFUSED_FROM = 0.8
"""The share of the time-out from which on a transaction is too old to be decided: 3 of 15 minutes are left."""

# For all transactions of an epoch together; less than all sinks have.
_ASK_S = 20.0
_THREADS_MAX = 16
_NAMED_MAX = 3


def expiring(admin: Admin, handles: Sequence[Handle], facts: Mapping[str, str | int], age_s: float) -> str:
    """Say which transactions are gone or about to be dropped; empty where nothing speaks against them.

    None of them is older than ``age_s``, so a young epoch costs no question. Many are asked for at a time. Raises
    ``UnavailableError`` after bounded time, ``ConfigurationError`` for a missing permission.
    """
    timeout_s = int(facts.get("transaction_timeout_ms", 0)) / 1000
    if not handles or not timeout_s or age_s < ASKED_FROM * timeout_s:
        return ""
    deadline = time.monotonic() + _ASK_S

    def ask(handle: Handle) -> str:
        return _why(admin, Prepared.of(handle), timeout_s, age_s, deadline)

    answers = background.spread("onceonly-age", ask, handles, threads_max=_THREADS_MAX)
    found = [why for why in answers if why]
    named = "; ".join(found[:_NAMED_MAX])
    return f"{len(found)} of {len(handles)} transactions: {named}" if found else ""


def _why(admin: Admin, prepared: Prepared, timeout_s: float, age_s: float, deadline: float) -> str:
    name = prepared.transactional_id
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise UnavailableError(
            f"Kafka did not describe all transactions of the epoch within {_ASK_S:g} s; {name} was not asked for.",
            next_step="see that the brokers are not overloaded; the query may be restarted",
        )
    state = admin.patiently(left_s, f"description of {name}", lambda: describe(admin, name))
    if state.error_code == ID_NOT_FOUND:
        return f"{name} is not known to Kafka any more"
    if not is_open(state, prepared):
        return f"{name} is not open any more: Kafka shows {state.transaction_state}"
    # The broker's clock against ours, which may differ. Then the epoch's own age counts: it is never less.
    told_s = time.time() - state.transaction_start_time_ms / 1000
    lived_s = told_s if 0 <= told_s <= age_s else age_s
    if lived_s < REFUSED_FROM * timeout_s:
        # Old enough for somebody to have taken it for a hanging one.
        left_s = max(deadline - time.monotonic(), 0)
        why = admin.patiently(left_s, f"partitions of {name}", lambda: fallen(admin, prepared))
        return f"{name}: {why}" if why else ""
    return (
        f"{name} is {lived_s:.1f} s old, and Kafka drops it at {timeout_s:g} s (kafka.transaction.timeout.ms)"
    )
