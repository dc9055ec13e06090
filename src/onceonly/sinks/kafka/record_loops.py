"""Records made by a loop over rows, which numba compiles (``onceonly.compiled``): each text is copied once. Pure.

The same bytes as ``record_views`` makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from onceonly import compiled
from onceonly.arrow import layout
from onceonly.compiled import WORD, jit
from onceonly.sinks.kafka.fields import NO_HEADERS, RECORD_BYTES_MAX

if TYPE_CHECKING:
    import numpy.typing as npt

    from onceonly.sinks.kafka.fields import Fields, Numbers, Texts

    Bytes = npt.NDArray[np.uint8]
    Words = npt.NDArray[np.uint64]
    Places = tuple[Numbers, Numbers, Bytes]
    """Where each text begins, its length, -1 for null, and the bytes."""


class Records:
    """Makes records of some rows, for any of them in any order."""

    def __init__(self, fields: Fields) -> None:
        count = len(fields)
        self._sizes = fields.sizes
        self._values = _places(fields.values)
        self._keys = _same(-1, b"", count) if fields.keys is None else _places(fields.keys)
        self._headers = (
            _same(len(NO_HEADERS), NO_HEADERS, count) if fields.headers is None else _places(fields.headers)
        )

    def make(self, rows: Numbers, deltas: Numbers) -> tuple[pa.Buffer, Numbers]:
        """Give these rows as records, one behind the other, and where each begins; at last, where they end."""
        # A number is written as a word, of which the rest is written over, or stays behind the last record.
        most = int(self._sizes[rows].sum()) + len(rows) * RECORD_BYTES_MAX + WORD
        # malloc's memory, which a worker keeps (``spark.memory``).
        memory = pa.allocate_buffer(most, memory_pool=pa.system_memory_pool())
        data = np.frombuffer(memory, np.uint8)
        bounds = np.empty(len(rows) + 1, np.int64)
        _make(rows, deltas, *self._keys, *self._values, *self._headers, data, compiled.words(data), bounds)
        return memory.slice(0, int(bounds[-1])), bounds


def _places(texts: Texts) -> Places:
    pieces = texts.pieces
    column = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces, memory_pool=pa.system_memory_pool())
    bounds, memory = layout(column)
    return bounds[:-1], texts.lengths, np.frombuffer(b"" if memory is None else memory, np.uint8)


def _same(length: int, text: bytes, count: int) -> Places:
    """Give all rows one text."""
    return np.zeros(count, np.int64), np.full(count, length), np.frombuffer(text, np.uint8)


memcpy: Any = cgutils.raw_memcpy  # without types

# Helpers take numbers only: an array that is handed on is counted as used, and that takes longer than the rest.


@jit("number", "number")
def _width(number: int) -> int:
    """Say how many bytes a number has, from -1 to 2,147,483,647."""
    folded = (number << 1) ^ (number >> 63)
    return 1 + (folded >= 1 << 7) + (folded >= 1 << 14) + (folded >= 1 << 21) + (folded >= 1 << 28)


@jit("word", "number", "number")
def _spelled(number: int, width: int) -> Any:  # noqa: ANN401  numba's word
    """Give such a number as ``fields.varint`` writes it, the first byte lowest; its width is that of ``_width``."""
    folded = (number << 1) ^ (number >> 63)
    sevens = folded & 0x7F | (folded & 0x3F80) << 1 | (folded & 0x1FC000) << 2 | (folded & 0xFE00000) << 3
    sevens |= (folded & 0x7F0000000) << 4
    return np.uint64(sevens | 0x80808080 & ((1 << 8 * (width - 1)) - 1))


def _copied(_context: Any, to: Any, place: Any, data: Any, start: Any, length: Any) -> Any:  # noqa: ANN401  numba's
    """Copy bytes from one array into another one, by ``memcpy``."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:  # noqa: ANN401  numba's
        into, out_of = (
            builder.gep(context.make_array(kind)(context, builder, array).data, [begin])
            for kind, array, begin in ((signature.args[0], *given[:2]), (signature.args[2], *given[2:4]))
        )
        memcpy(builder, into, out_of, given[4], 1)
        return context.get_dummy_value()

    return types.void(to, place, data, start, length), generate


_copy: Any = intrinsic(_copied)


@jit("nothing", *["numbers"] * 2, *["numbers", "numbers", "bytes"] * 3, "to bytes", "to words", "to numbers")
def _make(  # noqa: PLR0913, PLR0917  three columns as they lie in memory; numba's loops know no objects
    rows: Numbers,
    deltas: Numbers,
    key_starts: Numbers,
    key_lengths: Numbers,
    keys: Bytes,
    value_starts: Numbers,
    value_lengths: Numbers,
    values: Bytes,
    header_starts: Numbers,
    header_lengths: Numbers,
    headers: Bytes,
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
            _copy(data, place, keys, key_starts[row], key)
            place += key
        words[place] = _spelled(value, of_value)
        place += of_value
        if value > 0:
            _copy(data, place, values, value_starts[row], value)
            place += value
        _copy(data, place, headers, header_starts[row], header)
        place += header
    bounds[len(rows)] = place
