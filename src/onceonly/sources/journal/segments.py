"""How the files of a journal look: a header with checksum and version, a line that says what it is, and rows. Pure.

::

    {"format":"onceonly-journal","kind":"segment","version":1,"length":1048,"checksum":"xxh3:…"}
    {"journal":"5f…","number":17,"writer":"a0…","mark":"4711"}
    …an Arrow stream

A segment is written once, whole, under its number; nothing is ever added to it. A fold stands for all segments up to
its number, which are gone: it keeps the hashes of their ids.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import xxhash

from onceonly.durable.sealed import UNREADABLE, Format, decoder
from onceonly.errors import JournalError, SetupError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

SEGMENTS: Final = "segments/"
FOLDS: Final = "folds/"
CLAIMS: Final = "readers/"
_HASH_BYTES: Final = 16

T = TypeVar("T")

FORMAT = Format(
    name="onceonly-journal",
    version=1,
    restore="stop the query and restore this file; or drop the journal with `onceonly journal drop`, which gives up "
    "what is in it and not yet read",
    checksum=lambda body: "xxh3:" + xxhash.xxh3_128_hexdigest(body),
    error=JournalError,
)


class Identity(msgspec.Struct, frozen=True):
    """What a journal is of: ``feed`` is its kind, ``of`` the queue or address, without secrets."""

    journal: str
    feed: str
    of: str


class Reading(msgspec.Struct, frozen=True):
    """Who reads a journal, and up to which segment it will never ask again.

    ``named`` is what the newest commit of the query has named: read for good with the next one, also of a later start.
    ``claim`` is the number of the claim under which that was noted. ``stood`` is the segment after which the query has
    asked for more while there was nothing.
    """

    reader: str
    upto: int = 0
    named: int = 0
    claim: int = 0
    stood: int = 0


class Receiving(msgspec.Struct, frozen=True):
    """What those who have written a journal promise up to it, as far as what they wrote may be unread.

    ``upto`` has for each promise the newest segment that stands under it, 0 where one may still be written; nothing
    where an older version has noted it. ``named`` is what the newest of them names rows by, None where none has said.
    """

    promises: tuple[str, ...]
    upto: tuple[int, ...] = ()
    named: str | None = None


class Claimed(msgspec.Struct, frozen=True):
    """One start's claim to read a journal."""

    reader: str


class Segment(msgspec.Struct, frozen=True):
    """What a segment says of itself. ``mark`` is where the feed goes on after it, in the feed's own words.

    ``at_s`` is for how long the journal was written in all, by all its writers: a clock that nobody sets. ``rows`` is
    how many it has, -1 where an older version has written it.
    """

    journal: str
    number: int
    writer: str
    mark: str | None = None
    at_s: float = 0.0
    rows: int = -1


class Fold(msgspec.Struct, frozen=True):
    """What is left of the segments up to ``number``, besides the hashes of their ids. ``at_s`` as in a segment."""

    journal: str
    number: int
    mark: str | None = None
    at_s: float = 0.0


class Again(msgspec.Struct, frozen=True):
    """The ids that came again: ``ages`` says when, as in a segment, and of how many of the hashes that follow."""

    journal: str
    ages: tuple[tuple[float, int], ...]


def name_of(folder: str, number: int) -> str:
    """Return the name of a segment or fold."""
    return f"{folder}{number:020d}"


def number_of(name: str) -> int:
    """Return the number in a name; -1 for a name that has none."""
    text = name.rpartition("/")[2]
    return int(text) if text.isdecimal() else -1


def encode(segment: Segment, rows: pa.Table) -> bytes:
    """Return the bytes of a segment. Those of two writers always differ."""
    pa = arrow()
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, rows.schema) as stream:
        stream.write_table(rows)
    return FORMAT.seal("segment", b"\n".join((msgspec.json.encode(segment), buffer.getvalue())))


