"""What the syncs of Spark's files cost, compared epoch by epoch: ``benchmarks.syncs``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import syncs, turns
from onceonly.checkpoint.syncing import CheckpointSync
from onceonly.durable import disk
from onceonly.model import Guarantee, Mode, Plan

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def plan(epoch: int) -> Plan:
    return Plan(id=f"app.{epoch}", epoch=epoch, mode=Mode.RUN, index=1, guarantee=Guarantee.EXACTLY_ONCE)


def test_sparks_files_are_synced_in_every_second_block_and_left_out_in_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    synced: list[str] = []
    for name in ("begin", "wait", "sync"):
        monkeypatch.setattr(CheckpointSync, name, getattr(CheckpointSync, name))
    monkeypatch.setattr(disk, "sync", lambda path: synced.append(path.name))
    monkeypatch.setenv(turns.LEFT_OUT_ENV, str(tmp_path / "left-out"))
    turns.take_turns()
    checkpoint = tmp_path / "checkpoint"
    for folder in ("onceonly", "offsets", "state"):
        (checkpoint / folder).mkdir(parents=True)
    planner, state = CheckpointSync(checkpoint), CheckpointSync(checkpoint / "state")
    for epoch in (0, turns.BLOCK - 1, turns.BLOCK, 2 * turns.BLOCK - 1, 2 * turns.BLOCK):
        for name in (f"offsets/{epoch}", f"state/{epoch}.delta"):
            (checkpoint / name).touch()
        synced.clear()
        planner.begin(plan(epoch))
        assert planner.wait(plan(epoch)) == ""
        assert state.sync() == "", "the commit process, which has waited for the planner's"
        assert (str(epoch) in synced) == turns.has_syncs(epoch), epoch
        assert (f"{epoch}.delta" in synced) == turns.has_syncs(epoch), epoch
    assert (tmp_path / "left-out").read_bytes() == b"." * 4, "two syncs in two epochs"


def test_the_first_epochs_of_a_block_and_of_a_query_are_not_counted() -> None:
    took = {epoch: 60 if turns.has_syncs(epoch) else 58 for epoch in range(8 * turns.BLOCK)}
    for epoch in took:
        if epoch < 2 * turns.BLOCK or epoch % turns.BLOCK == 0:
            took[epoch] = 5_000
    found = syncs.cost(took)
    assert (found.median_ms, found.median_without_ms) == (60, 58)
    assert (found.middle_ms, found.middle_without_ms) == (60, 58)
    assert found.epochs == 6 * (turns.BLOCK - 4)
    assert "+2.0" in [cell for column in syncs.table({"none": found}).columns for cell in column.cells]
