"""A counting operator that takes its own snapshots, with the barriers of its two inputs aligned or not.

It has several parallel parts, and each has rows of both input partitions. Partition 1 is the slow one: when its
barrier of an epoch arrives, rows of the next epoch from partition 0 are waiting behind theirs.

- *Aligned*, they wait: the snapshot holds the rows before the barrier, and nothing else.
- *Unaligned*, they are counted meanwhile, and the snapshot that carries the epoch's number holds them too. This is what
  a stream processor does when it is set to at-least-once.

Either snapshot is restored by the number of the epoch that the source goes on from. Executor; pure but for
``Snapshots``.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from onceonly_proof.campaign.unaligned_plan import Row
from onceonly_proof.handover import put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    import pyarrow as pa

State: TypeAlias = dict[int, list[int]]
"""By window, the ids of the rows that were counted, once for each time: what a bare count would hide can be audited."""
FAST = 0
"""The partition whose rows overtake the other one's barrier."""
RESULT = "key string, value string"


class Mode(enum.StrEnum):
    """How an operator treats the barriers of its inputs. The value is its name in reports and folders."""

    ALIGNED = "aligned"
    UNALIGNED = "unaligned"


@dataclass(frozen=True, slots=True)
class Step:
    """One epoch of one part: what it has counted since, and the snapshot that became complete, with its epoch."""

    state: State
    epoch: int
    snapshot: State


def advance(epoch: int, state: State, rows: Iterable[Row], mode: Mode) -> Step:
    """Count an epoch's rows on top of a state. Pure; the state that is given stays as it is."""
    ordered = sorted(rows, key=lambda row: (row.partition, row.position))
    if mode is Mode.ALIGNED:
        after = _count(state, ordered)
        return Step(after, epoch, after)
    # The barrier that the slow partition brings now is the last epoch's.
    overtaken = _count(state, [row for row in ordered if row.partition == FAST])
    after = _count(overtaken, [row for row in ordered if row.partition != FAST])
    return Step(after, epoch - 1, overtaken)


def _count(state: Mapping[int, list[int]], rows: Iterable[Row]) -> State:
    found = {window: list(ids) for window, ids in state.items()}
    for row in rows:
        found.setdefault(row.window, []).append(row.id)
    return found


class Snapshots:
    """Where one part of an operator keeps its state: snapshots, which outlive its process, and what it has in hand.

    ``life`` numbers the process trees: what one has in hand, no other gets. That stands in files only because a task
    cannot keep it in memory for the next epoch's task.
    """

    def __init__(self, folder: Path, life: int) -> None:
        self._folder = folder
        self._life = life

    def before(self, epoch: int) -> State:
        """Return what was counted when an epoch begins: in this life, or restored by the number of the one before.

        Raises:
            FileNotFoundError: there is no snapshot to restore.
        """
        if epoch == 0:
            return {}
        in_hand = self._in_hand(epoch - 1)
        path = in_hand if in_hand.exists() else self._snapshot(epoch - 1)
        return msgspec.json.decode(path.read_bytes(), type=State)

    def keep(self, epoch: int, step: Step) -> None:
        """Write the snapshot, and what is in hand after an epoch. Idempotent: a task may be run again."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if step.epoch >= 0:
            put(self._snapshot(step.epoch), msgspec.json.encode(step.snapshot))
        put(self._in_hand(epoch), msgspec.json.encode(step.state))

    def _snapshot(self, epoch: int) -> Path:
        return self._folder / f"chk-{epoch}.json"

    def _in_hand(self, epoch: int) -> Path:
        return self._folder / f"life-{self._life}-{epoch}.json"


def counting(folder: Path, mode: Mode, epoch: int, life: int) -> Callable[[pa.Table], pa.Table]:
    """Return what one part does in one epoch, for ``applyInArrow``: its rows in, all its windows out.

    Each result says the epoch, the window and the ids counted, as JSON.
    """

    def count(rows: pa.Table) -> pa.Table:
        import pyarrow as pa

        given = msgspec.convert(rows.to_pylist(), type=list[Row])
        subtask = given[0].subtask
        snapshots = Snapshots(folder / mode / str(subtask), life)
        step = advance(epoch, snapshots.before(epoch), given, mode)
        snapshots.keep(epoch, step)
        keys = [f"{subtask}/{window}" for window in step.state]
        values = [
            json.dumps({"epoch": epoch, "window": window, "ids": ids}) for window, ids in step.state.items()
        ]
        return pa.table({"key": pa.array(keys, pa.string()), "value": pa.array(values, pa.string())})

    return count
