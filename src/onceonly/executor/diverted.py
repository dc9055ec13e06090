"""Rows that were diverted: dead letters, as the target refused them beside all others of their epoch.

Before the decision the driver diverts them, after it an operator. Their letters are in a transaction of their own, and
have a slot of their own: what the attempt at their slot has refused itself may be another one. The sink would take them
where something of their slot is lost and written again. So the handle of these letters says of which slot they are, and
by hashes which of its rows. Executor, driver, and the operator's process.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.model import letters_name
from onceonly.ports import Refused
from onceonly.rows.checksum import hashes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from onceonly.model import Handle, Plan, Vote

_DIVERTED = "onceonly.diverted"
"""What a handle's data say of the rows whose letters it has: hashes of 8 bytes, in Base64."""
_SLOT = "onceonly.slot"
"""What they say of the slot whose rows these were."""
_WITHOUT = "onceonly.without"
"""What the data of a slot's own handle say of rows that it is without: how far each is from the one before, packed."""
_FIRST = 1_000_000
"""The first slot that is given to diverted rows: no query has so many."""
_WHY = "its target refused it beside the others of its epoch, and it was diverted"


def told(rows: pa.RecordBatch) -> bytes:
    """Return what is said of rows that are diverted."""
    return hashes(rows).astype("<u8").tobytes()


def marked(handle: Handle | None, rows: bytes, slot: int) -> Handle | None:
    """Let a handle say of which rows of a slot it has the letters, by what is ``told`` of these. Pure."""
    if handle is None:
        return None
    return replace(handle, data={**handle.data, _DIVERTED: base64.b64encode(rows).decode(), _SLOT: slot})


def of_slot(vote: Vote) -> int | None:
    """Return the slot whose diverted rows a vote's letters are of; None for any other vote. Pure."""
    found = None if vote.handle is None else vote.handle.data.get(_SLOT)
    return None if found is None else int(found)


def free_slot(votes: Iterable[Vote]) -> int:
    """Return the slot for the next letters of diverted rows, where an epoch has these votes. Pure."""
    return max((vote.slot + 1 for vote in votes if vote.slot >= _FIRST), default=_FIRST)


def without(handle: Handle | None, numbers: Sequence[int]) -> Handle | None:
    """Let a handle say which of its slot's rows it is without, by their numbers in the slot."""
    import numpy as np

    if handle is None or not numbers:
        return handle
    steps = np.diff(np.sort(np.asarray(numbers, np.int64)), prepend=0)
    packed = base64.b64encode(zlib.compress(steps.astype("<u4").tobytes())).decode()
    return replace(handle, data={**handle.data, _WITHOUT: packed})


def numbers_without(handle: Handle) -> list[int]:
    """Return the numbers of the rows that a handle is without."""
    import numpy as np

    packed = str(handle.data.get(_WITHOUT, ""))
    steps = np.frombuffer(zlib.decompress(base64.b64decode(packed)), "<u4") if packed else np.zeros(0)
    return [int(number) for number in np.cumsum(steps)]


class Diverted:
    """Those of one attempt at a slot of which something is written again."""

    def __init__(self, plan: Plan, sink: str, slot: int) -> None:
        own = [vote for vote in (*plan.carried, *plan.lost) if vote.sink == letters_name(sink)]
        self._left = {vote.slot: _hashes(vote.handle) for vote in own if of_slot(vote) == slot}

    def among(self, batch: pa.RecordBatch) -> dict[int, list[Refused]]:
        """Return those of a batch that were diverted, by the slot that their letters have, each as often as it was."""
        found: dict[int, list[Refused]] = {}
        for row, each in enumerate(hashes(batch).tolist() if self._left else ()):
            for slot, left in self._left.items():
                if left[each] > 0:
                    left[each] -= 1
                    found.setdefault(slot, []).append(Refused(row=row, code="DIVERTED", why=_WHY))
                    break
        return found


def _hashes(handle: Handle | None) -> Counter[int]:
    rows = b"" if handle is None else base64.b64decode(str(handle.data[_DIVERTED]))
    return Counter(value for (value,) in struct.iter_unpack("<Q", rows))
