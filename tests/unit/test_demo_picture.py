"""The picture shows each life, try and kill of the log, and needs nothing from outside."""

from __future__ import annotations

import re
from datetime import timedelta
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

from onceonly.model import Guarantee
from onceonly.view import style
from onceonly_proof.demo import picture
from onceonly_proof.demo.audit import Audit
from onceonly_proof.demo.follow import Transactions
from onceonly_proof.demo.report import Result
from onceonly_proof.demo.timeline import build

if TYPE_CHECKING:
    from pathlib import Path

NAMES = {"id-c": "clean", "id-r": "results"}
_BLANK = {"query": "", "epoch": -1, "slot": -1, "sink": "", "transaction": "", "seq": 0}


def line(kind: str, t: float, query: str = "", epoch: int = -1, **more: str | int) -> dict[str, Any]:
    return {**_BLANK, "kind": kind, "t": 1_000 + t, "query": query, "epoch": epoch, **more}


def epoch(query: str, number: int, t: float, mode: str = "run") -> list[dict[str, Any]]:
    return [
        line("epoch.planned", t, query, number, mode=mode),
        line("slot.begun", t + 0.1, query, number, slot=0),
        line("slot.prepared", t + 0.2, query, number, slot=0),
        line("slot.voted", t + 0.21, query, number, slot=0, rows="7"),
        line("link.persisted", t + 0.3, query, number, link="GLOBAL_COMMIT", index=0),
        line("handle.committed", t + 0.4, query, number, slot=0, outcome="Committed"),
        line("receipt.persisted", t + 0.5, query, number),
        line("swept", t + 0.55, query, number, transaction="t<1>"),
        line("epoch.done", t + 0.6, query, number, mode=mode),
    ]


def run() -> list[dict[str, Any]]:
    return [
        line("job.started", 0, step="link.after_put"),
        *epoch("id-c", 0, 5.0),
        line("visible", 5.5, sink="clean", count=7),
        *epoch("id-r", 0, 5.2),
        *epoch("id-c", 1, 6.0)[:5],
        line("job.killed", 6.4, step="link.after_put"),
        line("job.started", 6.5, step=""),
        line("handle.resolved", 11.0, "id-c", 1, slot=0, outcome="Committed"),
        line("receipt.persisted", 11.1, "id-c", 1),
        line("link.persisted", 11.15, "id-c", 2, link="ABORT", index=0),
        line("epoch.planned", 11.2, "id-c", 1, mode="drain"),
        line("slot.voted", 11.6, "id-c", 1, slot=0, rows="7"),
        line("epoch.done", 11.7, "id-c", 1),
        line("visible", 11.1, sink="clean", count=14),
        line("job.exited", 13.0, status=0),
    ]


def result() -> Result:
    audit = Audit(
        events=14,
        windows=2,
        missing=0,
        duplicated_events=0,
        doubled_results=0,
        foreign=0,
        unequal=0,
        wrong_windows=1,
    )
    return Result(
        guarantee=Guarantee.EXACTLY_ONCE,
        seed=1,
        audit=audit,
        kills={"link.after_put": 1},
        epochs={"clean": 2, "results": 1},
        transactions=Transactions(2, 1, 3),
        late=timedelta(hours=22),
        seconds=13.0,
    )


class Checker(HTMLParser):
    """Sees that every element is closed and no address leads outside."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in {"meta", "br"}:
            self.open.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in {"href", "src"}]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_log_becomes_lives_and_tries() -> None:
    timeline = build(run(), NAMES)
    assert [(life.number, round(life.end, 3), life.step) for life in timeline.lives] == [
        (1, 6.4, "link.after_put"),
        (2, 13.0, ""),
    ]
    tries = [(each.query, each.epoch, each.life, each.mode, each.done is None) for each in timeline.tries]
    assert tries == [
        ("clean", 0, 1, "run", False),
        ("results", 0, 1, "run", False),
        ("clean", 1, 1, "run", True),
        ("clean", 1, 2, "drain", False),
    ]
    recovery = timeline.tries[-1]
    assert [moment.kind for moment in recovery.moments] == [
        "handle.resolved",
        "receipt.persisted",
        "link.persisted",
    ]
    assert [timeline.visible_at("clean", t) for t in (0, 6, 12)] == [0, 7, 14]


def test_the_page_is_whole_and_stands_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "picture.html"
    picture.write(path, run(), names=NAMES, result=result())
    page = path.read_text(encoding="utf-8")
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    # In the whole run, and in its own picture.
    assert checker.addresses == ["#kill-1", "#kill-1"]
    assert "http" not in re.sub(r"</?\w[^>]*>", "", page)
    assert 'id="kill-1"' in page
    # As every page of the renderer: its style, and a policy that lets it fetch nothing.
    assert "default-src &#x27;none&#x27;" in page
    assert style.PAGE in page
    assert "not clean for exactly-once" in page
    assert "t&lt;1&gt;" in page
    kills = page.partition("Every kill")[2]
    for bar in ("drain", "cut", "slot"):
        assert f'class="b demo-{bar}"' in kills
    for mark in ("decision", "recovered", "receipt", "swept"):
        assert f'class="m {mark}"' in kills


def test_an_empty_log_is_drawn_too() -> None:
    timeline = build([], NAMES)
    assert "There was none" in picture.draw(timeline, result())


def test_an_epoch_that_failed_and_was_planned_again_is_two_tries() -> None:
    lines = [
        line("job.started", 0),
        *epoch("id-c", 0, 1.0)[:4],
        *epoch("id-c", 0, 3.0),
        line("job.exited", 9),
    ]
    assert [each.done is None for each in build(lines, NAMES).tries] == [True, False]


def test_a_life_that_ended_before_it_planned_anything_shows_what_it_did() -> None:
    lines = [
        line("job.started", 0),
        line("handle.resolved", 4, "id-c", 3, slot=1),
        line("job.killed", 5, step="x"),
    ]
    assert [(each.epoch, each.begin, each.mode) for each in build(lines, NAMES).tries] == [(3, 4.0, "")]
