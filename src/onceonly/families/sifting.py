"""Rows that a target refuses, found by trying fewer and fewer of them. Any process; needs pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from onceonly.errors import RecordRefusedError
from onceonly.ports import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

T = TypeVar("T")


def sifted(
    batch: pa.RecordBatch, take: Callable[[pa.RecordBatch], T], *, code: str, most: int | None = None
) -> tuple[list[T], list[Refused]]:
    """Return what a function makes of the rows that it takes, in their order, and those that it refuses, by ``code``.

    It raises ``RecordRefusedError`` where one of several is wrong: then it is asked again with half as many, so that
    few wrong rows cost little. With more than ``most`` of them, the rest is not looked at.
    """
    taken, found, waiting = list[T](), list[Refused](), [(0, batch.num_rows)]
    while waiting and (most is None or len(found) <= most):
        first, count = waiting.pop()
        try:
            taken.append(take(batch.slice(first, count)))
        except RecordRefusedError as error:
            if not count:
                raise
            if count == 1:
                found.append(Refused(row=first, code=code, why=error.what, next_step=error.next_step))
                continue
            half = count // 2
            waiting += [(first + half, count - half), (first, half)]
    return taken, found
