"""Rows that a target refuses beside all others of their epoch, on their way to the dead letters.

Driver, before a decision; operator's process, after one. A transaction that is prepared cannot be changed, so a new one
takes its place: the rows that the target takes are staged once more, and the others are prepared as dead letters.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

from onceonly import events, failpoints
from onceonly.errors import ConfigurationError, LogError, OnceonlyError, RecordRefusedError
from onceonly.executor import diverted
from onceonly.executor.dead_letters import Letters, too_many
from onceonly.families.staged import StagedSink
from onceonly.model import Mode, Vote, handles_of, letters_name, letters_of
from onceonly.ports import WriteContext
from onceonly.rows.checksum import RowChecksum, require_comparable
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from onceonly.coordinator.coordinator import Participant
    from onceonly.model import Handle, Link, Plan
    from onceonly.ports import Refused, Sink

log = logging.getLogger("onceonly")

_BY_DRIVER = "driver"


def staged_rows(sink: StagedSink, vote: Vote, handle: Handle) -> pa.RecordBatch:
    """Return the rows of a transaction that were voted for.

    Raises ``ConfigurationError`` where they are gone, ``LogError`` where they are others.
    """
    import pyarrow as pa

    staged = sink.staged([handle]).get(handle.transaction)
    if staged is None:
        raise ConfigurationError(
            f"what was staged as {handle.transaction} is gone",
            next_step="start the query: it writes the rows again",
        )
    rows = pa.concat_batches(list(staged.batches()))
    checksum = RowChecksum()
    checksum.add(rows)
    require_comparable([vote])
    if (checksum.rows, checksum.value) != (vote.rows, vote.checksum):
        raise LogError(
            f"what is staged as {handle.transaction} are not the rows that were voted for",
            next_step="do not touch it by hand; see who has, and restore it",
        )
    return rows


def divert(
    sink: StagedSink,
    context: WriteContext,
    rows: pa.RecordBatch,
    refused: Sequence[Refused],
    handle: Handle,
    letters: Letters,
) -> tuple[Vote, Vote]:
    """Stage those of a transaction's rows that are taken, and prepare the others as letters; return a vote for each.

    ``handle`` is theirs, and says which rows of its slot are letters already; ``letters`` have a ``free_slot``.
    """
    import numpy as np
    import pyarrow as pa

    places = [each.row for each in refused]
    kept = rows.take(pa.array(np.setdiff1d(np.arange(rows.num_rows), places)))
    checksum = RowChecksum()
    checksum.add(kept)
    before = diverted.numbers_without(handle)
    numbers = np.setdiff1d(np.arange(rows.num_rows + len(before)), before)
    letters.take(rows, refused, numbers[places].tolist())
    letters.prepare()

    def vote(of: WriteContext, counted: RowChecksum, made: Handle | None) -> Vote:
        return Vote(
            sink=of.sink, epoch=of.epoch, slot=of.slot, plan=of.plan, run=of.run, attempt=of.attempt,
            rows=counted.rows, checksum=counted.value, handle=made, stamp=events.stamp(),
        )  # fmt: skip

    staged = sink.stage_again(context, kept, handle) if kept.num_rows else None
    staged = diverted.without(staged, [*before, *letters.numbers])
    return vote(context, checksum, staged), vote(letters.context, letters.checksum, letters.handle)


class Rehearsal:
    """Asks the sinks of an epoch whether they will take it, and diverts what one of them does not. Driver.

    ``sinks`` are those that are asked in time, by the names of their ``participants``.
    """

    def __init__(
        self, query: str, participants: Mapping[str, Participant], sinks: Mapping[str, Sink]
    ) -> None:
        self._query = query
        self._participants = participants
        self._sinks = sinks

    def votes(self, plan: Plan, link: Link) -> tuple[Vote, ...] | None:
        """Return the votes that are to be decided in place of the link's, None where all sinks will take those.

        Once a try, right before the decision. What is prepared for other votes and not decided is swept. Raises what
        the sinks say against the epoch, with its name.
        """
        votes, handles = link.votes, handles_of(link.votes)
        mains = sorted({letters_of(name) or name for name in handles})
        # Letters last: a sink for them may have some by then.
        for name in (*mains, *map(letters_name, mains)):
            try:
                self._ask(name, plan, handles.get(name))
            except RecordRefusedError as error:
                votes = self._diverted(name, plan, link, votes, error)
                handles = handles_of(votes)
                self._ask(name, plan, handles.get(name))
        return None if votes is link.votes else votes

    def _ask(self, name: str, plan: Plan, handles: Sequence[Handle] | None) -> None:
        if not handles:
            return
        try:
            self._sinks[name].rehearse(handles, plan.facts.get(name, {}))
        except OnceonlyError as error:
            raise self._named(error, name, plan) from error

    def _diverted(
        self, name: str, plan: Plan, link: Link, votes: tuple[Vote, ...], error: RecordRefusedError
    ) -> tuple[Vote, ...]:
        """Return votes by which what a sink refuses goes to the dead letters. Raises ``error`` where that cannot be."""
        sink, limit = self._participants[name].sink, self._participants[name].letters_limit
        letters = self._participants.get(letters_name(name))
        if not isinstance(sink, StagedSink) or letters is None or limit is None:
            raise error
        own = {
            vote.handle.transaction: (vote, vote.handle)
            for vote in votes
            if vote.sink == name and vote.handle
        }
        # What is repaired was decided already, by the limit of that time.
        is_run = plan.mode is Mode.RUN
        before = sum(vote.rows for vote in votes if vote.sink == letters_name(name) and is_run)
        asked = cast("StagedSink", self._sinks[name])
        try:
            refused = asked.sift([handle for _, handle in own.values()], limit - before)
        except OnceonlyError as failed:
            raise self._unsifted(name, plan, error, failed) from failed
        count = sum(map(len, refused.values()))
        if not count:
            raise error
        first = next(iter(each for some in refused.values() for each in some))
        if before + count > limit:
            raise too_many(self._query, plan.epoch, name, before + count, limit, first.why, or_more=True)
        log.warning(
            "Query %s, chk-%s: the target of sink %s does not take %s, which become dead letters; the first: %s",
            self._query, plan.epoch, name, n(count, "row"), first.why,
        )  # fmt: skip
        made: list[Vote] = []
        for transaction, (vote, handle) in own.items():
            if not refused.get(transaction):
                continue
            context = WriteContext(
                query=self._query, sink=name, run=vote.run, epoch=plan.epoch, plan=plan.id, slot=vote.slot,
                attempt=_BY_DRIVER, guarantee=link.guarantee, index=plan.index,
            )  # fmt: skip
            rows = staged_rows(sink, vote, handle)
            found, slot = refused[transaction], diverted.free_slot((*link.output, *made))
            beside = Letters(letters.sink, plan, context, limit=len(found), slot=slot)
            made += divert(sink, context, rows, found, handle, beside)
            votes = tuple(each for each in votes if each != vote)
        failpoints.hit("rehearsal.after_divert")
        return (*votes, *made)

    def _unsifted(
        self, name: str, plan: Plan, error: RecordRefusedError, failed: OnceonlyError
    ) -> OnceonlyError:
        """Return the error where nobody could tell which rows a target refuses; another try may."""
        if failed.restartable:
            return self._named(failed, name, plan)
        return RecordRefusedError(
            f"{error.what}; which rows become dead letters for it could not be told: {failed.what}",
            next_step=f"{failed.next_step}; or {error.next_step}",
        )

    def _named(self, error: OnceonlyError, name: str, plan: Plan) -> OnceonlyError:
        """Return an error with the epoch's name: a server's own sentence has none."""
        what = f"Query {self._query}, chk-{plan.epoch}, sink {name}: {error.what}"
        return type(error)(what, next_step=error.next_step)
