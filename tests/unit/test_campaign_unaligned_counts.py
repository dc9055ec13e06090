"""Aligned and unaligned counting, without Spark: what is restored, what is counted again, and what the audit says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pytest

from onceonly_proof.auditor.anomalies import Anomaly
from onceonly_proof.auditor.world import Seen
from onceonly_proof.campaign.unaligned_audit import Counted, audit, conclude
from onceonly_proof.campaign.unaligned_operator import FAST, Mode, Snapshots, advance, counting
from onceonly_proof.campaign.unaligned_plan import (
    POINTS,
    SUBTASKS,
    UNDECIDED,
    Plan,
    Row,
    draw_plan,
    write_input,
)

if TYPE_CHECKING:
    from pathlib import Path


def run(plan: Plan, folder: Path, mode: Mode) -> list[Seen]:
    """Count as the job does, its kills included: the epoch runs again in a new life, and shows its results once."""
    killed = {kill.epoch: kill for kill in plan.kills}
    life, shown = 1, []
    for epoch, rows in enumerate(plan.epochs):
        results = count(folder, mode, epoch, life, rows)
        if epoch in killed:
            life += 1
            again = count(folder, mode, epoch, life, rows)
            results = again if killed[epoch].point in UNDECIDED else results
        shown += results
    return shown


def count(folder: Path, mode: Mode, epoch: int, life: int, rows: tuple[Row, ...]) -> list[Seen]:
    found: list[Seen] = []
    for subtask in range(SUBTASKS):
        given = pa.Table.from_pylist([msgspec.to_builtins(row) for row in rows if row.subtask == subtask])
        results = counting(folder, mode, epoch, life)(given).to_pylist()
        found += [Seen(mode, each["key"].encode(), each["value"].encode()) for each in results]
    return found


def counted(plan: Plan, folder: Path) -> dict[Mode, Counted]:
    return {mode: audit(plan, mode, run(plan, folder, mode)) for mode in Mode}


def twice(plan: Plan) -> dict[int, int]:
    """Say, by epoch, how many rows overtake a barrier that the job goes back to."""
    return {kill.epoch: sum(row.partition == FAST for row in plan.epochs[kill.epoch]) for kill in plan.kills}


# ------------------------------------------------------------------------------------------- the two operators
@pytest.mark.parametrize("seed", range(8))
def test_aligned_is_exact_and_unaligned_counts_again_what_overtook_the_barrier(
    seed: int, tmp_path: Path
) -> None:
    plan = draw_plan(seed, epochs=14, kills=5)
    found = counted(plan, tmp_path)
    aligned, unaligned = found[Mode.ALIGNED], found[Mode.UNALIGNED]
    assert not any(aligned.anomalies.values())
    assert [each.counted for each in aligned.windows.windows] == list(plan.expected().values())
    assert (aligned.again, unaligned.again) == ({}, twice(plan))
    assert unaligned.anomalies == {**aligned.anomalies, Anomaly.DUPLICATED: sum(twice(plan).values())}
    assert unaligned.windows.over == sum(twice(plan).values()) > 0
    assert {each.name for each in unaligned.windows.windows if each.counted > each.expected} == {
        each.name for each in unaligned.windows.windows if each.killed
    }
    shown = conclude(plan, aligned, unaligned, seconds=1)
    assert (shown.verdict, shown.why) == ("shown", ())


def test_without_a_kill_both_are_exact_and_nothing_is_shown(tmp_path: Path) -> None:
    plan = draw_plan(1, epochs=6, kills=0)
    found = counted(plan, tmp_path)
    assert not any(found[Mode.UNALIGNED].anomalies.values())
    shown = conclude(plan, found[Mode.ALIGNED], found[Mode.UNALIGNED], seconds=1)
    assert (shown.verdict, shown.why) == ("not shown", ("unaligned, no row was counted again",))


def test_a_task_that_runs_again_in_its_life_counts_nothing_twice(tmp_path: Path) -> None:
    rows = draw_plan(1, epochs=3, kills=0).epochs
    for mode in Mode:
        count(tmp_path, mode, 0, 1, rows[0])
        first = count(tmp_path, mode, 1, 1, rows[1])
        assert count(tmp_path, mode, 1, 1, rows[1]) == first


def test_a_snapshot_that_is_missing_is_no_empty_one(tmp_path: Path) -> None:
    assert Snapshots(tmp_path, 1).before(0) == {}
    with pytest.raises(FileNotFoundError):
        Snapshots(tmp_path, 1).before(1)


def test_what_one_life_has_in_hand_another_one_does_not_get(tmp_path: Path) -> None:
    plan = draw_plan(2, epochs=4, kills=0)
    first = Snapshots(tmp_path, 1)
    for epoch in (0, 1):
        first.keep(epoch, advance(epoch, first.before(epoch), plan.epochs[epoch], Mode.UNALIGNED))
    # Its snapshot of the first epoch is complete, that of the second one is not.
    fast = [row for row in plan.epochs[1] if row.partition == FAST]
    assert sum(map(len, Snapshots(tmp_path, 2).before(1).values())) == len(plan.epochs[0]) + len(fast)
    assert sum(map(len, first.before(2).values())) == len(plan.epochs[0]) + len(plan.epochs[1])
    with pytest.raises(FileNotFoundError):
        Snapshots(tmp_path, 2).before(2)


def test_a_step_leaves_the_state_that_it_was_given() -> None:
    rows = draw_plan(3, epochs=3, kills=0).epochs[0]
    for mode in Mode:
        state = {0: [-1]}
        assert advance(0, state, rows, mode).state[0][0] == -1
        assert state == {0: [-1]}


# ---------------------------------------------------------------------------------------------------- the audit
def test_a_row_that_is_missing_in_one_window_is_not_made_good_by_another(tmp_path: Path) -> None:
    plan = draw_plan(4, epochs=6, kills=0)
    seen = run(plan, tmp_path, Mode.ALIGNED)
    last = json.loads(seen[-1].value or b"")
    doctored = {**last, "ids": [*last["ids"][:-1], last["ids"][0]]}
    found = audit(
        plan, Mode.ALIGNED, [*seen[:-1], Seen("aligned", seen[-1].key, json.dumps(doctored).encode())]
    )
    assert found.windows.over == 0  # as many as went in
    assert {name: count for name, count in found.anomalies.items() if count} == {"lost": 1, "duplicated": 1}
    why = conclude(plan, found, found, seconds=1).why
    assert why[0] == 'aligned, the counts are not exact: {"lost": 1, "duplicated": 1}'
    assert why[1] == 'unaligned, more is wrong than rows counted again: {"lost": 1}'


def test_an_output_that_is_not_exactly_once_itself_is_no_proof(tmp_path: Path) -> None:
    plan = draw_plan(5, epochs=6, kills=2)
    seen = {mode: run(plan, tmp_path, mode) for mode in Mode}
    good = audit(plan, Mode.ALIGNED, seen[Mode.ALIGNED])
    again = audit(plan, Mode.UNALIGNED, [*seen[Mode.UNALIGNED], seen[Mode.UNALIGNED][0]])
    assert conclude(plan, good, again, seconds=1).why == (
        "unaligned: the result 0/0 of chk-0 is in the output 2 times",
    )
    gone = audit(plan, Mode.ALIGNED, [each for each in seen[Mode.ALIGNED] if b'"epoch": 3' not in each.value])  # type: ignore[operator]
    assert gone.doubts == ("aligned: chk-3 is not in the output",)


# ----------------------------------------------------------------------------------------------------- the plan
def test_a_plan_is_its_seed_and_each_part_has_rows_of_each_partition_and_epoch() -> None:
    plan = draw_plan(6, epochs=30, kills=10)
    assert plan == draw_plan(6, epochs=30, kills=10) != draw_plan(7, epochs=30, kills=10)
    assert [row.id for row in plan.rows] == list(range(len(plan.rows)))
    for rows in plan.epochs:
        assert {(row.partition, row.subtask) for row in rows} == {(p, s) for p in (0, 1) for s in (0, 1, 2)}
    assert {kill.point for kill in plan.kills} == set(POINTS)
    assert len({kill.epoch for kill in plan.kills}) == 10
    assert all(0 < kill.epoch < 29 for kill in plan.kills)


def test_more_kills_than_epochs_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        draw_plan(1, epochs=4, kills=3)


def test_the_files_are_the_input_in_the_order_of_their_times(tmp_path: Path) -> None:
    plan = draw_plan(8, epochs=3, kills=0)
    write_input(plan, tmp_path / "input")
    files = sorted((tmp_path / "input").iterdir(), key=lambda path: path.stat().st_mtime)
    rows = [msgspec.json.decode(line, type=Row) for path in files for line in path.read_bytes().splitlines()]
    assert rows == list(plan.rows)
    assert len({path.stat().st_mtime for path in files}) == 6