def decode(data: bytes, number: int, *, where: str) -> tuple[Segment, pa.Table]:
    """Return a segment and its rows, which lie in ``data``. Raises ``JournalError`` for one that cannot be used."""
    head, body = _open(FORMAT.unseal(data, kind="segment", where=where), Segment, where)
    _require_number(head, number, where)
    pa = arrow()
    try:
        with pa.ipc.open_stream(pa.py_buffer(body)) as stream:
            return head, stream.read_all()
    except pa.ArrowException as error:
        raise FORMAT.unknown(where, error) from None


def decode_head(data: bytes, number: int, *, where: str) -> Segment | None:
    """Return what a segment says of itself from its first bytes. Raises ``JournalError``.

    None where that is longer, or is not known. Whoever reads its rows sees whether it is damaged.
    """
    line, newline, _ = FORMAT.begun(data, kind="segment", where=where).partition(b"\n")
    try:
        head = decoder(Segment).decode(line) if newline else None
    except UNREADABLE:
        head = None
    if head is None:
        return None
    _require_number(head, number, where)
    return head


def encode_fold(fold: Fold, hashes: Iterable[bytes]) -> bytes:
    """Return the bytes of a fold."""
    return FORMAT.seal("fold", b"\n".join((msgspec.json.encode(fold), b"".join(hashes))))


def decode_fold(data: bytes, *, where: str) -> tuple[Fold, list[bytes]]:
    """Return a fold and the hashes in it. Raises ``JournalError``."""
    fold, body = _open(FORMAT.unseal(data, kind="fold", where=where), Fold, where)
    return fold, _hashes(body)


def encode_again(journal: str, came: Mapping[float, Sequence[bytes]]) -> bytes:
    """Return the bytes of the file of ids that came again, by when they did."""
    head = Again(journal=journal, ages=tuple((at_s, len(hashes)) for at_s, hashes in came.items()))
    hashes = b"".join(chain.from_iterable(came.values()))
    return FORMAT.seal("again", b"\n".join((msgspec.json.encode(head), hashes)))


def decode_again(data: bytes, *, where: str) -> tuple[str, dict[float, list[bytes]]]:
    """Return the journal that such a file is of, and the hashes in it by when they came. Raises ``JournalError``."""
    head, body = _open(FORMAT.unseal(data, kind="again", where=where), Again, where)
    hashes = iter(_hashes(body))
    return head.journal, {at_s: list(islice(hashes, count)) for at_s, count in head.ages}


def encode_note(kind: str, note: msgspec.Struct) -> bytes:
    """Return the bytes of an ``Identity``, a ``Reading`` or another note."""
    return FORMAT.seal(kind, msgspec.json.encode(note))


def decode_note(data: bytes, kind: str, form: type[T], *, where: str) -> T:
    """Return the note in a file. Raises ``JournalError``."""
    return FORMAT.read(data, form, kind=kind, where=where)


def hash_of(key: str) -> bytes:
    """Return what is remembered of an id: so many bits that two ids never share them."""
    return xxhash.xxh3_128_digest(key.encode())


def arrow() -> Any:  # noqa: ANN401  a module
    """Return pyarrow. Raises ``SetupError`` where it is missing."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise SetupError(
            f"a journal needs the package pyarrow, which cannot be used here: {error}",
            next_step="pip install pyarrow, where the receiver runs and on driver and executors",
        ) from error
    return pa


def _hashes(body: memoryview) -> list[bytes]:
    raw = bytes(body)
    return [raw[at : at + _HASH_BYTES] for at in range(0, len(raw), _HASH_BYTES)]


def _require_number(head: Segment, number: int, where: str) -> None:
    if head.number != number:
        raise FORMAT.refuse(f"{where} holds segment {head.number}: a file was moved by hand")


def _open(body: bytes, form: type[T], where: str) -> tuple[T, memoryview]:
    end = body.find(b"\n")
    return FORMAT.decode(body[:end], form, where=where), memoryview(body)[end + 1 :]
