"""Records made by a loop over rows, which numba compiles (``rows.compiled``): each text is copied once. Pure.

The same bytes as ``record_views`` makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from onceonly.rows.arrow import at_each_byte, layout
from onceonly.rows.compiled import check, jit
from onceonly.sinks.kafka.records.fields import NO_HEADERS, RECORD_BYTES_MAX, Fields, varint

if TYPE_CHECKING:
    import numpy.typing as npt

    from onceonly.sinks.kafka.records.fields import Numbers, Texts

    Bytes = npt.NDArray[np.uint8]
    Words = npt.NDArray[np.uint64]
    Places = tuple[Numbers, Numbers]
    """The address of each text, and its length, -1 for null."""

_WORD_BYTES = 8
_NO_HEADERS = np.frombuffer(NO_HEADERS, np.uint8)


class Records:
    """Makes records of some rows, for any of them in any order."""

    def __init__(self, fields: Fields) -> None:
        count = len(fields)
        self._fields = fields  # whose memory the addresses are of
        self._values = _places(fields.values)
        self._keys = _same(_NO_HEADERS, -1, count) if fields.keys is None else _places(fields.keys)
        self._headers = (
            _same(_NO_HEADERS, len(_NO_HEADERS), count) if fields.headers is None else _places(fields.headers)
        )

    def make(self, rows: Numbers, deltas: Numbers) -> tuple[pa.Buffer, Numbers]:
        """Return these rows as records, one behind the other, and where each begins; at last, where they end."""
        # A number is written as a word, of which the rest is written over, or stays behind the last record.
        most = int(self._fields.sizes[rows].sum()) + len(rows) * RECORD_BYTES_MAX + _WORD_BYTES
        # malloc's memory, which a worker keeps (``spark.memory``).
        memory = pa.allocate_buffer(most, memory_pool=pa.system_memory_pool())
        data = np.frombuffer(memory, np.uint8)
        bounds = np.empty(len(rows) + 1, np.int64)
        _make(rows, deltas, *self._keys, *self._values, *self._headers, data, at_each_byte(data), bounds)
        return memory.slice(0, int(bounds[-1])), bounds


def _places(texts: Texts) -> Places:
    addresses = np.empty(len(texts.lengths), np.int64)
    begin = 0
    for piece in texts.pieces:
        bounds, memory = layout(piece)
        # Without memory, no text has a byte that could be looked for.
        addresses[begin : begin + len(piece)] = bounds[:-1] + (0 if memory is None else memory.address)
        begin += len(piece)
    return addresses, texts.lengths


def _same(text: Bytes, length: int, count: int) -> Places:
    """Return all rows one text, whose memory stays."""
    return np.full(count, text.ctypes.data, np.int64), np.full(count, length, np.int64)


# Helpers take numbers only: to hand on an array is to count it as used, which takes longer than all the rest (ADR 12).


@jit("number", "number")
def _width(number: int) -> int:
    """Say how many bytes a number has, from -1 to 2,147,483,647."""
    folded = (number << 1) ^ (number >> 63)
    return 1 + (folded >= 1 << 7) + (folded >= 1 << 14) + (folded >= 1 << 21) + (folded >= 1 << 28)


@jit("word", "number", "number")
def _spelled(number: int, width: int) -> Any:  # noqa: ANN401  numba's word
    """Return such a number as ``fields.varint`` writes it, the first byte lowest; its width is that of ``_width``."""
    folded = (number << 1) ^ (number >> 63)
    sevens = folded & 0x7F | (folded & 0x3F80) << 1 | (folded & 0x1FC000) << 2 | (folded & 0xFE00000) << 3
    sevens |= (folded & 0x7F0000000) << 4
    return np.uint64(sevens | 0x80808080 & ((1 << 8 * (width - 1)) - 1))


memcpy: Any = cgutils.raw_memcpy  # without types


def _copied(_context: Any, to: Any, place: Any, address: Any, length: Any) -> Any:  # noqa: ANN401  numba's
    """Copy bytes from an address into an array, by ``memcpy``."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:  # noqa: ANN401  numba's
        array, begin, of, count = given
        data = context.make_array(signature.args[0])(context, builder, array).data
        memcpy(builder, builder.gep(data, [begin]), builder.inttoptr(of, data.type), count, 1)
        return context.get_dummy_value()

    return types.void(to, place, address, length), generate


_copy: Any = intrinsic(_copied)


@jit("nothing", *["numbers"] * 8, "to bytes", "to words", "to numbers")
def _make(  # noqa: PLR0913, PLR0917  three columns as they lie in memory; numba's loops know no objects
    rows: Numbers,
    deltas: Numbers,
    keys: Numbers,
    key_lengths: Numbers,
    values: Numbers,
    value_lengths: Numbers,
    headers: Numbers,
    header_lengths: Numbers,
    data: Bytes,
    words: Words,
    bounds: Numbers,
) -> None:
    place = 0
    for number in range(len(rows)):
        row, delta = rows[number], deltas[number]
        bounds[number] = place
        key, value, header = key_lengths[row], value_lengths[row], header_lengths[row]
        of_delta, of_key, of_value = _width(delta), _width(key), _width(value)
        body = 2 + of_delta + of_key + max(key, 0) + of_value + max(value, 0) + header
        of_body = _width(body)
        words[place] = _spelled(body, of_body)
        place += of_body
        data[place] = 0  # no attributes
        data[place + 1] = 0  # no time beyond the batch's
        words[place + 2] = _spelled(delta, of_delta)
        place += 2 + of_delta
        words[place] = _spelled(key, of_key)
        place += of_key
        if key > 0:
            _copy(data, place, keys[row], key)
            place += key
        words[place] = _spelled(value, of_value)
        place += of_value
        if value > 0:
            _copy(data, place, values[row], value)
            place += value
        _copy(data, place, headers[row], header)
        place += header
    bounds[len(rows)] = place


def _one() -> bytes:
    rows = np.zeros(1, np.int64)
    found, _ = Records(Fields.of([pa.array([b"value"])], [pa.array([None], pa.binary())], None)).make(
        rows, rows
    )
    text: bytes = found.to_pybytes()
    return text


check(_one(), varint(11) + b"\0\0\0" + varint(-1) + varint(5) + b"value" + NO_HEADERS)
