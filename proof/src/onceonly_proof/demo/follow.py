"""Reads the event log while it grows, and what the report counts in it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

Event: TypeAlias = dict[str, Any]

_VISIBLE = {"Committed", "AlreadyCommitted"}


@dataclass(slots=True)
class EventLog:
    """The folder of the event log; each ``fresh()`` gives what was added since. Parent process."""

    folder: Path
    _read: dict[Path, int] = field(default_factory=dict)

    def fresh(self) -> list[Event]:
        """Return the events that are new, in the order of their clocks. A line half written waits."""
        events: list[Event] = []
        for path in self.folder.glob("*.jsonl"):
            begin = self._read.get(path, 0)
            if path.stat().st_size <= begin:
                continue
            with path.open("rb") as file:
                file.seek(begin)
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read[path] = begin + len(whole)
            events.extend(json.loads(line) for line in whole.splitlines())
        return sorted(events, key=lambda event: float(event["t"]))


@dataclass(frozen=True, slots=True)
class Transactions:
    """What became of the transactions: visible at once, visible by recovery, aborted. Each counts once."""

    committed: int
    recovered: int
    aborted: int


def count_transactions(events: list[Event]) -> Transactions:
    """Count from the log. Pure.

    *Recovered* were committed by a later run of the job from the handle in the decision log; *committed* by the
    run that prepared them; *aborted* were prepared or open, decided by nobody, and fenced by a sweep. A kill
    between a commit and its line in the log makes it a recovered one: the next run finds it committed.
    """
    first: dict[tuple[object, ...], str] = {}
    aborted = 0
    for event in sorted(events, key=lambda event: float(event["t"])):
        if event["kind"] in {"handle.committed", "handle.resolved"} and event.get("outcome") in _VISIBLE:
            # Ids are used again, but not twice for a slot of an epoch that became visible.
            key = (event["query"], event["epoch"], event["sink"], event["slot"], event["transaction"])
            first.setdefault(key, event["kind"])
        aborted += event["kind"] == "swept"
    kinds = Counter(first.values())
    return Transactions(kinds["handle.committed"], kinds["handle.resolved"], aborted)


def count_epochs(checkpoints: Path, queries: tuple[str, ...]) -> dict[str, int]:
    """Count the completed chk-N of each query: the epochs that Spark has noted in its checkpoint."""
    found: dict[str, int] = {}
    for query in queries:
        names = [path.name for path in (checkpoints / query / "commits").glob("*") if path.name.isdecimal()]
        found[query] = max(map(int, names), default=-1) + 1
    return found


def query_ids(checkpoints: Path, queries: tuple[str, ...]) -> dict[str, str]:
    """Return the name of each query by its id, which is what the event log speaks of."""
    names: dict[str, str] = {}
    for query in queries:
        path = checkpoints / query / "metadata"
        if path.is_file():
            names[str(json.loads(path.read_text(encoding="utf-8"))["id"])] = query
    return names
