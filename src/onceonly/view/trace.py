"""What the event log adds to a view: when each slot began, when a transaction was committed, what was swept. Pure.

The log stays the order: a step of the event log is drawn between the steps of the log that it was between, on the clock
that these were drawn by. ``tries`` tells those that no decision came of.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from onceonly.view.chapter import UNTOLD
from onceonly.view.clock import between
from onceonly.view.telling import moment, took
from onceonly.view.tries import with_tries
from onceonly.view.values import Bar, Epoch, Mark, View, What, Work, lane_of
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_BESIDE: Final = frozenset({What.BARRIER, What.NOTED})
"""Times of the file system, which order nothing."""
_DONE: Final = frozenset({"Committed", "AlreadyCommitted"})
_COMMITS: Final = {
    "handle.committed": (What.COMMITTED, "committed"),
    "handle.resolved": (What.RECOVERED, "committed by a later run"),
}


def of_query(view: View, lines: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the lines of the event log that are of a view's query."""
    return [line for line in lines if line.get("query") == view.query]


def with_events(view: View, lines: Sequence[Mapping[str, Any]]) -> View:
    """Return a view in which stands what the event log knows of its epochs; ``lines`` are those of its query."""
    by_epoch: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for line in lines:
        by_epoch[int(line["epoch"])].append(line)
    epochs: list[Epoch] = []
    floor: float | None = None
    for each in view.epochs:
        known = by_epoch[each.number] if not each.folded else []
        found = _with_events(each, known, floor, is_down=view.run == "down") if known else each
        epochs.append(found)
        places = [mark.place for mark in found.marks if mark.what not in _BESIDE and mark.place is not None]
        floor = max(places, default=floor)
    lanes = dict.fromkeys((*view.lanes, *(mark.lane for each in epochs for mark in each.marks)))
    return replace(view, epochs=tuple(epochs), lanes=tuple(lanes))


def _with_events(
    epoch: Epoch, lines: Sequence[Mapping[str, Any]], floor: float | None, *, is_down: bool
) -> Epoch:
    late = _late(epoch)
    commits = _as_answered([line for line in lines if line["kind"] in _COMMITS])
    done = [line for line in commits if line.get("outcome") in _DONE]
    told = {(line["sink"], line["transaction"]): line for line in reversed(done)}  # of several, the first
    begun: dict[tuple[str, int], list[float]] = defaultdict(list)
    for line in lines:
        if line["kind"] == "slot.begun":
            begun[line["sink"], int(line["slot"])].append(float(line["t"]) + late)
    marks = [_commit(mark, epoch, told.get((mark.sink, mark.transaction)), late) for mark in epoch.marks]
    found = replace(
        epoch,
        marks=(*marks, *_swept(lines, late)),
        bars=tuple(_begun(bar, begun) for bar in epoch.bars),
        slow=epoch.slow.replace(UNTOLD, _committed_last(epoch, told)),
    )
    return with_tries(found, lines, late=late, floor=floor, is_down=is_down)


def _as_answered(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the lines of commits with the moments of the answers: they are written together, after the last one."""
    last: dict[tuple[str, ...], int] = defaultdict(int)
    for line in lines:
        last[_phase(line)] = max(last[_phase(line)], _after_ms(line) or 0)
    found: list[Mapping[str, Any]] = []
    for line in lines:
        after = _after_ms(line)
        early = 0.0 if after is None else (last[_phase(line)] - after) / 1000
        found.append({**line, "t": float(line["t"]) - early})
    return found


def _committed_last(epoch: Epoch, told: Mapping[tuple[str, str], Mapping[str, Any]]) -> str:
    """Say which slot's transaction of several was committed last, where all of them tell of one commit phase."""
    record = next((mark.record for mark in reversed(epoch.marks) if mark.what is What.DECISION), "")
    marks = [mark for mark in epoch.marks if mark.what is What.COMMITTED and mark.record == record]
    lines = [told.get((mark.sink, mark.transaction), {}) for mark in marks]
    spans = [_after_ms(line) for line in lines]
    known = sorted({span for span in spans if span is not None})
    if None in spans or not known or len(set(map(_phase, lines))) > 1:
        return UNTOLD
    if len(known) == 1:
        return f"its {n(len(marks), 'transaction')} were committed together"
    last = [mark for mark, span in zip(marks, spans, strict=True) if span == known[-1]]
    more = f" and {len(last) - 1} more were" if len(last) > 1 else " was"
    lead = took((known[-1] - known[-2]) / 1000)
    return f"slot {last[0].slot} of {last[0].sink}{more} committed last, {lead} after the one before"


def _phase(line: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the commits of one phase have in common."""
    return tuple(str(line.get(name, "")) for name in ("incarnation", "plan", "kind"))


def _after_ms(line: Mapping[str, Any]) -> int | None:
    """Return how long a commit phase had gone on as a transaction of it was answered; None where nobody noted that."""
    found = line.get("after_ms")
    return found if isinstance(found, int) else None


def _commit(mark: Mark, epoch: Epoch, told: Mapping[str, Any] | None, late: float) -> Mark:
    """Say of a transaction that is committed when that was first told; of any other one the log alone speaks."""
    if mark.what is not What.COMMITTED:
        return mark
    if told is None:
        return mark
    what, said = _COMMITS[told["kind"]]
    at = float(told["t"])
    decided = _place(epoch, What.DECISION, mark.record)
    place, skewed = between(at + late, decided, _place(epoch, What.RECEIPT))
    words = f"{mark.transaction}: {said}, told of at {moment(at)}"
    return replace(mark, what=what, at=at, place=place, skewed=skewed, told=words)


def _begun(bar: Bar, begun: Mapping[tuple[str, int], Sequence[float]]) -> Bar:
    """Let a slot's bar begin where its attempt did, not where its plan was handed out."""
    if bar.work is not Work.WRITING or bar.slot is None or bar.end is None:
        return bar
    places = [place for place in begun.get((bar.sink, bar.slot), ()) if bar.begin <= place <= bar.end]
    return replace(bar, begin=max(places)) if places else bar


def _swept(lines: Sequence[Mapping[str, Any]], late: float) -> list[Mark]:
    """Return what a sweep aborted under a link of the epoch."""
    return [
        Mark(
            what=What.SWEPT, lane=lane_of(str(line["sink"])), place=float(line["t"]) + late, at=float(line["t"]),
            told=f"{line['transaction']}: left open by an earlier try, fenced and aborted", sink=str(line["sink"]),
            transaction=str(line["transaction"]),
        )
        for line in lines
        if line["kind"] == "swept"
    ]  # fmt: skip


def _late(epoch: Epoch) -> float:
    """Return by how much the epoch's decision is drawn later than its clock said."""
    return next(
        (
            mark.place - mark.at
            for mark in epoch.marks
            if mark.what in {What.DECISION, What.ABORT} and mark.place is not None and mark.at is not None
        ),
        0.0,
    )


def _place(epoch: Epoch, what: What, record: str = "") -> float | None:
    return next(
        (mark.place for mark in epoch.marks if mark.what is what and record in {"", mark.record}), None
    )
