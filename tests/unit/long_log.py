"""Logs of very many epochs, made quickly: most of them in segments of history, as folding leaves them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.unit.operator_bench import QueryCoordinator

from onceonly.log import files, history
from onceonly.log.history import Segment, Summary
from onceonly.model import LinkKind, Receipt

if TYPE_CHECKING:
    from pathlib import Path

DETAILS = 140
BEGAN = 1_790_000_000.0


def long_log(path: Path, epochs: int) -> QueryCoordinator:
    """Make a log of so many epochs, a multiple of 20 and more than ``DETAILS``; three transactions an epoch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        query = QueryCoordinator(path)
        first = 0
        for size in reversed(history.SIZES):
            while first + size <= epochs - DETAILS:
                _put_segment(query, first, first + size - 1)
                first += size
        for epoch in range(first, epochs):
            query.log.put_link(query.link(epoch, votes=[query.vote(epoch, slot) for slot in range(3)]))
            query.log.put_receipt(
                Receipt(epoch=epoch, index=0, plan="p", outcomes={"committed": 3}, seconds=0.01)
            )
        for epoch in range(epochs - 100, epochs):  # what Spark keeps
            query.set_barrier(epoch)
            query.note(epoch)
    return query


def _put_segment(query: QueryCoordinator, first: int, last: int) -> None:
    lines = tuple(
        Summary(
            epoch=epoch, kind=LinkKind.COMMIT, links=1, sinks={"box": (9, 3)}, outcomes={"committed": 3}, seconds=0.01,
            at=BEGAN + epoch, planned_s=0.2 + epoch % 7 / 10, settled_s=0.01,
        )
        for epoch in range(first, last + 1)
    )  # fmt: skip
    data = files.encode("history", Segment(first=first, last=last, epochs=lines))
    (query.path / "onceonly" / files.segment(first, last)).write_bytes(data)
