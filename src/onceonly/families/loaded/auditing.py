"""Whether a table still has the files that an epoch gave it, and these the rows. An operator's process; only looks.

A length alone proves nothing of a file that somebody has changed in its place: its rows are read, and added up as they
were when they were written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onceonly.families.columns import arrow_of, find, parse
from onceonly.ports.standing import NO_COLUMNS, Held
from onceonly.rows.checksum import RowChecksum
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa

    from onceonly.families.loaded.attempt import Layout
    from onceonly.families.loaded.load import DataFile, Load
    from onceonly.families.loaded.places import Home

ROWS = 10_000
"""So many at a time."""


def held(home: Home, seen: Iterable[str], loads: Iterable[Load]) -> Held:
    """Compare the files of one epoch, by their lengths, with what a reader of the table sees."""
    now = home.known(seen)
    rows = 0
    wrong: list[str] = []
    for load in loads:
        sizes = home.sizes(load.folder, [file.path for file in load.files])
        for file, size in zip(load.files, sizes, strict=True):
            path = f"{load.folder}/{file.path}"
            if home.called(path) not in now:
                wrong.append(
                    f"{home.text}/{path}: the table no longer has it: some of its {n(file.rows, 'row')} changed "
                    "or removed, or the table was compacted"
                )
            elif size != file.bytes:
                wrong.append(f"{home.text}/{path}: it is gone, or not as long as it was written")
            else:
                rows += file.rows
    return Held(rows=rows, wrong=tuple(wrong))


def read_back(
    home: Home,
    counted: Held,
    loads: Sequence[Load],
    columns: Sequence[tuple[str, str]],
    layout: Callable[[Mapping[str, str | int]], Layout],
) -> Held:
    """Read the rows of files that are as long as they were written, as rows of a query with these columns."""
    import pyarrow as pa

    if not columns:
        return replace(counted, unread=NO_COLUMNS)
    kinds = [(name, arrow_of(parse(spark))) for name, spark in columns]
    total, rows = RowChecksum(), 0
    for load in loads:
        left_out = layout({"columns": load.columns, "indexed": 0}).left_out
        for file in load.files:
            path = f"{home.text}/{load.folder}/{file.path}"
            keys = dict(zip(left_out, file.keys, strict=False))
            try:
                for batch in _batches(home, load, file):
                    rows += batch.num_rows
                    total.add(_as_written(batch, kinds, keys))
            except _UnreadError as error:
                return replace(counted, unread=str(error))
            except (pa.ArrowInvalid, OSError) as error:
                what = f"{path}: it has other content than was written: {str(error).splitlines()[0]}"
                return Held(rows=counted.rows - file.rows, wrong=(what,))
    return replace(counted, rows=rows, checksum=total.value)


class _UnreadError(Exception):
    """Why rows cannot be read as they were written."""


def _batches(home: Home, load: Load, file: DataFile) -> Iterable[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with home.open(f"{load.folder}/{file.path}") as opened:
        yield from pq.ParquetFile(opened).iter_batches(ROWS)


def _as_written(
    batch: pa.RecordBatch, kinds: Sequence[tuple[str, pa.DataType | None]], keys: Mapping[str, str | None]
) -> pa.RecordBatch:
    """Return rows of a file with columns and types of the query. Raises Arrow's errors, and ``_UnreadError``."""
    import pyarrow as pa

    arrays = []
    for name, kind in kinds:
        if kind is None:
            message = f"its column {name} is of a type that is not read back"
            raise _UnreadError(message)
        own, key = find(name, batch.schema.names), find(name, list(keys))
        if own is None and key is None:
            message = f"its files have no column {name}"
            raise _UnreadError(message)
        column = _key(name, keys[key], kind, batch.num_rows) if own is None else batch.column(own)  # type: ignore[index]
        arrays.append(_cast(name, column, kind))
    return pa.RecordBatch.from_arrays(arrays, [name for name, _ in kinds])


def _key(name: str, text: str | None, kind: pa.DataType, rows: int) -> pa.Array:
    """Return the value of a partition as a column."""
    import pyarrow as pa

    if text is None and pa.types.is_string(kind):
        message = f"its partition column {name} may be null or empty, which the table keeps as one"
        raise _UnreadError(message)
    if pa.types.is_floating(kind) and str(text).lower() == "nan":
        message = f"its column {name} has NaN, which is written in more ways than one"
        raise _UnreadError(message)
    return pa.array([text] * rows, pa.string())


def _cast(name: str, column: Any, kind: pa.DataType) -> pa.Array:  # noqa: ANN401  an array of any kind
    import pyarrow as pa

    if column.type == kind:
        return column
    try:
        if pa.types.is_integer(kind) and pa.types.is_decimal(column.type):
            column = column.cast(pa.int64())
        return column.cast(kind)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowInvalid) as error:
        if isinstance(error, pa.ArrowInvalid) and not pa.types.is_nested(kind):
            raise
        message = f"its column {name} is not read back as it was written: {str(error).splitlines()[0]}"
        raise _UnreadError(message) from error
