"""The comparison of sinks: who is asked for, what its record says, and what the page shows of it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from benchmarks.sinks import page
from benchmarks.sinks.values import ASKED, CONTENDERS, GROUPS, JDBC, OURS, VERSION, Ran, Sinks
from benchmarks.sinks.worlds import JARS, WORLDS
from benchmarks.store import recorded
from benchmarks.values import encode
from onceonly.jars.locked import _locked
from onceonly_proof.campaign import marks


def record(ours: float, theirs: float, *, whole: bool = True) -> Sinks:
    ran = [
        Ran(
            group="postgres",
            contender=name,
            rows=1000,
            rows_per_s=(rate, 1.0, 9e9),
            epoch_ms=12.5,
            whole=whole,
        )
        for name, rate in ((OURS, ours), (JDBC, theirs))
    ]
    return Sinks(
        version=VERSION, command="python -m benchmarks.sinks", started="2026-11-27T20:00:00", seconds=90.0,
        machine={"cores": 2, "memory_gib": 24, "load_before": 0.1}, epochs=4,
        versions={"commit": "abc", "pyspark": "4.2.0"}, ran=tuple(ran), not_run={"redis": "there is no server"},
    )  # fmt: skip


@pytest.mark.parametrize(("theirs", "said"), [(500, "**1.80** times (aim: ≥ 1.5)"), (800, "≥ 1.5, missed")])
def test_a_ratio_is_of_medians_and_says_whether_its_aim_is_missed(theirs: float, said: str) -> None:
    shown = page.figures(record(900, theirs))
    assert said in shown
    assert "| 900 | 12 |" in shown
    assert "`redis` could not be run: there is no server" in shown
    assert (
        "in 2 minutes on 2 cores and 24 GiB with a load of 0.1 before it began, at `abc`; `docs/proof"
        in shown
    )


def test_rows_that_are_missing_are_on_the_page() -> None:
    assert "Not whole: postgres onceonly" in page.figures(record(900, 500, whole=False))
    assert page.figures(None) == marks.NONE


def test_each_group_has_a_world_and_each_ratio_a_contender() -> None:
    assert WORLDS.keys() == GROUPS.keys()
    assert all(asked.theirs in GROUPS[asked.group] for asked in ASKED)
    assert {name for names in GROUPS.values() for name in names} == CONTENDERS.keys()
    assert all(_locked(user) for user in JARS.values())


def test_a_record_is_read_as_it_was_written() -> None:
    found = record(900, 500)
    assert msgspec.json.decode(encode(found), type=Sinks) == found


def test_the_page_shows_the_recorded_comparison() -> None:
    root = Path(__file__).parents[2]
    text = (root / page.PAGE).read_text(encoding="utf-8")
    block = page.figures(recorded(root / page.RECORD, Sinks))
    assert marks.placed(text, block, name=page.MARKS, where=str(page.PAGE)) == text, (
        "run python -m benchmarks.sinks.page"
    )
