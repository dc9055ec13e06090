"""Dead letters as what they stand for: rows of the sink that refused them, in another target."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly_proof.auditor.readers import LooksBehind
from onceonly_proof.auditor.world import Orphan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from onceonly_proof.auditor.readers import Reader
    from onceonly_proof.auditor.world import Decision, Seen

_LETTERS = ".letters"


class LettersReader:
    """Reads letters by a reader of their target, and gives the rows in them: their columns ``key`` and ``value``.

    Fulfils ``Reader``. Give it under the name of the letters' sink, such as ``kafka.letters``: each input must then be
    among the rows or among the letters, once. ``binary`` says that those columns are no texts but bytes. A line or
    value that is no letter is a row like any other, and foreign.
    """

    def __init__(self, reader: Reader, *, binary: bool = False) -> None:
        self._reader = reader
        self._binary = binary

    def rows(self) -> Iterator[Seen]:
        """Yield the row of each letter that a careful reader gets."""
        yield from map(self._row, self._reader.rows())

    def uncommitted(self) -> Iterator[Seen]:
        """Yield the rows of letters beyond the point where careful readers stand, where the reader tells them."""
        if isinstance(self._reader, LooksBehind):
            yield from map(self._row, self._reader.uncommitted())

    def orphans(self) -> Iterable[Orphan]:
        """Return what the letters' sink has left open."""
        return [Orphan(refused_by(each.sink), each.what) for each in self._reader.orphans()]

    def close(self) -> None:
        """Close the reader of the letters' target."""
        self._reader.close()

    def _row(self, seen: Seen) -> Seen:
        sink = refused_by(seen.sink)
        try:
            row = json.loads(json.loads(seen.value or b"")["row"])
            key, value = (self._bytes(row.get(name)) for name in ("key", "value"))
        except (ValueError, KeyError, TypeError, AttributeError):
            return replace(seen, sink=sink)
        return replace(seen, sink=sink, key=key, value=value)

    def _bytes(self, text: str | None) -> bytes | None:
        if text is None:
            return None
        return base64.b64decode(text, validate=True) if self._binary else text.encode()


def refused_by(sink: str) -> str:
    """Name the sink whose rows a sink has: its own, or of a sink of letters those of the one that refused them."""
    return sink.removesuffix(_LETTERS)


def as_rows(decisions: Sequence[Decision]) -> list[Decision]:
    """Count decided letters as rows of the sinks that refused them."""
    return [
        replace(each, slots=tuple(replace(slot, sink=refused_by(slot.sink)) for slot in each.slots))
        for each in decisions
    ]
