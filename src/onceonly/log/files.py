"""The files of the log: what they are called, and what they hold: a sealed header, then the value as JSON.

A reader takes a file as a whole or refuses it by name: of a newer version, of another kind, torn, damaged, or
with a field that this version does not know. Files of an earlier version are read; what they could not say yet has its
default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from onceonly import background
from onceonly.durable.sealed import UNREADABLE, Format, decoder

if TYPE_CHECKING:
    from onceonly.stores.port import Store

T = TypeVar("T")

LINKS = "links/"
RECEIPTS = "receipts/"
HISTORY = "history/"
FOLDERS = (LINKS, RECEIPTS, HISTORY)

_LINK = re.compile(r"links/(\d{20})\.(\d+)\.json")
_RECEIPT = re.compile(r"receipts/(\d{20})\.json")
_SEGMENT = re.compile(r"history/(\d{20})-(\d{20})\.json")

VERSION = 4
"""4: the columns of a sink's rows in links, the sum of their checksums in history, for audits. 3: how many bytes the
rows of a vote had, in links and history, for people. 2: times for people (``Stamp``) in links, votes, receipts and
history, and what an epoch read in its decision (``Inputs``). Earlier ones are read as ever."""
PUT_BACK = (
    "put back what is named, unchanged, from the newest backup of this checkpoint that has it (a file of the log never "
    "changes once it is written), or start on a new checkpoint"
)
"""The next step for a file that is damaged, gone or in another's place."""
_FORMAT = Format(name="onceonly", version=VERSION, restore=PUT_BACK)


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


def encode(kind: str, value: object) -> bytes:
    """Return the file's content. The same value always gives the same bytes."""
    return _FORMAT.seal(kind, msgspec.json.encode(value, enc_hook=_plain, order="deterministic"))


def decode(data: bytes, *, kind: str, into: type[T], where: str) -> T:
    """Return the value of a file's content. ``where`` is the file's full address, for the error.

    Raises ``LogError``; never gives a part of a value.
    """
    body = _FORMAT.unseal(data, kind=kind, where=where)
    try:
        value = decoder(into).decode(body)
    except UNREADABLE as error:
        raise _FORMAT.refuse(f"{where} does not hold a valid {kind}: {error}") from None
    if not _holds(msgspec.json.decode(msgspec.json.encode(value)), msgspec.json.decode(body)):
        # Dataclasses drop what they do not know; to go on without knowing what it said is not safe.
        raise _FORMAT.refuse(
            f"{where} has fields that format {VERSION} does not have: something else wrote it"
        )
    return value


def read(store: Store, name: str, *, kind: str, into: type[T]) -> T | None:
    """Read a file of the log, None where nothing has this name. Raises ``LogError``, ``UnavailableError``."""
    data = store.get(name)
    return None if data is None else decode(data, kind=kind, into=into, where=store.where(name))


def sums(store: Store, names: Sequence[str]) -> dict[str, str]:
    """Return the checksums of files of the log as their headers say them; empty where nothing has a name.

    For people: whoever reads a file compares it. Raises ``UnavailableError``.
    """

    def read(name: str) -> str:
        return _FORMAT.sum_in(store.get(name) or b"")

    found = background.spread("onceonly-sums", read, names, threads_max=store.abreast)
    return dict(zip(names, found, strict=True))


def _holds(value: Any, told: Any) -> bool:  # noqa: ANN401  what JSON holds
    """Say whether all that a file told is in the value, which may have more: defaults of newer fields."""
    if value == told:
        return True
    if isinstance(value, dict) and isinstance(told, dict):
        return all(key in value and _holds(value[key], item) for key, item in told.items())
    if isinstance(value, list) and isinstance(told, list):
        return len(value) == len(told) and all(map(_holds, value, told))
    return False


def _plain(value: Any) -> Any:  # noqa: ANN401  msgspec's hook takes anything
    if isinstance(value, Mapping):
        return dict(value)
    message = f"{type(value).__name__} cannot go into the decision log"
    raise TypeError(message)
