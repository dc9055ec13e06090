"""What is written of some rows, as columns: keys, values and headers, and what stands around them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.rows.arrow import is_plain, layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Numbers = npt.NDArray[np.int64]

NO_HEADERS = b"\0"
NEITHER = b"\0\0"
"""No attributes, and no time beyond the batch's."""

RECORD_BYTES_MAX = 23
"""Of a record without key, value and headers: four numbers of up to 5 bytes each (its length, its place in its
batch, the lengths of key and value), attributes, time, and that it has no headers."""

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]
"""Key, value and headers."""


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of binaries in plain pieces, one behind the other; the length of null is -1, as Kafka writes it."""

    pieces: Sequence[pa.Array]
    lengths: Numbers

    @classmethod
    def of(cls, pieces: Sequence[pa.Array]) -> Texts:
        """Look at strings and binaries of any kind; of plain ones, no byte is copied."""
        import numpy as np
        import pyarrow as pa

        plain = [piece if is_plain(piece.type) else piece.cast(pa.large_binary()) for piece in pieces]
        lengths = np.empty(sum(map(len, plain)), np.int64)
        begin = 0
        for piece in plain:
            here = lengths[begin : begin + len(piece)]
            here[:] = np.diff(layout(piece)[0])
            if piece.null_count:
                here[piece.is_null().to_numpy(zero_copy_only=False)] = -1
            begin += len(piece)
        return cls(plain, lengths)


@dataclass(frozen=True, slots=True)
class Fields:
    """What is written of some rows."""

    values: Texts
    keys: Texts | None
    """None where no row has one."""
    headers: Texts | None
    """As they are written, by ``spelled``; None where no row has any."""
    sizes: Numbers
    """The bytes of key, value and headers of each row."""

    @classmethod
    def of(
        cls, values: Sequence[pa.Array], keys: Sequence[pa.Array] | None, headers: Sequence[bytes] | None
    ) -> Fields:
        """Return them of columns in pieces, which need not be cut alike."""
        import pyarrow as pa

        found = Texts.of(values)
        others = (
            None if keys is None else Texts.of(keys),
            None if headers is None else Texts.of([pa.array(headers, pa.large_binary())]),
        )
        sizes = found.lengths.clip(0)
        for each in others:
            if each is not None:
                sizes += each.lengths.clip(0)
        return cls(found, *others, sizes)

    @classmethod
    def of_rows(cls, rows: Sequence[Row]) -> Fields:
        """Return them of rows that were read back."""
        import pyarrow as pa

        keys, values, listed = zip(*rows, strict=True)
        kind = pa.large_binary()
        return cls.of([pa.array(values, kind)], [pa.array(keys, kind)], [spelled(each) for each in listed])

    def __len__(self) -> int:
        return len(self.values.lengths)


def spelled(listed: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Return a row's headers as they are written behind its value."""
    text = varint(len(listed))
    for name, content in listed:
        encoded = name.encode()
        text += (
            varint(len(encoded))
            + encoded
            + varint(-1 if content is None else len(content))
            + (content or b"")
        )
    return text


def varint(number: int) -> bytes:
    """Encode as Kafka does: zigzag, seven bits a byte, the lowest first."""
    folded, text = (number << 1) ^ (number >> 63), bytearray()
    while folded >= 1 << 7:
        text.append(folded & 0x7F | 0x80)
        folded >>= 7
    text.append(folded)
    return bytes(text)
