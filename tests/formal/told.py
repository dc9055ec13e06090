"""What TLC has told by ``formal/Table.tla``: steps of drivers, and what the code should do in each of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from onceonly.model import LinkKind
from onceonly.protocol.messages import StopReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Record = dict[str, Any]
Told = tuple[str, int, Record, Record, Any]
"""The action, the driver, its record before and after, and what it has read."""
NONE = -1
_TOKEN = re.compile(r'<<|>>|\|->|:>|@@|[\[\]{}(),]|-?\d+|"\w*( \w+)*"|\w+')
KINDS = {"COMMIT": LinkKind.COMMIT, "ABORT": LinkKind.ABORT, "SKIPPED": LinkKind.SKIPPED}
_PUTTING = {
    "claim": "Claiming", "skip": "Skipping", "next": "ClaimingNext", "withdraw": "Withdrawing", "decide": "Deciding",
    "void": "Voiding",
}  # fmt: skip
_SWEEPING = {
    "claim": "SweepingStart",
    "next": "SweepingNext",
    "decide": "SweepingEnd",
    "void": "SweepingEnd",
}
_STOPS = {
    ("Read", "gap"): {StopReason.GAP},
    ("Read", "overtaken"): {StopReason.OVERTAKEN, StopReason.MOVED},
    ("Put", "overtaken"): {StopReason.OVERTAKEN},
    ("Put", "dead"): {StopReason.SUPERSEDED},
    ("Look", "dead"): {StopReason.SUPERSEDED},
    ("SweepFails", "dead"): {StopReason.DELAYED},
    ("Decide", "overtaken"): {StopReason.MOVED},
    ("TaskFails", "abandoning"): {StopReason.LATE},
    ("Outcomes", "abandoning"): {StopReason.LOST},
    ("NoAnswer", "abandoning"): {StopReason.IN_DOUBT, StopReason.DELAYED},
    ("NoAnswer", "dead"): {StopReason.IN_DOUBT, StopReason.DELAYED},
    ("Restore", "off"): {StopReason.RESTORED},
    ("NotRestored", "dead"): {StopReason.BARRIER},
}
"""How the model tells why a driver ends: it starts again (``overtaken``, ``off``), or others go on."""


def told(output: str) -> Iterator[Told]:
    """Read what TLC has printed, each step once."""
    for line in sorted({line for line in output.splitlines() if line.startswith('"<<')}):
        tokens = [found[0] for found in _TOKEN.finditer(line[1:-1].replace('\\"', '"'))]
        value, rest = _value(tokens, 0)
        assert (rest, value[0]) == (len(tokens), "told"), line
        yield value[1:]


def _value(words: list[str], at: int) -> tuple[Any, int]:
    """Read a value of TLA+, and say where it ends. A set is a list, as what is in it may not be hashed."""
    word = words[at]
    if word in {"<<", "{"}:
        found, at = [], at + 1
        while words[at] not in {">>", "}"}:
            each, at = _value(words, at)
            found.append(each)
            at += words[at] == ","
        return (tuple(found) if word == "<<" else found), at + 1
    if word in {"[", "("}:
        pairs, at = {}, at + 1
        while words[at] not in {"]", ")"}:
            key, at = _value(words, at)
            pairs[key], at = _value(words, at + 1)
            at += words[at] in {",", "@@"}
        return pairs, at + 1
    if word.startswith('"'):
        return word[1:-1], at + 1
    if word in {"TRUE", "FALSE"}:
        return word == "TRUE", at + 1
    return (int(word) if word.lstrip("-").isdigit() else word), at + 1


def name(t: Record) -> str:
    return f"{t['e']}-{t['s'][0]}-{t['s'][1]}-{t['d']}-{t['a']}"


def names(these: Iterable[Record]) -> frozenset[str]:
    return frozenset(name(t) for t in these)


def barrier(end: int) -> tuple[str, ...]:
    return () if end == NONE else (str(end),)


def expected(  # noqa: C901, PLR0911, PLR0912  one for each place
    action: str, before: Record, after: Record
) -> tuple[Any, ...]:
    """Return what the code should do where the model leaves a driver like this."""
    pc, then, epoch = after["pc"], after["then"], after["e"] - 1
    link, le, at = after["link"], after["le"] - 1, after["at"]
    if (action, pc) in _STOPS and not (pc == "dead" and before["then"] == "void"):
        return "Stopped", _STOPS[action, pc]
    match pc:
        case "putting":
            decides = barrier(link["end"]) if link["kind"] != "ABORT" else None
            named = names(link["votes"]), names(link["carried"])
            return _PUTTING[then], ("put", KINDS[link["kind"]], le, at, *named, decides)
        case "syncing":
            return "Syncing", ("sync", le, at)
        case "listing":
            return _SWEEPING[then], ("sweep", le, at, names(link["votes"]))
        case "noting":
            return "Skipped", ("receipt", le, at)
        case "reading":
            return "Reading", ("read", epoch)
        case "draining":
            return "Draining", ("read", epoch + 1)
        case "sending" if link["votes"]:
            rest = names(after["votes"]) - names(link["votes"]) if then == "decide" else frozenset[str]()
            state = "Committing" if then == "decide" else "Resolving"
            return state, ("commit", names(link["votes"]), rest)
        case "sending" | "receipting":
            return "Receipting", ("receipt", epoch, at)
        case "running":
            return "Running", ("tasks", after["mode"], at, names(after["lost"]), names(after["carried"]))
        case "done" if after["mode"] == "drain":
            return "Running", ("tasks", "drain", None, frozenset(), frozenset())
        case "discarding" | "restoring":
            files = {each - 1 for each, _ in after["files"]}
            gone = {epoch} if pc == "discarding" else set()
            return "Restoring", (
                "restore",
                frozenset(files - gone),
                f"offsets/{epoch}" if gone else None,
            )
        case _:
            return ("Done",)
