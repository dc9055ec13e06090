"""Scenario files: events in, and the expected states and commands, in the manner of etcd's raft tests.

A scenario is a text file in ``scenarios/``: what happens, a line ``----``, and what the protocol answers. After a
change that is meant to alter answers, ``ONCEONLY_REWRITE=1 pytest`` writes them anew; the diff is the review.

    link NAME = COMMIT|ABORT|SKIPPED PLAN [reason=WITH-HYPHENS] [SINK/SLOT=TRANSACTION:ROWS:SUM …] [| carried …]
    begin EPOCH PLAN [continues=PLAN] [application=…] [guarantee=…] [barrier=…] [store=…] [sinks=a,…] [limit=SECONDS]
    chain [LINK …] [receipt[=INDEX]] [previous=LINK] [unreceipted] [newest=EPOCH]      (of the epoch asked for)
          [last=LINK@EPOCH] [last-unreceipted] [passed=EPOCH[,unchanged][,taken]]
          [now=WORD] [before=WORD]    (what Spark's files say of this epoch's end, and of the one before; ``gone``)
          [starts=WORD] [ends=WORD]   (what Spark itself reads in this epoch)
          [noted]                     (links hold Spark's files as they were: the end of each was ``end``)
    persisted | taken LINK | doubt | received | swept | sweep-failed | restored | not-restored
    outcome TRANSACTION committed|already|later|lost|unknown
    checked AGE [TRANSACTION …] [unsynced] [now=WORD] [ends=WORD]      (the epoch's age, and what is said to expire)
    votes [SINK/SLOT=… …]      (of the plan that runs; ``-`` stands for no handle)
    abandon [SINK/SLOT=… …]
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from onceonly import protocol as p
from onceonly.model import (
    AlreadyCommitted,
    Committed,
    Guarantee,
    Handle,
    InputFile,
    Inputs,
    Link,
    LinkKind,
    Lost,
    Outcome,
    Passed,
    Plan,
    Receipt,
    RetryLater,
    Span,
    Unknown,
    Vote,
)
from onceonly.protocol import transitions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FOLDER = Path(__file__).parent / "scenarios"
OUTCOMES: dict[str, Outcome] = {
    "committed": Committed(),
    "already": AlreadyCommitted(),
    "later": RetryLater("busy"),
    "lost": Lost("the marker shows its predecessor"),
    "unknown": Unknown("no answer"),
}


class Scenario:
    """Feeds one file to the protocol, line by line."""

    def __init__(self) -> None:
        self.links: dict[str, Link] = {}
        self.state: p.State | None = None
        self.commands: tuple[p.Command, ...] = ()
        self.context = p.Context(epoch=0, plan="", run="", guarantee=Guarantee.EXACTLY_ONCE)
        self.plan: Plan | None = None
        self.asked = 0
        self.put: Link | None = None
        self.owed: dict[str, Vote] = {}
        self.moves: set[tuple[type[Any], type[Any]]] = set()

    def tell(self, line: str) -> None:
        """Take one line; keep the state and the commands that it led to."""
        word, *rest = line.split()
        if word == "link":
            self._define(rest)
            return
        self.state, self.commands = self._move(word, rest)
        for command in self.commands:
            if isinstance(command, p.ReadChain):
                self.asked = command.epoch
            elif isinstance(command, p.PutLink | p.SyncLink):
                self.put = command.link
            elif isinstance(command, p.StartTasks):
                self.plan = command.plan
            elif isinstance(command, p.CommitHandle) and command.vote.handle is not None:
                self.owed[command.vote.handle.transaction] = command.vote

    def _move(self, word: str, rest: Sequence[str]) -> tuple[p.State, tuple[p.Command, ...]]:
        if word == "begin":
            self._begin(rest)
            return p.begin(self.context)
        if word in {"votes", "abandon"}:
            assert self.plan is not None
            votes = tuple(self._vote(text, self.plan.id) for text in rest)
            if word == "abandon":
                return p.abandon(self.plan, run="run", votes=votes, reason="a slot failed")
            return self._step(p.resume(self.plan), p.VotesCollected(votes))
        assert self.state is not None
        return self._step(self.state, self._event(word, rest))

    def _step(self, state: p.State, event: p.Event) -> tuple[p.State, tuple[p.Command, ...]]:
        self.moves.add((type(state), type(event)))
        return p.step(state, event)

    def _event(self, word: str, rest: Sequence[str]) -> p.Event:  # noqa: C901, PLR0911  one line for each word
        match word:
            case "chain":
                return self._chain(rest)
            case "persisted":
                assert self.put is not None
                return p.LinkPersisted(self.put)
            case "taken":
                return p.LinkTaken(self.links[rest[0]])
            case "received":
                return p.ReceiptPersisted()
            case "swept":
                return p.Swept(1)
            case "sweep-failed":
                return p.SweepFailed("out of reach")
            case "restored":
                return p.InputsRestored(("offsets/1 is again as decided",))
            case "not-restored":
                return p.InputsNotRestored("sources/0/1 was too long")
            case "checked":
                return self._checked(rest)
            case "outcome":
                return p.Resolved(self.owed[rest[0]], OUTCOMES[rest[1]])
        message = f"not a word of this language: {word}"
        raise ValueError(message)

    def _checked(self, rest: Sequence[str]) -> p.Checked:
        more = dict(word.split("=") for word in rest if "=" in word)
        names = [word for word in rest[1:] if "=" not in word and word != "unsynced"]
        assert self.plan is not None
        return p.Checked(
            float(rest[0]),
            tuple(f"{name} is too old" for name in names),
            unsynced="offsets/0: no space" if "unsynced" in rest else "",
            inputs=_inputs(self.plan.epoch, more["now"]) if "now" in more else None,
            span=_span(self.plan.epoch, more),
        )

    def _begin(self, rest: Sequence[str]) -> None:
        more = dict(part.split("=", 1) for part in rest[2:])
        self.context = p.Context(
            epoch=int(rest[0]),
            plan=rest[1],
            run="run",
            application=more.get("application", ""),
            guarantee=Guarantee(more.get("guarantee", "exactly-once")),
            continues=more.get("continues"),
            barrier=(more.get("barrier", "end"),),
            settings={name: {"store": more.get("store", "s")} for name in more.get("sinks", "a").split(",")},
            limit_s=float(more["limit"]) if "limit" in more else None,
        )

    def _define(self, rest: Sequence[str]) -> None:
        name, _, kind, plan, *texts = rest
        reason = texts.pop(0).removeprefix("reason=") if texts and texts[0].startswith("reason=") else ""
        votes = texts[: texts.index("|")] if "|" in texts else texts
        carried = texts[texts.index("|") + 2 :] if "|" in texts else []
        self.links[name] = Link(
            epoch=0,
            index=0,
            kind=LinkKind.COMMIT if kind == "COMMIT" else LinkKind(kind),
            plan=plan,
            run="older",
            votes=tuple(self._vote(text, plan) for text in votes),
            carried=tuple(self._vote(text, plan) for text in carried),
            barrier=("end",),
            settings={"a": {"store": "s"}},
            reason=reason.replace("-", " "),
        )

    def _chain(self, rest: Sequence[str]) -> p.ChainRead:
        epoch, guarantee = self.asked, self.context.guarantee
        names = [word for word in rest if word in self.links]
        parts = (word.partition("=") for word in rest if word not in names)
        more = {key: value for key, _, value in parts}
        links = tuple(
            replace(self.links[name], epoch=epoch, index=index, guarantee=guarantee)
            for index, name in enumerate(names)
        )
        receipt = None
        if "receipt" in more:
            receipt = Receipt(epoch=epoch, index=int(more["receipt"] or len(links) - 1), plan="older")
        previous = replace(self.links[more["previous"]], epoch=epoch - 1) if "previous" in more else None
        received = previous is not None and "unreceipted" not in more
        last, passed = None, None
        if "last" in more:
            name, _, at = more["last"].partition("@")
            last = replace(self.links[name], epoch=int(at), barrier=("before",))
        if "passed" in more:
            at, *said = more["passed"].split(",")
            passed = Passed(
                epoch=int(at), barrier=(f"end of {at}",), unchanged="unchanged" in said, taken="taken" in said
            )
        known = {
            "receipt", "previous", "unreceipted", "newest", "last", "last-unreceipted", "passed", "now",
            "before", "noted", "owners", "starts", "ends",
        }  # fmt: skip
        if "noted" in more:
            links = tuple(replace(link, inputs=_inputs(epoch, "end")) for link in links)
            previous = replace(previous, inputs=_inputs(epoch - 1, "end")) if previous is not None else None
        assert more.keys() <= known, f"not a part of a chain: {more.keys() - known}"
        return p.ChainRead(
            links=links,
            receipt=receipt,
            previous=previous,
            previous_receipt=Receipt(epoch=epoch - 1, index=0, plan="older") if received else None,
            newest=int(more["newest"]) if "newest" in more else epoch if links else None,
            last=last,
            last_receipt=Receipt(epoch=last.epoch, index=last.index, plan="older")
            if last is not None and "last-unreceipted" not in more
            else None,
            passed=passed,
            inputs=_inputs(epoch, more["now"]) if "now" in more else None,
            inputs_before=_inputs(epoch - 1, more["before"]) if "before" in more else None,
            span=_span(epoch, more),
            owners=tuple(more["owners"].split(",")) if "owners" in more else (),
        )

    def _vote(self, text: str, plan: str) -> Vote:
        where, _, what = text.partition("=")
        sink, _, slot = where.partition("/")
        transaction, rows, total = what.split(":")
        return Vote(
            sink=sink,
            epoch=self.context.epoch,
            slot=int(slot),
            plan=plan,
            run="older",
            attempt="1",
            rows=int(rows),
            checksum=f"{int(total, 16):016x}",
            handle=None if transaction == "-" else Handle(transaction=transaction),
        )

    def told(self) -> Iterator[str]:
        """Yield the state and the commands as text."""
        yield type(self.state).__name__
        yield from (f"  {_words(command)}" for command in self.commands)


def _inputs(epoch: int, end: str) -> Inputs:
    """Make what Spark's files say: no file where they are gone, other lists with the same end where there is a star."""
    if end == "gone":
        return Inputs()
    return Inputs(
        files=(InputFile(name=f"offsets/{epoch}", digest=end, text=f"v1\n{{}}\n{end.rstrip('*')}"),)
    )


