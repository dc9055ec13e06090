"""An abort against the log: what was decided, and is not committed yet, is given up by hand.

A decided epoch has its claim already, the link that decided it: no later one could be put before it is settled. Its
transactions are aborted and fenced, looked up once more, and then found lost by the plan, as what a target has dropped
by itself: the next start writes their rows again.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from onceonly.errors import OnceonlyError, UnavailableError
from onceonly.model import Lost, Unknown
from onceonly.operations import sinks
from onceonly.ports.standing import Stands

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onceonly.coordinator.coordinator import Participant
    from onceonly.model import Handle, Outcome
    from onceonly.operations.checkpoint_model import EpochModel
    from onceonly.ports import Sink
    from onceonly.ports.standing import Standing

_PAUSE_S = 0.1
_ENDED = frozenset({Stands.GONE, Stands.COMMITTED})


class _GivenUp:
    """A sink some of whose transactions were aborted by hand: what its commit cannot tell of these is lost.

    Only of those that the abort has fenced, and that the target then says are not committed, and never will be.
    """

    def __init__(self, sink: Sink, gone: Mapping[str, str]) -> None:
        self._sink = sink
        self._gone = gone

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  whatever the sink has
        return getattr(self._sink, name)

    def commit(self, handle: Handle) -> Outcome:
        return self._told(handle, self._sink.commit(handle))

    def commit_many(self, handles: Sequence[Handle]) -> Sequence[Outcome]:
        return list(map(self._told, handles, self._sink.commit_many(handles)))

    def _told(self, handle: Handle, outcome: Outcome) -> Outcome:
        proof = self._gone.get(handle.transaction)
        return Lost(proof) if proof is not None and isinstance(outcome, Unknown) else outcome


def aborted(
    made: Mapping[str, Participant], epoch: EpochModel, by_hand: str, *, within_s: float
) -> dict[str, Participant]:
    """Abort and fence the pending transactions of a decided epoch; return the sinks as the plan shall see them.

    What the target says is committed stays so; of what is aborted ``by_hand`` says by whom, and why. Where a target
    cannot tell how one stands, nothing of the epoch is touched. Raises ``UnavailableError`` there, and where one cannot
    be aborted, or is open still: the plan would commit it.
    """
    gone: dict[str, dict[str, str]] = {}
    pending = [(vote.sink, vote.handle) for vote in epoch.chain[-1].pending if vote.handle is not None]
    before = [sinks.standing(made.get(sink), handle, within_s=within_s) for sink, handle in pending]
    unknown = [pair for pair in zip(pending, before, strict=True) if pair[1].stands is Stands.UNKNOWN]
    if unknown:
        (sink, handle), found = unknown[0]
        raise UnavailableError(
            f"{epoch.view.name}: the sink {sink} cannot tell how transaction {handle.transaction} stands "
            f"({found.told}), so nobody could tell whether its rows are there when they are written again; nothing was "
            "aborted",
            next_step=f"see to the target and run this again; or onceonly transactions commit {epoch.view.name}",
        )
    for (sink, handle), found in zip(pending, before, strict=True):
        if found.stands is Stands.COMMITTED:
            continue  # and stays so
        after = _abort(
            made[sink],
            handle,
            f"{epoch.view.name}: transaction {handle.transaction} of the sink {sink}",
            within_s=within_s,
        )
        if after.stands is Stands.GONE:
            gone.setdefault(sink, {})[handle.transaction] = by_hand
    return {
        name: replace(each, sink=cast("Sink", _GivenUp(each.sink, gone[name]))) if name in gone else each
        for name, each in made.items()
    }


def _abort(participant: Participant, handle: Handle, what: str, *, within_s: float) -> Standing:
    """Abort a transaction, and say what is left of it: nothing, or it was committed. Raises as ``aborted``."""
    try:
        participant.sink.abort(handle)
    except Exception as error:  # whatever a sink lets slip; what was done before is still shown
        told = error.what if isinstance(error, OnceonlyError) else f"{type(error).__name__}: {error}"
        raise UnavailableError(
            f"{what} could not be aborted: {told}", next_step="see to the target and run this again"
        ) from error
    after = _after(participant, handle, within_s=within_s)
    if after.stands not in _ENDED:
        # The plan would commit what is still open.
        raise UnavailableError(
            f"{what} was aborted, and its target has it as {after.stands.value} still: {after.told}",
            next_step="see to the target and run this again",
        )
    return after


def _after(participant: Participant, handle: Handle, *, within_s: float) -> Standing:
    """Ask what is left of a transaction that was aborted; a target may take a moment to end it."""
    deadline = time.monotonic() + within_s
    while True:
        found = sinks.standing(participant, handle, within_s=within_s)
        if found.stands in _ENDED or time.monotonic() > deadline:
            return found
        time.sleep(_PAUSE_S)
