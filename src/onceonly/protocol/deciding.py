"""Rows of the table after the votes: the decision, its commits, and giving up."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.checksums import added
from onceonly.model import Guarantee, LinkKind, Lost, Mode, letters_of
from onceonly.protocol import states as s
from onceonly.protocol.messages import CheckPrepared, PutLink, Report, ReportKind, StopReason
from onceonly.protocol.moves import (
    aborts,
    commits,
    count,
    differences,
    new_link,
    repeat,
    settle,
    stop,
    sweep,
    undecidable,
)
from onceonly.protocol.planning import moved
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onceonly.model import Plan, Vote
    from onceonly.protocol import messages as m
    from onceonly.protocol.states import Move


def voted(state: s.Running, event: m.VotesCollected) -> Move:
    """All slots voted commit: check and decide, compare (drain), or match with what was lost (tentative)."""
    plan = state.plan
    foreign = _foreign(plan, event.votes)
    if foreign:
        return stop(StopReason.FOREIGN_VOTE, foreign)
    if plan.mode is Mode.DRAIN:
        return _compare(plan, event.votes)
    if plan.mode is Mode.TENTATIVE:
        return _repair(plan, event.votes)
    return _decide(plan, event.votes)


def _compare(plan: Plan, votes: tuple[Vote, ...]) -> Move:
    """See whether a replay gives what was decided. Spark has not noted the epoch yet, and after it has, it is over."""
    if plan.decided is not None and plan.decided.kind is LinkKind.SKIPPED:
        return s.Done(), ()  # whatever rows it has are none of this log's
    decided = plan.decided.output if plan.decided is not None else ()
    differs = difference(decided, votes)
    message = f"chk-{plan.epoch} was replayed with other rows: {differs}"
    if differs and plan.strict:
        return stop(StopReason.REPLAY, message)
    return s.Done(), (Report(ReportKind.REPLAY_DIFFERS, message),) if differs else ()


def _repair(plan: Plan, votes: tuple[Vote, ...]) -> Move:
    matched, rest, missing = match(plan.lost, votes)
    owed = (*plan.carried, *plan.lost)
    differs = difference(owed, votes)
    if missing or differs:
        refused = "" if differs else difference(_letters(plan, owed), _letters(plan, votes))
        # Nobody but this plan could ever name these handles, so aborting them needs no link.
        state, stopping = (
            stop(StopReason.LETTERS, f"refused: {refused}")
            if refused
            else stop(StopReason.MISMATCH, missing or differs)
        )
        return state, (*aborts(votes), *stopping)
    return _decide(plan, matched, rest)


def _letters(plan: Plan, votes: Iterable[Vote]) -> list[Vote]:
    """Return the votes for rows that sinks have refused which lost something: no other one says what it refuses."""
    lost = {letters_of(vote.sink) or vote.sink for vote in plan.lost}
    return [vote for vote in votes if letters_of(vote.sink) in lost]


def _decide(plan: Plan, votes: tuple[Vote, ...], rest: tuple[Vote, ...] = ()) -> Move:
    link = replace(
        new_link(plan, LinkKind.COMMIT, run=votes[0].run if votes else ""), votes=votes, carried=plan.carried
    )
    return s.Checking(plan, link, rest), (CheckPrepared(plan, link),)


def checked(state: s.Checking, event: m.Checked) -> Move:
    """In time: put the decision. Late, or prepared in what is gone: stop before it; the epoch is run again."""
    limit_s = state.plan.limit_s
    if limit_s is not None and event.age_s > limit_s:
        return stop(StopReason.LATE, f"it took {event.age_s:.1f} s, and its limit is {limit_s:g} s")
    if event.expiring:
        return stop(StopReason.LATE, "; ".join(event.expiring))
    for sink, now in event.settings.items():
        changed = differences(state.link.settings.get(sink, {}), now)
        if changed:
            return stop(StopReason.EXCHANGED, f"sink {sink}: {changed}")
    if event.unsynced:
        return stop(StopReason.UNSYNCED, event.unsynced)
    read = event.inputs
    if read is not None and state.plan.inputs not in {"", read.digest}:
        return stop(
            StopReason.MOVED,
            f"offsets/{state.plan.epoch}: planned {list(state.plan.barrier)}, now {list(read.barrier or ())}",
        )
    strayed = moved(state.plan.epoch, event.span, read)
    if strayed is not None:
        return strayed
    link, rest = replace(state.link, inputs=read), state.rest
    if event.votes is not None:
        rest = (*rest, *(vote for vote in link.votes if vote not in event.votes))
        link = replace(link, votes=event.votes)
    return s.Deciding(state.plan, link, rest), (PutLink(link),)


def decided(state: s.Deciding, event: m.LinkPersisted) -> Move:
    """The decision is durable, so its commits may be sent."""
    link = event.link
    losers = aborts(state.rest)
    if not link.pending:
        done, commands = settle(link, plan=state.plan.id, outcomes={})
        return done, (*losers, *commands)
    return s.Committing(state.plan, link, len(link.pending)), (*losers, *commits(link))


def committing(state: s.Committing, event: m.Resolved) -> Move:
    """Collect the outcomes of the commits; with the last one, settle the epoch or stop."""
    outcomes = (*state.outcomes, (event.vote, event.outcome))
    if len(outcomes) < state.expected:
        return s.Committing(state.plan, state.link, state.expected, outcomes), ()
    if state.link.guarantee is not Guarantee.AT_MOST_ONCE:
        stopped = undecidable(outcomes)
        if stopped:
            return stopped
        lost = [outcome for _, outcome in outcomes if isinstance(outcome, Lost)]
        if lost:
            return stop(StopReason.LOST, f"{len(lost)} of {len(outcomes)}: {lost[0].proof}")
    return settle(state.link, plan=state.plan.id, outcomes=count(outcomes))


def end_swept(_state: s.SweepingEnd, _event: m.Event) -> Move:
    """Leave the try: the epoch is settled, whatever came of the sweep."""
    # A sweep that failed is tried again after the next epoch; losers may vote late, too.
    return s.Done(), ()


def abandoned(state: s.Abandoning, event: m.ChainRead) -> Move:
    """Void a try that was not decided; leave alone what was."""
    plan = state.plan
    if len(event.links) != plan.index or plan.mode is Mode.DRAIN:
        # Decided (a commit failed after its link), claimed by a newer run, or nothing to give up.
        return s.Done(), ()
    if plan.mode is Mode.TENTATIVE:
        link = repeat(plan, run=state.run, reason=state.reason)
    else:
        link = new_link(plan, LinkKind.ABORT, run=state.run, reason=state.reason)
    return s.Voiding(link), (PutLink(link),)


def voided(_state: s.Voiding, event: m.LinkPersisted) -> Move:
    """Nobody can decide this try any more, so what it left open may be swept."""
    return s.SweepingEnd(event.link), (sweep(event.link),)


def not_voided(_state: s.Voiding, _event: m.LinkTaken) -> Move:
    """Somebody else has had the last word."""
    return s.Done(), ()


def _foreign(plan: Plan, votes: tuple[Vote, ...]) -> str:
    for vote in votes:
        if (vote.plan, vote.epoch) != (plan.id, plan.epoch):
            return f"a vote of plan {vote.plan}, chk-{vote.epoch} came to plan {plan.id}, chk-{plan.epoch}"
    slots = Counter((vote.sink, vote.slot) for vote in votes)
    twice = [slot for slot, count in slots.items() if count > 1]
    return f"two votes for (sink, slot) {twice[0]}" if twice else ""


# --- what a replay gave, beside what was decided ------------------------------------------------------------


def totals(votes: Iterable[Vote]) -> dict[str, tuple[int, str]]:
    """Return (rows, checksum) per sink that has rows, whatever the slots they were dealt to.

    All checksums of a decision are of one algorithm, whose name stands before the digits. Dead letters count as rows
    of the sink that refused them: a replay that writes nothing does not know which those are.
    """
    rows: dict[str, int] = defaultdict(int)
    sums: dict[str, list[str]] = defaultdict(list)
    for vote in votes:
        sink = letters_of(vote.sink) or vote.sink
        rows[sink] += vote.rows
        sums[sink].append(vote.checksum)
    return {sink: (count, added(sums[sink])) for sink, count in rows.items() if count}


def difference(decided: Iterable[Vote], replayed: Iterable[Vote]) -> str:
    """Say in words where a replay differs from the decision; empty where it does not."""
    before, now = totals(decided), totals(replayed)
    return "; ".join(
        f"sink {sink}: decided {_words(before.get(sink))}, replayed {_words(now.get(sink))}"
        for sink in sorted(before.keys() | now.keys())
        if before.get(sink) != now.get(sink)
    )


def match(lost: Iterable[Vote], tentative: Iterable[Vote]) -> tuple[tuple[Vote, ...], tuple[Vote, ...], str]:
    """Find for each lost vote a tentative one with the same rows: (matched, rest, what is missing).

    Slots are not compared: a replay may deal the same rows to other slots. Two votes with the same sink, count
    and checksum hold the same rows, so either may stand for the other.
    """
    wanted = Counter(_rows_of(vote) for vote in lost)
    matched: list[Vote] = []
    rest: list[Vote] = []
    for vote in tentative:
        key = _rows_of(vote)
        if vote.handle is not None and wanted[key] > 0:
            wanted[key] -= 1
            matched.append(vote)
        else:
            rest.append(vote)
    missing = "; ".join(
        f"sink {sink}: {count} x ({n(rows, 'row')}, checksum {checksum})"
        for (sink, rows, checksum), count in sorted(wanted.items())
        if count
    )
    return tuple(matched), tuple(rest), missing


def _rows_of(vote: Vote) -> tuple[str, int, str]:
    return vote.sink, vote.rows, vote.checksum


def _words(total: tuple[int, str] | None) -> str:
    return "no rows" if total is None else f"{n(total[0], 'row')} (checksum {total[1]})"
