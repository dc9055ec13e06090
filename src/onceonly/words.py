"""Numbers with their nouns and verbs, and times of rows, as people read them: for all messages. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_VERBS: Final = {"is": "are", "was": "were", "has": "have"}
_NOUNS: Final = {"epoch": "epochs", "tx": "tx"}
"""Those that the rules below would spell otherwise."""
_SIBILANT = re.compile(r"(?:s|x|z|ch|sh)$")
_CONSONANT_Y = re.compile(r"(?<=[^aeiou])y$")


def n(count: int, word: str) -> str:
    """Return a count with its word, and with a verb: ``1 row``, ``1,200 rows``; of ``try was``, ``2 tries were``."""
    return f"{count:,} {word if count == 1 else plural(word)}"


def epoch_ranges(numbers: Iterable[int]) -> str:
    """Name epochs in their order, those that follow one another as a range: ``chk-0 to chk-4, chk-6``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join(" to ".join(f"chk-{number}" for number in run) for run in runs)


def are(count: int) -> str:
    """Return ``is`` for one, ``are`` for others: where the verb does not stand behind the word."""
    return "is" if count == 1 else "are"


def plural(word: str) -> str:
    """Return the plural of a noun, the last of several words or one before a verb."""
    rest, _, last = word.rpartition(" ")
    if last in _VERBS:
        return f"{plural(rest)} {_VERBS[last]}" if rest else _VERBS[last]
    if last in _NOUNS:
        return f"{rest} {_NOUNS[last]}".strip()
    if _CONSONANT_Y.search(word):
        return _CONSONANT_Y.sub("ies", word)
    return word + ("es" if _SIBILANT.search(word) else "s")


def time_of(ms: int, timespec: str = "seconds") -> str:
    """Return a time that rows have, in UTC; they may have any, also one beyond the years that people count."""
    try:
        at = datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms since 1970"
    return at.isoformat(timespec=timespec).replace("+00:00", "Z")
