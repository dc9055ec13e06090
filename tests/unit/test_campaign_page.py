"""The report's page says what the result says, whole, and without anything from outside."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from matplotlib.patches import Rectangle

from onceonly.errors import UnavailableError
from onceonly_proof.auditor.anomalies import Anomaly
from onceonly_proof.campaign import page, result
from onceonly_proof.campaign.result import Result, Round

if TYPE_CHECKING:
    from pathlib import Path

CLEAN = Round(
    seed=7,
    number=1,
    connector="kafka+files",
    guarantee="exactly-once",
    started="2026-11-21T19:20:00Z",
    seconds=3_700,
    rows=4_000,
    epochs=33,
    crashes=1_200,
    armed={"kill link.after_put": 2, "wire cut": 1},
    faults={"kill link.after_put": 2, "wire cut": 1},
    anomalies={"lost": 0},
    recovery_s=(1.0, 2.0, 9.0),
)


def like(**changes: Any) -> Round:  # noqa: ANN401  any field
    return msgspec.structs.replace(CLEAN, **changes)


def fold(*rounds: Round) -> Result:
    return result.fold(rounds, seed=7, machine={"cores": 2}, versions={"onceonly": "0.1.0", "java": "<17>"})


def draw(*rounds: Round) -> str:
    return page.draw(fold(*rounds))


class Checker(HTMLParser):
    """Sees that every element is closed, that nothing is loaded, and what a reader reads."""

    VOID = frozenset({"meta", "br", "path", "circle", "line"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.loads += [tag] if tag in {"script", "link", "img", "iframe"} else []
        self.loads += [value or "" for name, value in attrs if name in {"href", "src"}]

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


BAD = like(number=2, anomalies={"lost": 3}, examples=("id <12> is missing",))
UNFIRED = like(number=3, connector="kafka", armed={"wire cut": 4}, faults={"wire cut": 1})


def test_the_page_is_whole_and_loads_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.html"
    page.write(path, fold(CLEAN, BAD, UNFIRED))
    text = path.read_text(encoding="utf-8")
    checked = Checker(text)
    assert checked.loads == []
    assert set(re.findall(r"http[^\"]*", text)) == {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert not re.search(r"url\((?!#)|@import", text)
    assert "prefers-color-scheme: dark" in text


def test_a_page_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match=r"file.report\.html"):
        page.write(tmp_path / "file" / "report.html", fold(CLEAN))


@pytest.mark.parametrize(
    ("rounds", "word", "facts"),
    [
        ([CLEAN], "Clean", "1,200 crashes · 4,000 rows checked · 0 anomalies"),
        ([CLEAN, BAD], "Anomalies", "2,400 crashes · 8,000 rows checked · 3 anomalies"),
        ([UNFIRED], "Inconclusive", "1,200 crashes · 4,000 rows checked · 0 anomalies"),
        ([], "Inconclusive", "0 crashes"),
    ],
)
def test_the_verdict_comes_first(rounds: list[Round], word: str, facts: str) -> None:
    text = Checker(draw(*rounds)).text
    assert re.search(rf"onceonly verify {word} {facts}", text)


def test_the_figures_are_those_of_the_result() -> None:
    text = Checker(draw(CLEAN)).text
    assert "2.0 s recovery, median 9.0 s recovery, worst 1 h 02 min under attack for" in text
    assert "3 / 3 faults fired, of armed" in text
    assert "kafka+files exactly-once 1,200 3 33 4,000 0 clean" in text
    assert "link.after_put 2" in text
    assert "java <17>" in text


def test_what_was_found_is_explained_with_how_to_see_it_again() -> None:
    text = Checker(draw(CLEAN, BAD)).text
    assert f"What the auditor looks for 3 lost {Anomaly.LOST.sentence}" in text
    for anomaly in Anomaly:
        assert f"{anomaly.replace('_', ' ')} {anomaly.sentence}" in text
    assert "round 2 of seed 7 · kafka+files, exactly-once lost 3 id <12> is missing" in text
    assert f"id <12> is missing {BAD.command}" in text
    assert CLEAN.command not in text


def test_a_fault_that_did_not_fire_is_told() -> None:
    shown = draw(CLEAN, UNFIRED)
    text = Checker(shown).text
    assert "cut 2 of 5" in text
    assert 'class="fault short"' in shown
    assert "wire cut was armed 4 times, fired 1" in text
    assert 'class="fault short"' not in draw(CLEAN)


def test_every_round_is_a_cell_that_says_what_it_was() -> None:
    rounds = [like(number=number) for number in range(1, 120)]
    shown = draw(*rounds, BAD, UNFIRED)
    assert shown.count('class="cell clean"') == 119
    assert shown.count('class="cell anomalies"') == shown.count('class="cell inconclusive"') == 1
    assert "round 3 of seed 7 · kafka, exactly-once · inconclusive" in shown


def test_recovery_is_drawn_with_its_median_and_worst() -> None:
    shown = draw(CLEAN)
    assert "median 2.0 s, worst 9.0 s of 3" in shown
    assert "No recovery" in draw(like(recovery_s=()))


@pytest.mark.parametrize("times", [(0.0,), (0.004,), (7_200.0, 90_000.0), (1.0,) * 500])
def test_every_recovery_is_in_a_bar_within_the_axes(times: tuple[float, ...]) -> None:
    (axes,) = page.recovery(times).axes
    bars = [each for each in axes.patches if isinstance(each, Rectangle)]
    assert sum(each.get_height() for each in bars) == len(times)
    least, most = axes.get_xlim()
    assert all(least <= each.get_x() and each.get_x() + each.get_width() <= most for each in bars)
    assert len([each for each in axes.get_xticks() if least <= each <= most]) <= 14


def test_the_page_says_how_it_is_run_again() -> None:
    rounds = [CLEAN, like(number=2, connector="kafka"), like(number=3), like(seed=8, dear=False)]
    text = Checker(draw(*rounds)).text
    both = "--sink kafka+files --sink kafka --guarantee exactly-once --crashes 3600 --seed 7 --json"
    assert f"onceonly verify {both}" in text
    alone = "--sink kafka+files --guarantee exactly-once --crashes 1200 --seed 8 --no-dear --json"
    assert f"onceonly verify {alone}" in text


def test_what_the_guarantee_allows_is_a_note() -> None:
    text = Checker(draw(like(guarantee="at-least-once", allowed={"duplicated": 12}))).text
    assert "kafka+files under at-least-once may have, and had: duplicated 12." in text


def test_what_readers_by_a_pattern_got_is_a_note() -> None:
    text = Checker(draw(like(globbed={"glob": 4_100, "pyarrow": 4_000}))).text
    assert "kafka+files: rows that readers by a pattern got while it ran: glob 4,100, pyarrow 4,000." in text
    assert "by a pattern" not in Checker(draw(CLEAN)).text


def test_a_report_of_many_bad_rounds_stays_a_page() -> None:
    shown = draw(*(like(number=number, anomalies={"lost": 1}) for number in range(400)))
    assert shown.count("<article") == 50
    assert "And 350 more rounds" in shown
