"""Holds the event log of real runs against the model in ``formal/``: is there a behaviour that explains it?

Tests, and anybody with Java: ``python -m onceonly_proof.traces DIR``. The log is what
``ONCEONLY_EVENTS=DIR`` made every process write, from the query's first epoch on. What is judged is
exactly-once; a loss of power and a link that nobody synced leave no event, and are not judged.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceonly import events
from onceonly.model import Guarantee, LinkKind, Mode
from onceonly_proof.tla import check, formal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Line = dict[str, Any]
_TOLD = re.compile(r'<<"explained", (\d+), (\d+)>>')
_UNDECIDING = {LinkKind.ABORT.value, LinkKind.SKIPPED.value}
_OUTCOMES = {"Committed": "done", "AlreadyCommitted": "done", "Lost": "lost"}
_KINDS = {
    "plan.started": "started",
    "epoch.planned": "planned",
    "slot.begun": "begun",
    "slot.prepared": "prepared",
    "slot.failed": "failed",
    "votes.collected": "votes",
    "link.persisted": "link",
    "link.taken": "taken",
    "handle.committed": "answer",
    "handle.resolved": "answer",
    "handle.aborted": "unneeded",
    "epoch.completed": "completed",
    "receipt.persisted": "receipt",
    "swept": "swept",
    "epoch.done": "done",
    "epoch.aborted": "aborted",
}
"""The events that the model knows, and their names there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one query's log.

    ``accepted`` if the model explains all ``events`` of it; else ``explained`` of them, and ``stuck_at`` is the
    line that no step of the model gives.
    """

    query: str
    accepted: bool
    events: int
    explained: int
    stuck_at: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        if self.accepted:
            return f"query {self.query}: the model explains all {self.events} events"
        line = self.stuck_at or {}
        shown = " ".join(f"{name}={line[name]}" for name in _SHOWN if line.get(name) not in {None, ""})
        return f"query {self.query}: {self.explained} of {self.events} events are explained; not this one: {shown}"


_SHOWN = ("kind", "epoch", "plan", "link", "index", "sink", "slot", "transaction", "outcome", "names")


def validate(folder: Path, *, timeout_s: float = 600.0) -> list[Verdict]:
    """Judge the logs of all queries in a folder of event files. Anywhere; reads only; starts a Java.

    Raises ``ValueError`` where there is nothing to judge, or it does not begin at a query's first epoch.
    """
    found = queries(events.read(folder))
    if not found:
        message = f"{folder} holds no events of the protocol: was ONCEONLY_EVENTS set in every process?"
        raise ValueError(message)
    return judge(list(found.values()), timeout_s=timeout_s)


def queries(lines: Iterable[Line]) -> dict[str, list[Line]]:
    """Part the lines that the model knows by their query, in an order that they may have happened in. Pure."""
    found: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        if line["kind"] in _KINDS and line.get("plan"):
            found[line["query"]].append(line)
    return {query: _ordered(each) for query, each in found.items()}


def judge(logs: Sequence[Sequence[Line]], *, timeout_s: float = 600.0) -> list[Verdict]:
    """Judge several logs in one Java. Each is of one query, and in order."""
    traces = [_Trace(lines) for lines in logs]
    done = check(
        "Trace",
        (formal() / "Trace.cfg").read_text(encoding="utf-8"),
        files={"TraceData.tla": _module(traces)},
        timeout_s=timeout_s,
    )
    reached: dict[int, int] = defaultdict(int)
    for number, explained in _TOLD.findall(done.output):
        reached[int(number)] = max(reached[int(number)], int(explained))
    return [trace.verdict(reached[number]) for number, trace in enumerate(traces, start=1)]


def _ordered(lines: Sequence[Line]) -> list[Line]:
    """Merge the processes' files by their clocks, but never a link before the one that it follows.

    An event is written after the act, so two processes may tell of two links the other way round.
    """
    files: dict[str, list[Line]] = defaultdict(list)
    for line in sorted(lines, key=lambda line: line["seq"]):
        files[line["incarnation"]].append(line)
    waiting = {_place(line) for line in lines if line["kind"] == "link.persisted"}
    merged: list[Line] = []
    while files:
        heads = sorted(files.values(), key=lambda file: file[0]["t"])
        file = next((file for file in heads if not _is_early(file[0], waiting)), heads[0])
        line = file.pop(0)
        waiting.discard(_place(line) if line["kind"] == "link.persisted" else (-1, -1))
        merged.append(line)
        if not file:
            del files[line["incarnation"]]
    return merged


def _place(line: Line) -> tuple[int, int]:
    return line["epoch"], line["index"]


def _is_early(line: Line, waiting: set[tuple[int, int]]) -> bool:
    if line["kind"] == "link.persisted":
        return any(epoch == line["epoch"] and index < line["index"] for epoch, index in waiting)
    return line["kind"] == "link.taken" and _place(line) in waiting


@dataclass(slots=True)
class _Trace:
    """One query's log in the model's terms: drivers and transactions are numbers from 1, epochs begin at 1."""

    lines: Sequence[Line]
    drivers: dict[str, int] = field(default_factory=dict)
    applications: list[str] = field(default_factory=list)
    transactions: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    kept: list[Line] = field(default_factory=list)
    _planned: set[str] = field(default_factory=set)
    _epochs: list[int] = field(default_factory=list)
    _until: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    _by_attempt: dict[tuple[str, str, int, str], int] = field(default_factory=dict)
    _by_name: dict[tuple[int, str], int] = field(default_factory=dict)
    _latest: dict[str, int] = field(default_factory=dict)
    _attempts: dict[tuple[str, str, int], int] = field(default_factory=lambda: defaultdict(int))

    def __post_init__(self) -> None:
        for line in self.lines:
            fields = self._translated(line)
            if fields is None:
                continue
            known = {
                "k": _text(_KINDS[line["kind"]]),
                "d": str(self._driver(line)),
                "e": str(line["epoch"] + 1),
            }
            self.log.append(_record({**known, **fields}))
            self.kept.append(line)
            self._until[line["epoch"]] = len(self.kept)

    def verdict(self, explained: int) -> Verdict:
        accepted = explained == len(self.kept)
        return Verdict(
            query=str(self.lines[0]["query"]) if self.lines else "",
            accepted=accepted,
            events=len(self.kept),
            explained=explained,
            stuck_at=None if accepted else self.kept[explained],
        )

    def last(self, drivers: int) -> list[str]:
        """Return the number of each driver's last event, 0 where there is no such driver."""
        found = dict.fromkeys(range(1, drivers + 1), 0)
        for number, line in enumerate(self.kept, start=1):
            found[self.drivers[line["plan"]]] = number
        return [str(each) for each in found.values()]

    def until(self, epochs: int) -> list[str]:
        """Return the number of the last event that tells of each epoch, 0 where there is none."""
        return [str(self._until[epoch]) for epoch in range(epochs)]

    def _driver(self, line: Line) -> int:
        plan = line["plan"]
        if line["kind"] == "plan.started":
            if line["guarantee"] != Guarantee.EXACTLY_ONCE:
                message = f"query {line['query']} promises {line['guarantee']}; the model is of exactly-once"
                raise ValueError(message)
            before = self.drivers.get(line["continues"])
            if before is None:
                before = len(self.applications) + 1
                self.applications.append(plan.rpartition(".")[0] or f"{before}")
            self.drivers[plan] = before
        if plan not in self.drivers:
            message = (
                f"{line['kind']} of plan {plan}, chk-{line['epoch']}: nothing tells of this plan's start"
            )
            raise ValueError(message)
        return self.drivers[plan]

    def _translated(self, line: Line) -> dict[str, str] | None:
        """Return the fields that the model looks at, None for a line that says nothing to it."""
        translate = _FIELDS.get(_KINDS[line["kind"]])
        return translate(self, line) if translate is not None else {}

    def planned(self, line: Line) -> dict[str, str]:
        if line["mode"] != Mode.DRAIN:
            self._planned.add(line["plan"])
        return {"mode": _text(line["mode"])}

    def begun(self, line: Line) -> dict[str, str]:
        slot = (line["plan"], line["sink"], line["slot"])
        self._attempts[slot] += 1
        pair = f"<<{_text(line['sink'])}, {line['slot']}>>"
        self.transactions.append(
            _record(
                {
                    "e": str(line["epoch"] + 1),
                    "s": pair,
                    "d": str(self._driver(line)),
                    "a": str(self._attempts[slot]),
                }
            )
        )
        self._by_attempt[(*slot, line["attempt"])] = len(self.transactions)
        self._epochs.append(line["epoch"])
        planned = "TRUE" if line["plan"] in self._planned else "FALSE"
        return {"t": str(len(self.transactions)), "planned": planned}

    def prepared(self, line: Line) -> dict[str, str] | None:
        number = self._by_attempt.get((line["plan"], line["sink"], line["slot"], line["attempt"]))
        if number is None:
            # Failed before it began; a vote that was never begun is an event that the model must refuse.
            return None if line["kind"] == "slot.failed" else self.begun(line)
        if line["transaction"]:
            name = f"{line['sink']}:{line['transaction']}"
            self._by_name[line["epoch"], name] = self._latest[name] = number
        return {"t": str(number)}

    def votes(self, line: Line) -> dict[str, str]:
        return {"names": self._set(line, "names")}

    def link(self, line: Line) -> dict[str, str]:
        return {
            "kind": _text(line["link"] if line["link"] in _UNDECIDING else "COMMIT"),
            "index": str(line["index"]),
            "names": self._set(line, "names"),
            "carried": self._set(line, "carried"),
        }

    def unneeded(self, line: Line) -> dict[str, str]:
        return {"t": str(self._by_name.get((line["epoch"], f"{line['sink']}:{line['transaction']}"), 0))}

    def answer(self, line: Line) -> dict[str, str]:
        return {
            **self.unneeded(line),
            "then": _text("resolve" if line["kind"] == "handle.resolved" else "decide"),
            "outcome": _text(_OUTCOMES.get(line["outcome"], "none")),
        }

    def swept(self, line: Line) -> dict[str, str] | None:
        number = self._latest.get(f"{line['sink']}:{line['transaction']}")
        if number is None:
            return None  # open only: the log knows no name of it
        self._until[self._epochs[number - 1]] = len(self.kept) + 1
        return {"t": str(number)}

    def _set(self, line: Line, names: str) -> str:
        found = [str(self._by_name.get((line["epoch"], name), 0)) for name in line[names].split()]
        return f"{{{', '.join(found)}}}"


