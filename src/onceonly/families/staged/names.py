"""Names of what is staged: an attempt's epoch and slot, and a word that is drawn once. Pure, but for the draw."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onceonly.ports import WriteContext

_NAME = re.compile(r"(?P<epoch>\d+)\.\d+\.[0-9a-f]{32}\.arrow")


def new_name(context: WriteContext) -> str:
    """Return a name for what an attempt stages. It is never given again, so that nothing can be put in its place."""
    return f"{context.epoch}.{context.slot}.{uuid.uuid4().hex}.arrow"


def epoch_of(name: str) -> int | None:
    """Return the epoch that a staged name tells, None for another name."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match["epoch"])
