"""The docs' page on power loss shows the recorded campaign, and nothing that was typed by hand."""

from __future__ import annotations

from pathlib import Path

from onceonly_proof.campaign.marks import NONE, placed
from onceonly_proof.power.audits import Judged
from onceonly_proof.power.outcome import Result, read, write
from onceonly_proof.power.page import MARKS, PAGE, block, figures
from onceonly_proof.power.task import Done

ROOT = Path(__file__).parents[2]


def test_the_page_is_that_of_the_record() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert placed(page, block(ROOT), name=MARKS, where=str(PAGE)) == page, "run make proof-pages"


def test_what_was_lost_and_who_was_needed_is_said() -> None:
    found = Result(commits=["abc"])
    found.pipeline("files-none-files").add("cut 3", Done(ok=True), Judged(10, 0, 0, 0, 0), cuts=4)
    assert "nothing was lost or doubled, and nobody was needed" in figures(found)
    found.pipeline("rate-hdfs-files").add(
        "cut 9", Done(ok=False, code="LOG", what="`gone`"), Judged(9, 2, 0, 2, 0, ("x",)), cuts=1
    )
    shown = figures(found)
    assert "**not clean**" in shown
    assert "| `rate-hdfs-files` | 1 | 1 | 0 of 0 | 0 of 0 | 9 | 2 | 0 | 1 |" in shown
    assert "- `cut 9: LOG 'gone'`" in shown
    assert figures(None) == NONE


def test_a_result_is_gone_on_with(tmp_path: Path) -> None:
    found = Result(seeds=[1])
    found.pipeline("files-none-files").operations_hit.add("sync .")
    write(tmp_path / "power.json", found)
    assert read(tmp_path / "power.json") == found
    assert read(tmp_path / "none.json") == Result()
