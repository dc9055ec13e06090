"""Which rows of a decided epoch a table refuses. Operator's process; changes nothing. Needs pyarrow.

Found by trying, as an epoch is rehearsed: it is applied and rolled back with fewer and fewer rows. So the server has
the word, whatever it refuses them by, and of two rows that exclude each other the one that was staged first is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.errors import RecordRefusedError
from onceonly.ports import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from onceonly.families.staged import StagedRows
    from onceonly.sinks.sql.books import Books
    from onceonly.sinks.sql.target import Target

_CODE = "REFUSED"


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows in memory; fulfils ``StagedRows``."""

    name: str
    parts: tuple[pa.RecordBatch, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self.parts)


def refusals(
    target: Target,
    books: Books,
    rows: StagedRows,
    beside: Mapping[str, StagedRows],
    epochs: Mapping[str, int],
) -> list[Refused]:
    """Return the rows that the table does not take when it has those ``beside`` them, as far as it takes them.

    Raises a typed error for what is no row's fault.
    """
    import pyarrow as pa

    def why(staged: Mapping[str, StagedRows]) -> str:
        # Under names of their own: one is void already where somebody was killed at diverting it.
        names = {name: f"tried {name}" for name in staged}
        try:
            target.apply(
                {names[name]: each for name, each in staged.items()},
                {names[name]: epochs[name] for name in staged},
                books,
                keep=False,
            )
        except RecordRefusedError as error:
            return error.what
        return ""

    others: dict[str, StagedRows] = {}
    if beside and not why(beside):
        others = dict(beside)
    else:
        for name, each in beside.items():
            others |= {} if why({**others, name: each}) else {name: each}
    whole, kept, found = pa.concat_batches(list(rows.batches())), list[pa.RecordBatch](), list[Refused]()
    waiting = [(0, whole.num_rows)]
    while waiting:
        first, count = waiting.pop()
        part = whole.slice(first, count)
        reason = why({**others, rows.name: _Rows(rows.name, (*kept, part))})
        if not reason:
            kept.append(part)
        elif count == 1:
            found.append(Refused(row=first, code=_CODE, why=reason))
        else:
            half = count // 2
            waiting += [(first + half, count - half), (first, half)]
    return found
