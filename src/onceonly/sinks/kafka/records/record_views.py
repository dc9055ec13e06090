"""Records made by numpy and Arrow, without a loop over rows: their texts' views, gathered by one call. Pure."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from onceonly.rows.arrow import layout
from onceonly.sinks.kafka.records.fields import NEITHER, NO_HEADERS, varint

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from onceonly.sinks.kafka.records.fields import Fields, Numbers, Texts

    Views = npt.NDArray[np.void]
    Spelled = tuple[Views | np.void, Numbers | int]
    """Texts, one for all rows or one for each, and how many bytes they have beside ``Fields.sizes``."""

# Arrow's views are four words (https://arrow.apache.org/docs/format/Columnar.html, Variable-size Binary View Layout):
# a length; then the text, up to so many bytes, or its beginning, the number of the buffer that it lies in, and where.
_VIEW = "V16"
_SHORT_MAX = 12
_BUFFER = 2
# Numbers below are spelled once and for all.
_TABLED = 1 << 14
_TABLES_MAX = 32


class Records:
    """Makes records of some rows, for any of them in any order."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        # Where the texts lie, as their views number it.
        self._data: list[pa.Buffer] = []
        self._values = _views(fields.values, self._data)
        self._keys = None if fields.keys is None else _views(fields.keys, self._data)
        self._headers = None if fields.headers is None else _views(fields.headers, self._data)

    def make(self, rows: Numbers, deltas: Numbers) -> tuple[pa.Buffer, Numbers]:
        """Return these rows as records, one behind the other, and where each begins; at last, where they end.

        A record is a row of texts, each of which Arrow has as a view: to make a plain column of views is to copy each
        text once, to where it belongs. Each text costs; so what ends a row without headers is spelled with what begins
        the next, and cut off before the first, and the length of keys that are all as long is spelled with what stands
        before it.
        """
        import numpy as np
        import pyarrow as pa

        fields = self._fields
        ahead = NO_HEADERS if self._headers is None else b""
        of_keys = np.array([-1]) if fields.keys is None else fields.keys.lengths[rows]
        if int(of_keys.min()) == int(of_keys.max()):
            texts = [_spelled(deltas, behind=varint(int(of_keys[0])))]
        else:
            texts = [_spelled(deltas), _spelled(of_keys)]
        if self._keys is not None:
            texts.append((self._keys[rows], 0))
        texts += [_spelled(fields.values.lengths[rows]), (self._values[rows], 0)]
        if self._headers is not None:
            texts.append((self._headers[rows], 0))
        bodies = fields.sizes[rows] + (len(NEITHER) + len(ahead))
        for _, widths in texts:
            bodies += widths
        texts.insert(0, _spelled(bodies, ahead=ahead, behind=NEITHER))
        views = np.empty(len(rows) * len(texts) + 1, _VIEW)
        of_rows = views[:-1].reshape(len(rows), len(texts))
        for place, (text, _) in enumerate(texts):
            of_rows[:, place] = text
        views[-1], _ = _one(ahead)
        column = pa.Array.from_buffers(pa.binary_view(), len(views), [None, pa.py_buffer(views), *self._data])
        # malloc's memory, which a worker keeps (``spark.memory``): other pools give back what the next batch needs.
        bounds, data = layout(column.cast(pa.large_binary(), memory_pool=pa.system_memory_pool()))
        return data.slice(len(ahead)), bounds[: -1 : len(texts)]


def _views(texts: Texts, data: list[pa.Buffer]) -> Views:
    """Return Arrow's views of all pieces; null is empty. Adds their memory to ``data``."""
    import numpy as np
    import pyarrow as pa

    views = np.empty((len(texts.lengths), 4), np.int32)
    begin = 0
    for piece in texts.pieces:
        try:
            seen = piece.cast(pa.binary_view())
        except pa.ArrowCapacityError:
            # Views reach 2 GB into a memory; of a piece behind that, which is small, the texts are copied out.
            seen = piece.take(pa.array(np.arange(len(piece)))).cast(pa.binary_view())
        _, words, *behind = seen.buffers()
        here = views[begin : begin + len(seen)]
        here[:] = np.frombuffer(words, np.int32).reshape(-1, 4)[seen.offset : seen.offset + len(seen)]
        if piece.null_count:
            here[piece.is_null().to_numpy(zero_copy_only=False)] = 0
        if data:
            here[:, _BUFFER] += np.where(here[:, 0] > _SHORT_MAX, len(data), 0).astype(np.int32)
        data += behind
        begin += len(seen)
    return views.view(_VIEW)[:, 0]


@functools.lru_cache(1024)
def _one(text: bytes) -> Spelled:
    """Return all rows one text."""
    import numpy as np

    return np.frombuffer(len(text).to_bytes(4, "little") + text.ljust(_SHORT_MAX, b"\0"), _VIEW)[0], len(text)


def _spelled(numbers: Numbers, ahead: bytes = b"", behind: bytes = b"") -> Spelled:
    """Spell numbers from -1 on as Kafka does, between some bytes: at most ``_SHORT_MAX`` of all of them."""
    low, high = int(numbers.min()), int(numbers.max())
    if low == high:
        return _one(ahead + varint(low) + behind)
    if high < _TABLED:
        texts, widths = _table(ahead, behind)
        places = numbers + 1
        return texts[places], widths[places]
    return _varints(numbers, ahead, behind)


@functools.lru_cache(_TABLES_MAX)
def _table(ahead: bytes, behind: bytes) -> tuple[Views, Numbers]:
    """Spell small numbers once, as ``_varints`` does, from -1 on."""
    import numpy as np

    return _varints(np.arange(-1, _TABLED), ahead, behind)


def _varints(numbers: Numbers, ahead: bytes, behind: bytes) -> tuple[Views, Numbers]:
    """Encode as Kafka does: zigzag, seven bits a byte, the lowest first. Give how many bytes each text has, too."""
    import numpy as np

    folded = (numbers << 1) ^ (numbers >> 63)
    widths = np.ones(len(numbers), np.int64)
    for place in range(1, len(varint(int(numbers.max())))):
        widths += folded >= 1 << 7 * place
    sizes = widths + (len(ahead) + len(behind))
    data = np.zeros((len(numbers), 16), np.uint8)
    data.view(np.int32)[:, 0] = sizes
    texts = data[:, 4:]
    texts[:, : len(ahead)] = np.frombuffer(ahead, np.uint8)
    for place in range(int(widths.max())):
        some = np.flatnonzero(widths > place)
        more = np.where(widths[some] > place + 1, 0x80, 0)
        texts[some, len(ahead) + place] = folded[some] >> 7 * place & 0x7F | more
    for place, byte in enumerate(behind):
        texts[np.arange(len(numbers)), len(ahead) + widths + place] = byte
    return data.view(_VIEW)[:, 0], sizes
