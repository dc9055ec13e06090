"""Models of checkpoints for the tests of the renderer, made by hand: no file, no clock."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.log.history import Summary
from onceonly.log.runs import Run as DriversRun
from onceonly.model import Handle, Link, LinkKind, Receipt, Stamp, Vote
from onceonly.operations import states
from onceonly.operations.checkpoint_model import CheckpointModel, EpochModel
from onceonly.operations.disk import iso
from onceonly.operations.find import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

ZERO = 1_700_000_000.0
"""A moment: 2023-11-14 22:13:20 UTC."""


def stamp(after_s: float, host: str = "driver-1", pid: int = 7) -> Stamp:
    return Stamp(at=iso(ZERO + after_s) or "", host=host, pid=pid)


def vote(
    number: int, slot: int, after_s: float | None, *, sink: str = "box", rows: int = 3, transaction: str = ""
) -> Vote:
    return Vote(
        sink=sink, epoch=number, slot=slot, plan="p", run="r", attempt="1", rows=rows, checksum=f"xxh3:{slot:016x}",
        handle=Handle(transaction=transaction or f"t{number}-{slot}"),
        stamp=None if after_s is None else stamp(after_s, host=f"executor-{slot}"),
    )  # fmt: skip


def decision(number: int, after_s: float, votes: Sequence[Vote], *, index: int = 0) -> Link:
    """A decision one second after its plan."""
    return Link(
        epoch=number, index=index, kind=LinkKind.COMMIT, plan="p", run="r", votes=tuple(votes),
        planned=stamp(after_s - 1), stamp=stamp(after_s),
    )  # fmt: skip


def claim(number: int, after_s: float, *, index: int = 0) -> Link:
    return Link(
        epoch=number, index=index, kind=LinkKind.ABORT, plan="p2", run="r2", reason="claimed by a new run",
        stamp=stamp(after_s),
    )  # fmt: skip


def skipped(number: int, after_s: float, reason: str) -> EpochModel:
    return told(replace(claim(number, after_s), kind=LinkKind.SKIPPED, reason=reason))


def receipt(number: int, after_s: float | None, *, index: int = 0, commits: int = 2) -> Receipt:
    return Receipt(
        epoch=number, index=index, plan="p", outcomes={"committed": commits}, seconds=0.25,
        stamp=None if after_s is None else stamp(after_s),
    )  # fmt: skip


def told(*chain: Link, settled: Receipt | None = None, noted: bool = True) -> EpochModel:
    """One epoch with its details."""
    view = states.describe(chain[0].epoch, chain, settled, noted=noted)
    return EpochModel(view=view, chain=tuple(chain), receipt=settled)


def usual(number: int, begin_s: float) -> EpochModel:
    """One that is settled: planned at its beginning, decided a second later, committed after a quarter of one."""
    votes = [vote(number, 0, begin_s + 0.4), vote(number, 1, begin_s + 0.9)]
    return told(decision(number, begin_s + 1, votes), settled=receipt(number, begin_s + 1.25))


def folded(number: int, at_s: float | None) -> EpochModel:
    line = Summary(
        epoch=number, kind=LinkKind.COMMIT, links=1, sinks={"box": (6, 2)}, outcomes={"committed": 2}, seconds=0.25,
        at=0.0 if at_s is None else ZERO + at_s, planned_s=0.0 if at_s is None else 1.0,
        settled_s=0.0 if at_s is None else 0.25,
    )  # fmt: skip
    return EpochModel(view=states.folded(line), at=line.at or None)


def model(
    *epochs: EpochModel,
    alive: bool | None = False,
    runs: Sequence[DriversRun] = (),
    known: int | None = None,
    query: str = "q",
    path: str = "/c",
) -> CheckpointModel:
    """A checkpoint with these epochs, oldest first."""
    return CheckpointModel(
        path=path, address=f"file://{path}", query=query, home=f"file://{path}", is_moved=False,
        run=Run(alive=alive, who="host driver-1, process 7 (driver)" if alive else ""), runs=tuple(reversed(runs)),
        known=len(epochs) if known is None else known, epochs=tuple(reversed(epochs)),
    )  # fmt: skip


def in_doubt(number: int, begin_s: float) -> EpochModel:
    """One that is decided and has no receipt."""
    return told(decision(number, begin_s + 1, [vote(number, 0, begin_s + 0.5)]))


def partly_lost(number: int, begin_s: float) -> EpochModel:
    """One of which a part is committed, and a part was lost and is to be written again."""
    kept, lost = (vote(number, slot, begin_s + 0.5) for slot in range(2))
    first = decision(number, begin_s + 1, [kept, lost])
    again = replace(
        decision(number, begin_s + 1, [lost], index=1),
        plan="p2",
        carried=(kept,),
        reason="a part was proven lost",
    )
    return told(first, again)


def run(name: str, began_s: float, ended_s: float | None = None) -> DriversRun:
    return DriversRun(run=name, began=stamp(began_s), ended="" if ended_s is None else stamp(ended_s).at)
