"""Barriers aligned or not, on real Spark under real kills: what is restored is counted once, or again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from onceonly_proof.auditor.anomalies import Anomaly
from onceonly_proof.campaign.unaligned_operator import FAST
from onceonly_proof.campaign.unaligned_plan import UNDECIDED, draw_plan
from onceonly_proof.campaign.unaligned_run import ShownOptions, picture, run_shown

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.acceptance, pytest.mark.long]
SEED, EPOCHS, KILLS = 2, 9, 2


def test_aligned_each_row_is_counted_once_and_unaligned_what_overtook_a_barrier_again(tmp_path: Path) -> None:
    lives: list[str] = []
    options = ShownOptions(
        seed=SEED, epochs=EPOCHS, kills=KILLS, json=tmp_path / "found.json", picture=tmp_path / "found.svg"
    )
    found = run_shown(options, lives.append)
    assert (found.verdict, found.why, found.crashes, len(lives)) == ("shown", (), KILLS, KILLS + 1)

    plan = draw_plan(SEED, epochs=EPOCHS, kills=KILLS)
    again = {kill.epoch: sum(row.partition == FAST for row in plan.epochs[kill.epoch]) for kill in plan.kills}
    aligned, unaligned = found.aligned, found.unaligned
    assert not any(aligned.anomalies.values())
    assert {each.name: each.counted for each in aligned.windows.windows} == {
        each.name: each.expected for each in unaligned.windows.windows
    }
    assert {name: count for name, count in unaligned.anomalies.items() if count} == {
        Anomaly.DUPLICATED: sum(again.values())
    }
    assert (aligned.again, unaligned.again) == ({}, again)
    # Of a decided epoch that gives other rows on its replay, onceonly says so.
    decided = [kill for kill in plan.kills if kill.point not in UNDECIDED]
    assert (aligned.differing, unaligned.differing) == (0, len(decided)) == (0, 1)
    assert unaligned.windows.over == sum(again.values()) > 0

    assert msgspec.json.decode((tmp_path / "found.json").read_bytes(), type=type(found)) == found
    assert (tmp_path / "found.svg").read_text(encoding="utf-8") == picture(found)
