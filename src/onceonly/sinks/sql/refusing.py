"""Which rows of a decided epoch a table refuses. Operator's process; changes nothing. Needs pyarrow.

Found by trying, as an epoch is rehearsed: it is applied and rolled back with fewer and fewer rows. So the server has
the word, whatever it refuses them by, and of two rows that exclude each other the one that was staged first is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.errors import RecordRefusedError
from onceonly.families.sifting import sifted
from onceonly.ports import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from onceonly.families.staged import StagedRows
    from onceonly.sinks.sql.books import Books
    from onceonly.sinks.sql.options import Meaning
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
    meaning: Meaning | None,
) -> list[Refused]:
    """Return the rows that the table does not take when it has those ``beside`` them, as far as it takes them.

    Raises a typed error for what is no row's fault.
    """
    import pyarrow as pa

    def try_out(staged: Mapping[str, StagedRows]) -> None:
        # Under names of their own: one is void already where somebody was killed at diverting it.
        names = {name: f"tried {name}" for name in staged}
        target.apply(
            {names[name]: each for name, each in staged.items()},
            {names[name]: epochs[name] for name in staged},
            books,
            keep=False,
            meaning=meaning,
        )

    def is_taken(staged: Mapping[str, StagedRows]) -> bool:
        try:
            try_out(staged)
        except RecordRefusedError:
            return False
        return True

    others: dict[str, StagedRows] = {}
    if beside and is_taken(beside):
        others = dict(beside)
    else:
        for name, each in beside.items():
            others |= {name: each} if is_taken({**others, name: each}) else {}
    kept: list[pa.RecordBatch] = []

    def take(part: pa.RecordBatch) -> None:
        try_out({**others, rows.name: _Rows(rows.name, (*kept, part))})
        kept.append(part)

    _, found = sifted(pa.concat_batches(list(rows.batches())), take, code=_CODE)
    return [Refused(row=each.row, code=each.code, why=each.why) for each in found]
