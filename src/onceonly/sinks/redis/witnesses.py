"""Witnesses: in each slot of a cluster where a query has rows, the newest version of these, written behind them.

A node of a cluster may lose what it said it had while the one with the books does not. So the books note what each
witness must say, and one that says less tells that rows were lost. It moves as its slot moves.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.families.keyed.books import who
from onceonly.sinks.redis.slots import SLOTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from onceonly.sinks.redis.target import Target


@dataclass(frozen=True, slots=True)
class Lacking:
    """Slots that lack rows, with what their witnesses have (0 for nothing) and must have."""

    slots: Mapping[int, tuple[int, int]]

    @property
    def has(self) -> int:
        """Return the least that one has."""
        return min(has for has, _ in self.slots.values())

    @property
    def must_have(self) -> int:
        """Return the most that one must have."""
        return max(must for _, must in self.slots.values())


class Witnesses:
    """The witnesses of one query's sink. Driver, for one commit. Raises what the target raises."""

    def __init__(self, target: Target, query: str, sink: str) -> None:
        self._target = target
        self._whose = who(query, sink)
        self._text, older = target.witnessed(query, sink)
        self._versions = decoded(self._text)
        if older:
            self._versions = array("q", map(max, self._versions, decoded(older)))

    def lacking(self) -> Lacking | None:
        """Ask all that the books know of whether they have what they must have."""
        return self._seal({slot: (0, must) for slot, must in enumerate(self._versions) if must})

    def seal(self, slots: Iterable[int], version: int) -> Lacking | None:
        """Let those of these slots have a version, unless they have a greater one, or lack what they must have."""
        return self._seal({slot: (version, self._versions[slot]) for slot in slots})

    def forgive(self, lacking: Lacking) -> None:
        """Let those that lack something have it again."""
        self._seal({slot: (must, 0) for slot, (_, must) in lacking.slots.items()})

    def noted(self, slots: Iterable[int], version: int) -> tuple[str, str]:
        """Return what the books are told once slots have a version: the SHA-1 of what they have, and what they get."""
        mark = hashlib.sha1(self._text.encode(), usedforsecurity=False).hexdigest()
        return mark, raised(self._versions, slots, version)

    def _seal(self, versions: Mapping[int, tuple[int, int]]) -> Lacking | None:
        found = self._target.seal(self._whose, versions)
        return Lacking({slot: (has, self._versions[slot]) for slot, has in found.items()}) if found else None


def decoded(text: str) -> array[int]:
    """Return a version for each slot, 0 where there is none, out of what the books have. Pure."""
    return array("q", zlib.decompress(base64.b64decode(text)) if text else bytes(8 * SLOTS))


def raised(versions: array[int], slots: Iterable[int], version: int) -> str:
    """Return what the books have once some slots have a version, unless theirs is greater. Pure."""
    held = array("q", versions)
    for slot in slots:
        held[slot] = max(held[slot], version)
    return base64.b64encode(zlib.compress(held.tobytes(), 1)).decode()
