"""A newcomer's ten questions: the pages alone answer each, in as many clicks as the docs say."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.unit import ui_bench
from tests.unit import view_bench as bench
from tests.unit.operator_bench import QueryCoordinator

from onceonly.log.actions import Action, ActionFiles
from onceonly.log.progress import Progress, ProgressFiles, SourceReport
from onceonly.log.runs import RunFiles
from onceonly.operations.find import open_checkpoint
from onceonly.view.multiples import BEHIND

if TYPE_CHECKING:
    from collections.abc import Mapping

DOCS: Final = Path(__file__).parents[2] / "docs" / "how-to" / "page.md"
CLICKS_MAX: Final = 2
ANSWERS: Final = {
    "Is all of its output safe?": "stuck: chk-12 is decided, .*[Ee]verything up to chk-11 is settled: what was decided",
    "Is the job up?": "/cp down stuck:",
    "Why does my reader stand still?": (
        "chk-12 is decided, and 2 transactions of it with 6 rows [(]box[)] are not known .* "
        "Waiting for it: the epoch after chk-12, and whoever reads its rows from box"
    ),
    "What do I type?": "type: onceonly transactions commit chk-12 ",
    "When was the job killed, and where did it run?": (
        "run r1 was cut off: nobody noted its end, and it was last heard of at .* driver-1"
    ),
    "Who did what by hand, and why?": "by hand [(]commit[)] at .* by ann on .*because 'the deadline'",
    "Was epoch 5 written twice?": (
        "Written once: its 6 rows are in 2 transactions under one decision, link 5.0, and committed"
    ),
    "Why was epoch 5 slow?": "Write took longest: 9.000 s; slot 1 of box voted last, 8.000 s after the one before",
    "Which offsets did epoch 5 read?": "events/0 50 60 10 ",
    "How far behind its source is it?": (
        f"{BEHIND}, chk-0 to chk-12: at least 0, median 6, at most 12, newest 0 [(]chk-12[)]"
    ),
}
"""By the question: what stands on the page that answers it, and on no page with fewer clicks."""


def slow(query: QueryCoordinator, epoch: int) -> None:
    """Complete an epoch one of whose slots takes long."""
    query.set_barrier(epoch)
    votes = [
        replace(query.vote(epoch, slot), stamp=bench.stamp(after_s)) for slot, after_s in ((0, 1), (1, 9))
    ]
    link = replace(query.link(epoch, votes=votes), planned=bench.stamp(0), stamp=bench.stamp(9.5))
    query.log.put_link(link)
    for slot in range(2):
        query.open(f"t{epoch}-{slot}")
    query.settle(link)
    query.note(epoch)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tuple[int, str]]:
    """Walk all links from the first page; return by address the clicks to each page, and what it says."""
    folder = tmp_path_factory.mktemp("questions")
    query, other = QueryCoordinator(folder / "cp"), QueryCoordinator(folder / "other", query="9" * 8)
    other.complete(0)
    query.complete(*range(5))
    slow(query, 5)
    query.complete(*range(6, 12))
    query.decide(12)
    for epoch in range(13):
        latest = query.barrier(epoch).replace('"10": 0', f'"10": {12 - epoch}')
        source = SourceReport(name="KafkaV2", latest=latest)
        ProgressFiles(query.path).put(Progress(epoch=epoch, run="r1", sources=(source,)))
    RunFiles(query.path).put(bench.run("r1", 0))
    checkpoint = open_checkpoint(query.path)
    ActionFiles(checkpoint.store).put(
        Action(
            command="commit", epoch=3, who="ann", stamp=bench.stamp(5), because="the deadline", before="decided",
            after="committed",
        )
    )  # fmt: skip
    with ui_bench.serve([checkpoint, open_checkpoint(other.path)]) as page:
        found: dict[str, tuple[int, str]] = {}
        next_ = ["/"]
        for clicks in range(CLICKS_MAX + 1):
            asked = [path for path in dict.fromkeys(next_) if path not in found]
            texts = {path: page.get(path).text for path in asked}
            found |= {path: (clicks, said(text)) for path, text in texts.items()}
            next_ = [
                unescape(href)
                for text in texts.values()
                for href in re.findall('<a[^>]* href="(/[^"#]*)', text)
            ]
        return found


def said(page: str) -> str:
    """Return what stands on a page, as a reader sees it or is told it."""
    body = page.partition("<main")[2].partition("</main>")[0]
    told = re.sub('<[^>]*aria-label="([^"]*)"[^>]*>', r" \1 ", body)
    sentences = re.sub(r"</?(?:a|code|span|strong|time)\b[^>]*>", "", told)
    return " ".join(unescape(re.sub("<[^>]*>", " ", sentences)).split())


@pytest.mark.parametrize("question", ANSWERS)
def test_a_question_is_answered_by_the_pages_in_as_many_clicks_as_the_docs_say(
    pages: Mapping[str, tuple[int, str]], question: str
) -> None:
    clicks = [clicks for clicks, text in pages.values() if re.search(ANSWERS[question], text)]
    row = re.search(rf"^\| {re.escape(question)} \| (\d) \|", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert row is not None, "the docs do not have it"
    assert min(clicks, default=None) == int(row[1])


def test_the_docs_have_no_other_questions() -> None:
    rows = re.findall(r"^\| (.*\?) \| \d \|", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == list(ANSWERS)