_FIELDS: dict[str, Callable[[_Trace, Line], dict[str, str] | None]] = {
    "planned": _Trace.planned,
    "begun": _Trace.begun,
    "prepared": _Trace.prepared,
    "failed": _Trace.prepared,
    "votes": _Trace.votes,
    "link": _Trace.link,
    "taken": lambda _, line: {"index": str(line["index"])},
    "answer": _Trace.answer,
    "unneeded": _Trace.unneeded,
    "swept": _Trace.swept,
}


def _module(traces: Sequence[_Trace]) -> str:
    drivers = max(len(trace.applications) for trace in traces)
    epochs = max((line["epoch"] + 1 for trace in traces for line in trace.kept), default=1)
    shown = ",\n".join(
        f"  [applications |-> {_sequence(map(_text, trace.applications))},\n"
        f"   last |-> {_sequence(trace.last(drivers))},\n"
        f"   until |-> {_sequence(trace.until(epochs))},\n"
        f"   tx |-> {_sequence(trace.transactions)},\n   log |-> {_sequence(trace.log)}]"
        for trace in traces
    )
    return (
        "---- MODULE TraceData ----\nEXTENDS Naturals\n"
        f"TraceDrivers == 1..{drivers}\nTraceLastEpoch == {epochs}\nTraces == <<\n{shown}\n>>\n====\n"
    )


def _record(fields: Mapping[str, str]) -> str:
    return f"[{', '.join(f'{name} |-> {value}' for name, value in fields.items())}]"


def _sequence(values: Iterable[str]) -> str:
    return f"<<{', '.join(values)}>>"


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def main() -> int:
    """Judge the folder that is named on the command line; 0 accepted, 1 not, 64 wrong usage."""
    if len(sys.argv) != 2:  # noqa: PLR2004  the program and one folder
        sys.stderr.write("usage: python -m onceonly_proof.traces FOLDER\n")
        return 64
    verdicts = validate(Path(sys.argv[1]))
    sys.stdout.write("".join(f"{verdict}\n" for verdict in verdicts))
    return 0 if all(verdict.accepted for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
