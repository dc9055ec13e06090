"""Which rows of an epoch a table refuses beside all others. Driver, and the operator's process. Needs pyarrow.

Found by trying, in a transaction that is undone, with fewer and fewer rows. So the server has the word, whatever it
refuses them by, and of two rows that exclude each other the one that was staged first is kept.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from onceonly.errors import RecordRefusedError
from onceonly.families.sifting import sifted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from onceonly.families.staged import StagedRows
    from onceonly.ports import Refused
    from onceonly.sinks.sql.options import Meaning
    from onceonly.sinks.sql.target import Target

_CODE = "REFUSED"


def refusals(
    target: Target, staged: Mapping[str, StagedRows], meaning: Meaning | None, *, most: int | None = None
) -> dict[str, list[Refused]]:
    """Return the rows that the table does not take beside those before them, by the name under which they are staged.

    A row that was refused is tried once more behind all others, as what it refers to may be among them; it is refused
    where the table takes it there, and not in its place. With more than ``most`` of them, some are not returned.

    Raises a typed error for what is no row's fault.
    """
    import pyarrow as pa

    found: dict[str, list[Refused]] = {}
    rows: dict[str, pa.RecordBatch] = {}
    with _trying(target, meaning) as take:
        for name, each in staged.items():
            whole = pa.concat_batches(list(each.batches()))
            left = None if most is None else most - sum(map(len, found.values()))
            _, found[name] = sifted(whole, take, code=_CODE, most=left)
            if left is not None and len(found[name]) > left:
                return found
            # A copy of these alone, so that no more than one slot is in memory.
            rows[name] = whole.take(pa.array([refused.row for refused in found[name]], pa.int64()))
        left_out = {
            name: [
                refused
                for place, refused in enumerate(some)
                if not _is_taken(take, rows[name].slice(place, 1))
            ]
            for name, some in found.items()
        }
    return left_out if left_out == found or _fits(target, staged, left_out, meaning) else found


def _fits(
    target: Target,
    staged: Mapping[str, StagedRows],
    left_out: Mapping[str, list[Refused]],
    meaning: Meaning | None,
) -> bool:
    """Say whether the table takes all rows but those that are left out, each in its place."""
    import numpy as np
    import pyarrow as pa

    def rest() -> Iterator[pa.RecordBatch]:
        for name, each in staged.items():
            whole = pa.concat_batches(list(each.batches()))
            places = np.setdiff1d(np.arange(whole.num_rows), [refused.row for refused in left_out[name]])
            if len(places):
                yield whole.take(pa.array(places))

    try:
        with target.transaction(keep=False) as db:
            target.write_rows(db, rest(), meaning, tries=True)
    except RecordRefusedError:
        return False
    return True


def _is_taken(take: Callable[[pa.RecordBatch], None], row: pa.RecordBatch) -> bool:
    try:
        take(row)
    except RecordRefusedError:
        return False
    return True


@contextmanager
def _trying(target: Target, meaning: Meaning | None) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Yield what tries rows beside those that it has taken, and raises ``RecordRefusedError`` where they are not."""
    sql = target.sql
    if not sql.undoes_parts:
        kept: list[pa.RecordBatch] = []

        def take_all(part: pa.RecordBatch) -> None:
            with target.transaction(keep=False) as db:
                target.write_rows(db, iter([*kept, part]), meaning, tries=True)
            kept.append(part)

        yield take_all
        return
    with target.transaction(keep=False) as db:

        def take(part: pa.RecordBatch) -> None:
            sql.begin_part(db)
            try:
                target.write_rows(db, iter([part]), meaning, tries=True)
            except RecordRefusedError:
                sql.undo_part(db)
                raise
            except sql.errors as error:
                told = sql.told(error)
                if isinstance(told, RecordRefusedError):
                    sql.undo_part(db)
                raise told from error
            sql.keep_part(db)

        yield take
