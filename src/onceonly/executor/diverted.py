"""Rows that were diverted: dead letters, as the target refused them beside all others of their epoch.

Before the decision the driver diverts them, after it an operator. The sink itself would take them when its slot is
written again, as what was staged of the others is lost. So the handles of both say which they were, by hashes of rows.
Executor, driver, and the operator's process.
"""

from __future__ import annotations

import base64
import struct
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.model import letters_name
from onceonly.ports import Refused
from onceonly.rows.checksum import hashes

if TYPE_CHECKING:
    import pyarrow as pa

    from onceonly.model import Handle, Plan

_DIVERTED = "onceonly.diverted"
"""What a handle's data say of it: hashes of 8 bytes, in Base64."""
_WHY = "its target refused it beside the others of its epoch, and it was diverted"


def of(handle: Handle | None) -> bytes:
    """Return what a handle says of rows that were diverted from its slot. Pure."""
    return b"" if handle is None else base64.b64decode(str(handle.data.get(_DIVERTED, "")))


def marked(handle: Handle | None, diverted: bytes) -> Handle | None:
    """Let a handle say which rows were diverted from its slot. Pure."""
    if handle is None or not diverted:
        return handle
    return replace(handle, data={**handle.data, _DIVERTED: base64.b64encode(diverted).decode()})


def told(rows: pa.RecordBatch) -> bytes:
    """Return what is said of rows that are diverted."""
    return hashes(rows).astype("<u8").tobytes()


class Diverted:
    """Those of one attempt at a slot of which something is written again; ``told`` is what is said of them."""

    def __init__(self, plan: Plan, sink: str, slot: int) -> None:
        mine = (vote for vote in plan.lost if vote.sink in {sink, letters_name(sink)} and vote.slot == slot)
        self.told = max((of(vote.handle) for vote in mine), key=len, default=b"")
        self._left = Counter(value for (value,) in struct.iter_unpack("<Q", self.told))

    def among(self, batch: pa.RecordBatch) -> list[Refused]:
        """Return those of a batch that were diverted, each as often as it was."""
        if not self._left:
            return []
        found = []
        for row, each in enumerate(hashes(batch).tolist()):
            if self._left[each] > 0:
                self._left[each] -= 1
                found.append(Refused(row=row, code="DIVERTED", why=_WHY))
        return found
