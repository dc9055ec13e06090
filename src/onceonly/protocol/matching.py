"""Comparing what an epoch's replay gave with what was decided. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from onceonly.model import letters_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onceonly.model import Vote

_MODULUS = 2**64


def totals(votes: Iterable[Vote]) -> dict[str, tuple[int, str]]:
    """Return (rows, checksum) per sink that has rows, whatever the slots they were dealt to.

    All checksums of a decision are of one algorithm, whose name stands before the digits. Dead letters count as rows
    of the sink that refused them: a replay that writes nothing does not know which those are.
    """
    rows: dict[str, int] = defaultdict(int)
    sums: dict[str, int] = defaultdict(int)
    names: dict[str, str] = {}
    for vote in votes:
        name, colon, digits = vote.checksum.rpartition(":")
        sink = letters_of(vote.sink) or vote.sink
        names[sink] = name + colon
        rows[sink] += vote.rows
        sums[sink] = (sums[sink] + int(digits, 16)) % _MODULUS
    return {sink: (rows[sink], f"{names[sink]}{sums[sink]:016x}") for sink in rows if rows[sink]}


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
        f"sink {sink}: {count} x ({rows} rows, checksum {checksum})"
        for (sink, rows, checksum), count in sorted(wanted.items())
        if count
    )
    return tuple(matched), tuple(rest), missing


def _rows_of(vote: Vote) -> tuple[str, int, str]:
    return vote.sink, vote.rows, vote.checksum


def _words(total: tuple[int, str] | None) -> str:
    return "no rows" if total is None else f"{total[0]} rows (checksum {total[1]})"
