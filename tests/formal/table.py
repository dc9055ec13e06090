"""Gives the table of the protocol what a driver of the model sees, and compares what both do then.

``formal/Table.tla`` tells of each step that takes a row what stood before it and after it. Here the driver's record
and what it has read become the state and the event of the code, and the record that the model leaves becomes the move
that the table should have made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.formal.told import KINDS, NONE, barrier, expected, name, names

from onceonly import protocol as p
from onceonly.model import (
    Committed,
    Guarantee,
    Handle,
    InputFile,
    Inputs,
    Link,
    LinkKind,
    Lost,
    Mode,
    Passed,
    Plan,
    Receipt,
    RetryLater,
    Skip,
    Span,
    Unknown,
    Vote,
)
from onceonly.protocol import messages as m
from onceonly.protocol import states as s
from onceonly.protocol import transitions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.formal.told import Record, Told

Row = tuple[str, str]
LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Compared:
    """A step of the model, the rows that the code took for it, what it did in the last one, and what it should do."""

    action: str
    rows: tuple[Row, ...]
    done: tuple[Any, ...]
    due: tuple[Any, ...]

    @property
    def is_same(self) -> bool:
        if self.due[0] == "Stopped":
            return self.done[0] == "Stopped" and self.done[1][1] in self.due[1]
        return self.done == self.due

    @property
    def answer(self) -> str:
        """Name what came of the last row: the next state, or why it stops."""
        return str(self.done[1][1].name if self.done[0] == "Stopped" else self.done[0])


def compare(step: Told) -> list[Compared]:
    """Take the row, or the rows, of the code for a step of the model; none where the code has no such step."""
    action, driver, before, after, seen = step
    due = expected(action, before, after)
    return [
        Compared(action, rows, _done(move), due) for rows, move in _Driver(driver, before).take(action, seen)
    ]


# --- the model's values in the code's terms: its first epoch is 1 ---------------------------------------------


def _vote(t: Record) -> Vote:
    rows = t["r"][0] * 100 + t["r"][1] * 10 + t["s"][1]  # what is dealt to a slot, whoever writes it
    return Vote(
        sink=t["s"][0], epoch=t["e"] - 1, slot=t["s"][1], plan=_plan_id(t["d"], t["e"]), run="run", attempt=str(t["a"]),
        rows=1, checksum=f"sum:{rows:016x}", handle=Handle(transaction=name(t)),
    )  # fmt: skip


def _votes(these: Iterable[Record]) -> tuple[Vote, ...]:
    return tuple(_vote(t) for t in sorted(these, key=name))


def _plan_id(driver: int, epoch: int) -> str:
    return f"d{driver}.{epoch}"


def _inputs(epoch: int, end: int) -> Inputs:
    return Inputs() if end == NONE else Inputs(files=(_file(epoch, end),))


def _file(epoch: int, end: int) -> InputFile:
    return InputFile(name=f"offsets/{epoch - 1}", digest=str(end), text=f"v1\n{{}}\n{end}")


SETTINGS = {sink: {"path": sink} for sink in "ab"}


def _link(found: Record, epoch: int, index: int) -> Link:
    decides = found["kind"] != "ABORT"
    return Link(
        epoch=epoch - 1, index=index, kind=KINDS[found["kind"]], plan=_plan_id(*found["plan"]), run="run",
        votes=_votes(found["votes"]), carried=_votes(found["carried"]), barrier=barrier(found["end"]),
        settings=SETTINGS, inputs=_inputs(epoch, found["end"]) if decides else None,
        reason=Skip.FOREIGN if found["kind"] == "SKIPPED" else "",
    )  # fmt: skip


def _chain(seen: Record, epoch: int) -> tuple[Link, ...]:
    links = seen["chain"][epoch - 1] if epoch >= 1 else ()
    return tuple(_link(found, epoch, index) for index, found in enumerate(links))


def _receipt(seen: Record, epoch: int) -> Receipt | None:
    number = seen["receipt"][epoch - 1] if epoch >= 1 else 0
    return Receipt(epoch=epoch - 1, index=number - 1, plan="") if number else None


def _noted(seen: Record, epoch: int, read: m.ChainRead) -> Passed | None:
    """What Spark has noted of the first epoch that lies open; its user takes over what is not empty."""
    lies_open = p.open_epoch(epoch - 1, read.newest, read.last, read.last_receipt)
    if read.links or lies_open is None or lies_open + 1 not in seen["passed"]:
        return None
    end = seen["off"][lies_open + 1]
    return Passed(
        epoch=lies_open, barrier=barrier(end), unchanged=end == seen["off"][lies_open], taken=True,
        inputs=_inputs(lies_open + 1, end),
    )  # fmt: skip


class _Driver:
    """One driver of the model as the code has it."""

    def __init__(self, number: int, record: Record) -> None:
        self.record = record
        self.epoch: int = record["e"]
        # One that does not go on is an application that has put no link: the model gives a driver that starts again
        # the number that it had.
        self.application = f"d{number}" if record["goes"] or record["mode"] != "none" else f"new{number}"
        self.context = s.Context(
            epoch=self.epoch - 1, plan=f"{self.application}.{self.epoch}", run="run",
            guarantee=Guarantee.EXACTLY_ONCE, application=self.application,
            continues=_plan_id(number, self.epoch - 1) if record["goes"] else None,
            barrier=barrier(record["to"]), settings=SETTINGS, limit_s=LIMIT_S,
        )  # fmt: skip
        self.plan = Plan(
            id=_plan_id(number, self.epoch), epoch=self.epoch - 1, mode=_mode(record), index=record["at"],
            guarantee=Guarantee.EXACTLY_ONCE, barrier=barrier(record["to"]), settings=SETTINGS,
            lost=_votes(record["lost"]), carried=_votes(record["carried"]), limit_s=LIMIT_S,
            inputs=_inputs(self.epoch, record["to"]).digest,
        )  # fmt: skip

    @property
    def link(self) -> Link:
        return _link(self.record["link"], self.record["le"], self.record["at"])

    def take(self, action: str, seen: Any) -> Iterator[tuple[tuple[Row, ...], s.Move]]:  # noqa: ANN401  by the action
        """Take the step of an action: the rows, and the move of the last one."""
        if action == "Decide":
            yield self._decide(seen)
        elif action in {"Outcomes", "NoAnswer"}:
            if self.record["link"]["votes"]:  # of none, nothing is asked
                yield from self._resolve(action, seen)
        else:
            state = self._state(action, seen)
            event = self._event(action, seen)
            yield (_row(state, event),), transitions.step(state, event)

    def _state(self, action: str, seen: Any) -> s.State:  # noqa: ANN401, PLR0911  as above; one for each state
        match action:
            case "Read":
                return s.Reading(self.context)
            case "Drain":
                return s.Draining(self.context, _chain(seen, self.epoch)[-1])
            case "Abandon":
                return s.Abandoning(self.plan, "run", _votes(self.record["votes"]), "a slot failed")
            case "NoteSkip":
                return s.Skipped(self.context)
            case "Restore" | "NotRestored":
                return s.Restoring(self.context)
            case "PutReceipt":
                return s.Receipting(self.link, self.context if self.record["then"] == "resolve" else None)
            case "TaskFails":
                return s.Checking(self.plan, Link(
                    epoch=self.epoch - 1, index=self.plan.index, kind=LinkKind.COMMIT, plan=self.plan.id, run="run"
                ))  # fmt: skip
            case "Put" | "Sync":
                return self._putting()
            case _:
                return self._sweeping()

    def _putting(self) -> s.State:
        then, link = self.record["then"], self.link
        match then:
            case "claim":
                return s.Claiming(self.context, link)
            case "skip":
                return s.Skipping(self.context, link)
            case "next":
                return s.ClaimingNext(self.context, link)
            case "withdraw":
                own, wrong = self._withdrawn()
                return s.Withdrawing(self.context, wrong, own)
            case "decide":
                spared = names(self.record["link"]["votes"])
                rest = [t for t in self.record["votes"] if name(t) not in spared]
                return s.Deciding(self.plan, link, _votes(rest))
            case "void":
                return s.Voiding(link)
            case _:
                return s.Syncing(self.context, link)

    def _withdrawn(self) -> tuple[InputFile, tuple[Link, ...]]:
        files = dict(self.record["files"])
        own = _file(self.epoch, files.pop(self.epoch))
        ends = {"kind": "COMMIT", "plan": (0, 0), "votes": [], "carried": []}
        return own, tuple(_link({**ends, "end": end}, epoch, 0) for epoch, end in files.items())

    def _sweeping(self) -> s.State:
        match self.record["then"]:
            case "claim":
                return s.SweepingStart(self.context, self.link)
            case "next":
                return s.SweepingNext(self.context, self.link)
            case _:
                return s.SweepingEnd(self.link)

    def _event(self, action: str, seen: Any) -> m.Event:  # noqa: ANN401, C901, PLR0911  as above
        match action:
            case "Read":
                return self._read(seen, self.epoch)
            case "Drain":
                return self._read(seen, self.epoch + 1)
            case "Abandon":
                return m.ChainRead(_chain(seen, self.epoch), None)
            case "Put":
                return m.LinkTaken(_link(seen, self.record["le"], self.record["at"]))
            case "Sync":
                return m.LinkPersisted(self.link)
            case "SweepFails":
                return m.SweepFailed("the broker is down")
            case "Look" if not seen:
                return m.LinkTaken(_link(self.record["link"], self.record["le"], self.record["at"] + 1))
            case "TaskFails":
                return m.Checked(LIMIT_S + 1, inputs=_inputs(self.epoch, seen))
            case "PutReceipt" | "NoteSkip":
                return m.ReceiptPersisted()
            case "Restore":
                return m.InputsRestored(("offsets",))
            case "NotRestored":
                return m.InputsNotRestored("a list was too long")
            case _:
                return m.Swept(0)

    def _read(self, seen: Record, epoch: int) -> m.ChainRead:
        links, before = _chain(seen, epoch), _chain(seen, epoch - 1)
        known = [each for each in range(1, len(seen["chain"]) + 1) if seen["chain"][each - 1]]
        newest = max(known, default=None)
        last = _chain(seen, newest)[-1] if newest is not None and newest < epoch else None
        owners = [link.application for each in known for link in _chain(seen, each)]
        owns = bool(before) and before[-1].plan == self.context.continues
        read = m.ChainRead(
            links, _receipt(seen, epoch), before[-1] if before else None, _receipt(seen, epoch - 1),
            newest=None if newest is None else newest - 1, last=last,
            last_receipt=_receipt(seen, last.epoch + 1) if last is not None else None,
        )  # fmt: skip
        return m.ChainRead(
            read.links, read.receipt, read.previous, read.previous_receipt, read.newest, read.last, read.last_receipt,
            passed=_noted(seen, epoch, read),
            inputs=_inputs(epoch, seen["off"][epoch]),
            inputs_before=_inputs(epoch - 1, seen["off"][epoch - 1]) if before else None,
            span=None if owns or epoch != self.epoch else self._span(),
            owners=tuple(each for at, each in enumerate(owners) if not at or owners[at - 1] != each),
        )  # fmt: skip

    def _span(self) -> Span:
        starts, ends = (barrier(self.record[name]) for name in ("from", "to"))
        return Span(epoch=self.epoch - 1, starts=starts, ends=ends)

    def _decide(self, now: int) -> tuple[tuple[Row, ...], s.Move]:
        votes = _votes(self.record["votes"])
        if self.plan.mode is Mode.TENTATIVE:
            # A sink that owes nothing counts its rows, and prepares none.
            here = {vote.sink for vote in votes}
            votes += tuple(
                Vote(
                    sink=each.sink, epoch=each.epoch, slot=each.slot, plan=self.plan.id, run="run", attempt="0",
                    rows=each.rows, checksum=each.checksum,
                )
                for each in self.plan.carried
                if each.sink not in here
            )  # fmt: skip
        state, event = s.Running(self.plan), m.VotesCollected(votes)
        checking, _ = transitions.step(state, event)
        checked = m.Checked(0.0, inputs=_inputs(self.epoch, now), span=self._span())
        assert isinstance(checking, s.Checking), checking
        return (_row(state, event), _row(checking, checked)), transitions.step(checking, checked)

    def _resolve(self, action: str, seen: Any) -> Iterator[tuple[tuple[Row, ...], s.Move]]:  # noqa: ANN401  as above
        lost = names(seen) if action == "Outcomes" else frozenset()
        silent = (None,) if action == "Outcomes" else (Unknown("no marker"), RetryLater("no answer"))
        for last in silent:
            link = self.link
            state: s.State = (
                s.Resolving(self.context, link, len(link.votes))
                if self.record["then"] == "resolve"
                else s.Committing(self.plan, link, len(link.votes))
            )
            rows: list[Row] = []
            for vote in link.votes:
                assert vote.handle is not None
                outcome = Lost("gone") if vote.handle.transaction in lost else Committed()
                is_last = last is not None and vote is link.votes[-1]
                event = m.Resolved(vote, last if is_last and last is not None else outcome)
                rows.append(_row(state, event))
                move = transitions.step(state, event)
                state = move[0]
            yield tuple(rows), move


def _mode(record: Record) -> Mode:
    return Mode(record["mode"]) if record["mode"] != "none" else Mode.RUN


def _row(state: s.State, event: m.Event) -> Row:
    return type(state).__name__, type(event).__name__


# --- what is done, by both ------------------------------------------------------------------------------------


def _put(link: Link) -> tuple[Any, ...]:
    end = link.inputs.barrier if link.inputs is not None else None
    return "put", link.kind, link.epoch, link.index, _of(link.votes), _of(link.carried), end


def _of(votes: Iterable[Vote]) -> frozenset[str]:
    return frozenset(vote.handle.transaction for vote in votes if vote.handle is not None)


def _done(move: s.Move) -> tuple[Any, ...]:
    """Return what the code does, without what it only tells people."""
    state, commands = move
    commits = [each.vote for each in commands if isinstance(each, m.CommitHandle)]
    aborts = [each.vote for each in commands if isinstance(each, m.AbortHandle)]
    found: list[Any] = [("commit", _of(commits), _of(aborts))] if commits or aborts else []
    for each in commands:
        match each:
            case m.ReadChain():
                found.append(("read", each.epoch))
            case m.PutLink():
                found.append(_put(each.link))
            case m.SyncLink():
                found.append(("sync", each.link.epoch, each.link.index))
            case m.PutReceipt():
                found.append(("receipt", each.receipt.epoch, each.receipt.index))
            case m.Sweep():
                found.append(("sweep", each.link.epoch, each.link.index, each.keep))
            case m.StartTasks():
                plan = each.plan
                index = None if plan.mode is Mode.DRAIN else plan.index
                found.append(("tasks", plan.mode.value, index, _of(plan.lost), _of(plan.carried)))
            case m.RestoreInputs():
                gone = each.discard.name if each.discard is not None else None
                found.append(("restore", frozenset(link.epoch for link in each.links), gone))
            case m.Stop():
                found.append(("stop", each.reason))
            case _:
                pass
    return type(state).__name__, *found
