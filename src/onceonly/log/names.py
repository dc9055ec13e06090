"""The names of the log's files. Pure."""

from __future__ import annotations

import re

LINKS = "links/"
RECEIPTS = "receipts/"
HISTORY = "history/"
FOLDERS = (LINKS, RECEIPTS, HISTORY)

_LINK = re.compile(r"links/(\d{20})\.(\d+)\.json")
_RECEIPT = re.compile(r"receipts/(\d{20})\.json")
_SEGMENT = re.compile(r"history/(\d{20})-(\d{20})\.json")


def link(epoch: int, index: int) -> str:
    """Name a link: the epoch padded, so that a listing by name is one by number."""
    return f"{LINKS}{epoch:020d}.{index}.json"


def receipt(epoch: int) -> str:
    """Name a receipt."""
    return f"{RECEIPTS}{epoch:020d}.json"


def segment(first: int, last: int) -> str:
    """Name a segment of history by the epochs that it covers."""
    return f"{HISTORY}{first:020d}-{last:020d}.json"


def parse_link(name: str) -> tuple[int, int] | None:
    """Return epoch and index; None for a name that is not ours."""
    match = _LINK.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def parse_receipt(name: str) -> int | None:
    """Return the epoch; None for a name that is not ours."""
    match = _RECEIPT.fullmatch(name)
    return int(match[1]) if match else None


def parse_segment(name: str) -> tuple[int, int] | None:
    """Return first and last epoch; None for a name that is not ours."""
    match = _SEGMENT.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def epoch_of(name: str) -> int | None:
    """Return the epoch of a link or a receipt; None for any other name."""
    parsed = parse_link(name)
    return parsed[0] if parsed else parse_receipt(name)
