"""Rows by partition, and the names of its folders. Executor; needs pyarrow.

Readers of a table take a partition's values from its log. The folders have Hive's names for people; names that a file
system or a bucket does not take are shortened.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_NAME_BYTES_MAX = 200
"""Names have at most 255 bytes; some file systems that encrypt them take fewer."""
_FOLDERS_BYTES_MAX = 600
"""A key of a bucket has 1,024, with the table's own place and the file's name."""
_ESCAPED = re.compile(r'[\x00-\x1f"#%\'*/:=?\\\x7f{\[\]^]')
_ROW = "row"


def split(
    rows: pa.RecordBatch, keys: Mapping[str, pa.Array]
) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """Yield the values of each partition, and its rows: copies. ``keys`` has the value of each row, by name."""
    import pyarrow as pa

    if not keys:
        yield (), rows
        return
    names = [str(place) for place in range(len(keys))]
    table = pa.table([*keys.values(), pa.array(range(rows.num_rows), pa.int64())], names=[*names, _ROW])
    # In one thread, so that groups come in the order of their first rows.
    groups = table.group_by(names, use_threads=False).aggregate([(_ROW, "list")])
    places = groups.column(f"{_ROW}_list")
    for group in range(groups.num_rows):
        yield tuple(groups.column(name)[group].as_py() for name in names), rows.take(places[group].values)


def folder(values: Mapping[str, str | None]) -> str:
    """Return the folder of a partition's values, as texts: ``day=2026-11-21/shop=7``; empty where it has none."""
    parts = [f"{_escape(name)}={_escape(value) if value else NULL_FOLDER}" for name, value in values.items()]
    is_long = sum(len(part.encode()) + 1 for part in parts) > _FOLDERS_BYTES_MAX
    return "/".join(
        _shortened(name, part) if is_long or len(part.encode()) > _NAME_BYTES_MAX else part
        for name, part in zip(values, parts, strict=True)
    )


def _shortened(name: str, part: str) -> str:
    return f"{hashlib.sha256(name.encode()).hexdigest()[:8]}={hashlib.sha256(part.encode()).hexdigest()[:32]}"


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)
