"""The docs' page on alignment shows the recorded run, and nothing that was typed or drawn by hand."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from onceonly_proof.campaign.marks import placed
from onceonly_proof.campaign.result import encode
from onceonly_proof.campaign.unaligned_audit import Shown, conclude
from onceonly_proof.campaign.unaligned_page import MARKS, PAGE, PICTURE, RECORD, figures
from onceonly_proof.campaign.unaligned_plan import UNDECIDED, draw_plan
from onceonly_proof.campaign.unaligned_run import EPOCHS, KILLS, picture

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found() -> Shown:
    return msgspec.json.decode((ROOT / RECORD).read_bytes(), type=Shown)


def test_page_and_picture_are_those_of_the_record(found: Shown) -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert placed(page, figures(found), name=MARKS, where="page") == page
    assert (ROOT / PICTURE).read_text(encoding="utf-8") == picture(found)


def test_the_record_is_of_a_run_of_its_seed_and_says_what_follows_from_it(found: Shown) -> None:
    plan = draw_plan(found.seed, epochs=EPOCHS, kills=KILLS)
    assert (found.epochs, found.kills, found.rows) == (EPOCHS, plan.kills, len(plan.rows))
    for counted in (found.aligned, found.unaligned):
        assert [each.expected for each in counted.windows.windows] == list(plan.expected().values())
        assert counted.anomalies["duplicated"] == counted.windows.over == sum(counted.again.values())
    decided = [kill for kill in found.kills if kill.point not in UNDECIDED]
    assert (found.aligned.differing, found.unaligned.differing) == (0, len(decided))
    again = conclude(plan, found.aligned, found.unaligned, seconds=found.seconds)
    assert (again.verdict, again.why) == (found.verdict, found.why) == ("shown", ())
    assert encode(found) == (ROOT / RECORD).read_bytes()


def test_the_recorded_code_was_committed(found: Shown) -> None:
    assert found.versions["commit"]
    assert not found.versions["commit"].endswith("+")
