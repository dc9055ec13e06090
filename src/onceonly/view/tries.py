"""What the event log alone knows of an epoch: tries that no decision came of, until they died or gave up. Pure.

A try is all that was done by one plan. What the decision log tells of it is not told again, and nothing of it is ever
drawn as committed. After the last line of a try that was cut off, nothing is known of it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from onceonly.model import LinkKind
from onceonly.options import without_secrets
from onceonly.view.clock import between
from onceonly.view.telling import moment
from onceonly.view.values import DRIVER, EXECUTORS, Bar, Epoch, Mark, What, Work, lane_of
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_LINKS: Final = frozenset({What.DECISION, What.ABORT, What.SKIPPED})
_WORKS: Final = frozenset({"run", "tentative"})
"""The modes of a plan that has rows written; the others finish what was decided."""
_ENDED: Final = frozenset({"epoch.aborted", "link.taken"})
"""What a try says last that was not cut off."""
_BY_SLOT: Final = {
    "slot.begun": "began its transaction",
    "slot.refused": "had {rows} refused",
    "slot.failed": "failed with {error}",
    "slot.prepared": "prepared its transaction",
}
_BY_DRIVER: Final = {
    "votes.collected": "{votes} collected",
    "epoch.checked": "what it read was compared with its plan",
    "link.taken": "another run had put its link {link}: this try could decide no more",
    "epoch.aborted": "the try was given up",
    "handle.aborted": "{transaction} was aborted",
}


@dataclass(frozen=True, slots=True)
class _Try:
    """One try, between the links that it was between in the log: its own claim, and the one that closed it."""

    lines: tuple[Mapping[str, Any], ...]
    plan: str
    claim: Mark | None
    closing: Mark | None

    @property
    def record(self) -> str:
        return f"event log, plan {self.plan[-8:]}"


def with_tries(
    epoch: Epoch, lines: Sequence[Mapping[str, Any]], *, late: float, floor: float | None, is_down: bool
) -> Epoch:
    """Return an epoch in which stand the tries that were not decided, as far as ``lines``, of the epoch, tell of them.

    Their clocks are drawn ``late`` seconds later, and not before ``floor``; ``is_down`` says that no run goes on.
    """
    links = [mark for mark in epoch.marks if mark.what in _LINKS]
    for each in _undecided(epoch, lines, links):
        told = _Told(epoch, each, late, floor, is_down=is_down)
        epoch = replace(epoch, marks=_inserted(epoch.marks, told.marks, each), bars=(*epoch.bars, *told.bars))
    return epoch


def _undecided(epoch: Epoch, lines: Sequence[Mapping[str, Any]], links: Sequence[Mark]) -> Iterator[_Try]:
    decided = {mark.plan for mark in links if mark.what is What.DECISION}
    votes = {mark.record: mark.plan for mark in epoch.marks if mark.what is What.VOTE}
    decided |= {votes[mark.record] for mark in links if mark.what is What.DECISION and mark.record in votes}
    by_plan: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for line in lines:
        by_plan[str(line.get("plan", ""))].append(line)
    for plan, own in by_plan.items():
        planned = next((line for line in own if line["kind"] == "epoch.planned"), None)
        writes = planned["mode"] in _WORKS if planned is not None else any(_is_slots(line) for line in own)
        if not plan or plan in decided or not writes:
            continue
        began = float((planned or own[0])["t"])
        claims = [
            f"link {epoch.number}.{line['index']}"
            for line in own
            if line["kind"] == "link.persisted" and line.get("link") == LinkKind.ABORT and float(line["t"]) <= began
        ]  # fmt: skip
        number = next((place for place, mark in enumerate(links) if mark.record in claims[-1:]), None)
        after = 0 if number is None else number + 1
        if claims and number is None:
            after = len(links)  # it has claimed after all that was read of the log
        yield _Try(
            tuple(own),
            plan,
            None if number is None else links[number],
            links[after] if after < len(links) else None,
        )


def _is_slots(line: Mapping[str, Any]) -> bool:
    return line.get("actor") == "executor"


def _inserted(marks: tuple[Mark, ...], new: Sequence[Mark], of: _Try) -> tuple[Mark, ...]:
    """Put the marks of a try before those of the link that closed it."""
    record = of.closing.record if of.closing is not None else None
    place = next((place for place, mark in enumerate(marks) if mark.record == record), len(marks))
    return (*marks[:place], *new, *marks[place:])


class _Told:
    """Tells one try; made and used once."""

    def __init__(self, epoch: Epoch, of: _Try, late: float, floor: float | None, *, is_down: bool) -> None:
        self.marks: list[Mark] = []
        self.bars: list[Bar] = []
        self._of, self._late = of, late
        self._begin = of.claim.place if of.claim is not None and of.claim.place is not None else floor
        self._end = of.closing.place if of.closing is not None else None
        is_over = of.closing is not None or is_down
        self._fate = "no decision came of it" if is_over else "no decision of it is known yet"
        own = of.closing is not None and of.closing.plan == of.plan
        # A try that put its own ABORT has told the log of its plan and its votes.
        self._known = {
            (mark.what, mark.sink, mark.slot) for mark in epoch.marks if own and mark.record == of.closing.record
        } if of.closing is not None else set()  # fmt: skip
        for line in of.lines:
            self._line(line)
        self._slots()
        if is_over and not own:
            self._cut()

    def _line(self, line: Mapping[str, Any]) -> None:
        kind, sink, slot = str(line["kind"]), str(line.get("sink", "")), int(line.get("slot", -1))
        who = f"slot {slot} of {sink}"
        if kind == "epoch.planned" and (What.PLAN, "", None) not in self._known:
            self._add(line, What.PLAN, DRIVER, f"plan of a try handed out; {self._fate}")
        elif kind == "slot.voted" and (What.VOTE, sink, slot) not in self._known:
            told = f"{who} voted to commit: {_rows(line)}; {self._fate}"
            self._add(line, What.VOTE, EXECUTORS, told, sink=sink, slot=slot)
        elif kind in _BY_SLOT:
            said = _BY_SLOT[kind].format(rows=_rows(line), error=line.get("error", "an error"))
            self._add(line, What.HEARD, EXECUTORS, f"{who} {said}", sink=sink, slot=slot)
        elif kind in _BY_DRIVER:
            said = _BY_DRIVER[kind].format(
                votes=n(int(line.get("votes", 0)), "vote"), link=line.get("index", ""),
                transaction=line.get("transaction", ""),
            )  # fmt: skip
            lane = lane_of(sink) if sink else DRIVER
            self._add(line, What.HEARD, lane, said, sink=sink, slot=slot if sink and slot >= 0 else None)
        elif kind == "link.persisted" and line.get("link") == LinkKind.COMMIT:
            said = f"link {line.get('index', '')} was put, but the log, as it was read, does not have it"
            self._add(line, What.HEARD, DRIVER, said)

    def _add(
        self,
        line: Mapping[str, Any],
        what: What,
        lane: str,
        told: str,
        *,
        sink: str = "",
        slot: int | None = None,
    ) -> None:
        at = float(line["t"])
        place, skewed = between(at + self._late, self._begin, self._end)
        rows = str(line.get("rows", ""))
        by = " ".join(str(line[name]) for name in ("actor", "incarnation") if name in line)
        self.marks.append(
            Mark(
                what=what, lane=lane, told=without_secrets(told), place=place, at=at, skewed=skewed,
                record=self._of.record, by=by, sink=sink, slot=slot,
                rows=int(rows) if what is What.VOTE and rows.isdecimal() else None,
                transaction=str(line.get("transaction", "")), plan=self._of.plan,
            )
        )  # fmt: skip

    def _slots(self) -> None:
        """Draw a bar for each attempt at a slot; one that was not heard of again goes on to the link that closed it."""
        attempts: dict[tuple[str, int, str], list[Mapping[str, Any]]] = defaultdict(list)
        for line in self._of.lines:
            if _is_slots(line):
                key = str(line.get("sink", "")), int(line.get("slot", -1)), str(line.get("attempt", ""))
                attempts[key].append(line)
        for (sink, slot, _), lines in attempts.items():
            begun = next((line for line in lines if line["kind"] == "slot.begun"), None)
            if begun is None or (What.VOTE, sink, slot) in self._known:
                continue
            ended = next((line for line in lines if line["kind"] in {"slot.voted", "slot.failed"}), None)
            work, end = (Work.UNHEARD, self._end) if ended is None else (Work.WRITING, self._place(ended))
            done = {"slot.voted": f"wrote and prepared {_rows(ended or {})}", "slot.failed": "failed"}
            told = f"slot {slot} of {sink} " + (
                "had begun its transaction, and nothing more was heard of it" if ended is None
                else f"{done[str(ended['kind'])]}; {self._fate}"
            )  # fmt: skip
            begin = self._place(begun)
            self.bars.append(
                Bar(work=work, lane=EXECUTORS, told=told, begin=begin, end=end, sink=sink, slot=slot)
            )

    def _place(self, line: Mapping[str, Any]) -> float:
        place = between(float(line["t"]) + self._late, self._begin, self._end).place
        assert place is not None  # noqa: S101  it has a clock
        return place

    def _cut(self) -> None:
        """Say where nothing more is known of the try: not when it died, which nobody noted."""
        of, last = self._of, self._of.lines[-1]
        decides = any(
            each["kind"] == "link.persisted" and each.get("link") == LinkKind.COMMIT for each in of.lines
        )
        if decides or any(each["kind"] in _ENDED for each in of.lines):
            return
        closed = (
            f"; {of.closing.record} closed it"
            if of.closing is not None
            else ", and nothing has closed it yet"
        )
        told = f"a try was cut off undecided: it was last heard of at {moment(float(last['t']))}{closed}"
        self.marks.append(
            Mark(
                what=What.CUT, lane=DRIVER, told=told, place=self._place(last), record=of.record, plan=of.plan
            )
        )


def _rows(line: Mapping[str, Any]) -> str:
    rows = str(line.get("rows", ""))
    return n(int(rows), "row") if rows.isdecimal() else "rows"