def _span(epoch: int, more: Mapping[str, str]) -> Span | None:
    """Make what Spark itself reads, if anything is said of it."""
    starts, ends = ((more[name],) if name in more else () for name in ("starts", "ends"))
    return Span(epoch=epoch, starts=starts, ends=ends) if starts or ends else None


def _words(command: p.Command) -> str:  # noqa: C901, PLR0911  one line for each command
    match command:
        case p.ReadChain(epoch):
            return f"ReadChain {epoch}"
        case p.CheckPrepared(_, link):
            return f"CheckPrepared {link.name}, votes [{_names(link.votes)}]"
        case p.PutLink(link):
            return f"PutLink {link.name} {link.kind} by {link.plan}{_held(link)}"
        case p.RestoreInputs(links, discard, claim):
            gone = "" if discard is None else f", discard {discard.name} under {claim and claim.name}"
            return f"RestoreInputs {' '.join(link.name for link in links) or 'none'}{gone}"
        case p.SyncLink(link):
            return f"SyncLink {link.name}"
        case p.CommitHandle(vote, link, once):
            return f"CommitHandle {_names([vote])} of {link.name}{' once' if once else ''}"
        case p.AbortHandle(vote):
            return f"AbortHandle {_names([vote])}"
        case p.PutReceipt(receipt, _):
            return f"PutReceipt {receipt.epoch}.{receipt.index} {dict(sorted(receipt.outcomes.items()))}"
        case p.Sweep(link, keep):
            return f"Sweep under {link.name}, keep [{' '.join(sorted(keep))}]"
        case p.StartTasks(plan):
            told = f"StartTasks {plan.mode}, next link {plan.epoch}.{plan.index}"
            told += f", limit {plan.limit_s:g} s" if plan.limit_s is not None else ""
            return told + (
                f", lost [{_names(plan.lost)}], carried [{_names(plan.carried)}]" if plan.lost else ""
            )
        case p.Report(kind, message):
            return f"Report {kind}: {message}"
        case p.Stop(reason, detail):
            return f"Stop {reason.value}: {detail}"


