"""Rows, positions in them, and the proof that a position belongs to these rows.

A position is ``{"rows": n, "fingerprint": …}``: how many rows have been read, and the hash of exactly those.
After a restart the program gives the rows again; the fingerprint tells whether they begin with the rows that
were read before. A collection may have grown; it may not have changed.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from onceonly.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

_DIGEST_BYTES = 16


class Collection:
    """An immutable sequence of rows. Any process; pure."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table.combine_chunks()

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @classmethod
    def decode(cls, text: str) -> Collection:
        """Read what ``encode`` gave."""
        with pa.ipc.open_stream(base64.b64decode(text)) as reader:
            return cls(reader.read_all())

    def encode(self) -> str:
        """Return the rows as text that fits into an option: an Arrow stream in base64."""
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_stream(buffer, self.table.schema) as writer:
            writer.write_table(self.table)
        return base64.b64encode(buffer.getvalue()).decode("ascii")

    def position(self, rows: int) -> dict[str, Any]:
        """Name the position after the first ``rows`` rows."""
        return {"rows": rows, "fingerprint": self._fingerprints[rows]}

    def rows_before(self, position: dict[str, Any]) -> int:
        """Return the number of rows before a position. Raises ``ConfigurationError`` if it is of other rows."""
        rows = int(position["rows"])
        if rows > len(self) or self._fingerprints[rows] != position["fingerprint"]:
            raise ConfigurationError(
                f"the checkpoint stands after {rows} rows of another collection than the {len(self)} given now",
                next_step="give the rows that were given before (more may follow them), or start on a new "
                "checkpoint",
            )
        return rows

    def split(self, start: int, end: int, parts: int) -> Iterator[pa.Table]:
        """Cut rows ``start`` to ``end`` into at most ``parts`` neighbouring pieces, none of them empty."""
        parts = min(parts, end - start)
        for part in range(parts):
            first = start + (end - start) * part // parts
            last = start + (end - start) * (part + 1) // parts
            yield self.table.slice(first, last - first)

    @cached_property
    def _fingerprints(self) -> list[str]:
        """The fingerprint before each row, and after the last: a chain of hashes over the rows' values."""
        digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        given = [digest.hexdigest()]
        names = self.table.column_names
        for row in zip(*(column.to_pylist() for column in self.table.columns), strict=True):
            # The Python value's repr, not Arrow's bytes, which differ between versions of Arrow.
            digest.update(repr(list(zip(names, row, strict=True))).encode())
            given.append(digest.hexdigest())
        return given