def _held(link: Link) -> str:
    if link.kind is LinkKind.SKIPPED:
        return f" at {list(link.barrier)}: {link.reason}"
    carried = f", carried [{_names(link.carried)}]" if link.carried else ""
    return f", votes [{_names(link.votes)}]{carried}" if link.kind is LinkKind.COMMIT else ""


def _names(votes: Sequence[Vote]) -> str:
    return " ".join(
        vote.handle.transaction if vote.handle else f"{vote.sink}/{vote.slot}:-" for vote in votes
    )


def run(text: str, scenario: Scenario) -> str:
    """Return the scenario with the answers that the protocol really gives."""
    told: list[str] = []
    answering = False
    asked = False
    for line in [*text.splitlines(), ""]:
        if line == "----":
            answering = True
            told.append(line)
            told.extend(scenario.told())
            continue
        if answering and line:
            continue
        if not line and asked and not answering:
            told.extend(["----", *scenario.told()])
        told.append(line)
        answering = False
        asked = False
        if line and not line.startswith("#"):
            scenario.tell(line)
            asked = not line.startswith("link ")
    return "\n".join(told).rstrip() + "\n"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_the_protocol_answers_as_the_scenario_says(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    told = run(text, Scenario())
    if os.environ.get("ONCEONLY_REWRITE"):
        path.write_text(told, encoding="utf-8")
    assert told == text


def test_the_scenarios_make_every_move_of_the_table() -> None:
    scenario = Scenario()
    for path in FOLDER.glob("*.txt"):
        run(path.read_text(encoding="utf-8"), scenario)

    assert scenario.moves == set(transitions._TABLE)
