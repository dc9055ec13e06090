"""The list of all queries is live: what is stuck stands first, and a checkpoint that is made later comes by itself."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tests.unit import ui_bench
from tests.unit.operator_bench import QueryCoordinator
from tests.unit.test_ui_pages import Elements
from tests.unit.ui_bench import WAIT_S

from onceonly.operations.find import find, open_checkpoint
from onceonly.ui import roster, watcher
from onceonly.ui.roster import Roster
from onceonly_proof.handover import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.ui_bench import Page

A, B, C = (f"{letter * 8}-2222-3333-4444-555555555555" for letter in "abc")


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "EVERY_S", 0.02)
    monkeypatch.setattr(roster, "EVERY_S", 0.02)


def listed(page: Page) -> list[str]:
    """Return the addresses of the queries, in the order of the page."""
    links = Elements(page.get("/").text).of("a")
    return [str(each["href"])[1:-4] for each in links if str(each["href"]).endswith("/now")]


def test_what_is_stuck_stands_first_and_the_list_says_so_at_once(tmp_path: Path) -> None:
    a, b = (QueryCoordinator(tmp_path / name, query=name * 8) for name in "ab")
    a.complete(0)
    b.complete(0)
    with ui_bench.serve([open_checkpoint(each.path) for each in (a, b)]) as page:
        assert listed(page) == ["aaaaaaaa", "bbbbbbbb"]
        front = Elements(page.get("/").text)
        assert [each.get("data-stream") for each in front.of("body")] == ["/events"]
        assert "queries" in [each.get("id") for _, each in front.elements if "data-live" in each]
        with page.following("/events") as events:
            assert next(events)["event"] == "state"
            b.decide(1)
            assert next(events)["event"] == "state"
        assert until(lambda: listed(page) == ["bbbbbbbb", "aaaaaaaa"], WAIT_S)


def test_one_that_cannot_be_read_stands_before_those_that_are_well(tmp_path: Path) -> None:
    a, b = (QueryCoordinator(tmp_path / name, query=name * 8) for name in "ab")
    a.complete(0)
    both = [open_checkpoint(each.path) for each in (a, b)]
    shutil.rmtree(b.path)
    with ui_bench.serve(both) as page:
        assert listed(page) == ["bbbbbbbb", "aaaaaaaa"]
        assert str(b.path) in page.get("/").text


def test_one_that_could_not_be_opened_is_listed_until_it_is_mended(tmp_path: Path) -> None:
    good, bad = (QueryCoordinator(tmp_path / name, query=name * 8) for name in "ab")
    good.complete(0)
    bad.complete(0)
    header = bad.path / "onceonly" / "identity.json"
    whole = header.read_bytes()
    header.write_bytes(b"{")
    for folder in ("offsets", "commits", "sources"):
        (tmp_path / "of-spark" / folder).mkdir(parents=True)
    found = find(str(tmp_path))
    with ui_bench.serve(found.checkpoints, places=[str(tmp_path)], problems=found.problems) as page:
        shown = page.get("/").text
        assert f"{header} is empty or torn" in shown
        assert "next: put back what is named" in shown
        assert shown.index("empty or torn") < shown.index("aaaaaaaa")
        assert "of-spark" not in shown
        header.write_bytes(whole)
        assert until(lambda: listed(page) == ["aaaaaaaa", "bbbbbbbb"], WAIT_S)
        assert "torn" not in page.get("/").text


def test_one_that_could_be_read_before_and_cannot_now_stands_before_those_that_are_well(
    tmp_path: Path,
) -> None:
    a, b = (QueryCoordinator(tmp_path / name, query=name * 8) for name in "ab")
    a.complete(0)
    b.complete(0)
    with ui_bench.serve([open_checkpoint(each.path) for each in (a, b)]) as page:
        assert listed(page) == ["aaaaaaaa", "bbbbbbbb"]
        shutil.rmtree(b.path)
        assert until(lambda: listed(page) == ["bbbbbbbb", "aaaaaaaa"], WAIT_S)


def test_a_checkpoint_that_is_made_later_below_a_watched_folder_appears(tmp_path: Path) -> None:
    first = QueryCoordinator(tmp_path / "jobs" / "a", query=A)
    first.complete(0)
    place = str(tmp_path / "jobs")
    with ui_bench.serve(find(place).checkpoints, places=[place]) as page:
        assert page.get("/").headers["location"] == f"/{A}/now"
        with page.following("/events") as events:
            assert next(events)["event"] == "state"
            (tmp_path / "jobs" / "half" / "offsets").mkdir(parents=True)  # one that is being made
            QueryCoordinator(tmp_path / "jobs" / "deep" / "b", query=B).decide(0)
            assert any(listed(page) == [B, A] for event in events if event["event"] == "state")
        assert listed(page) == [B, A]
        # A link to it leads there before anybody has looked at the list. A copy has a key of its own, and is stuck.
        shutil.copytree(first.path, tmp_path / "jobs" / "copy")
        assert until(lambda: page.get(f"/{A}-2/now").status == 200, WAIT_S)
        assert listed(page) == [B, f"{A}-2", A]


def test_what_was_named_alone_is_not_searched_and_looking_takes_little_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = QueryCoordinator(tmp_path / "jobs" / "a", query=A)
    looks: list[str] = []

    def newcomers(place: str, _known: set[str]) -> tuple[()]:
        looks.append(place)
        return ()

    monkeypatch.setattr(roster, "newcomers", newcomers)
    alone = Roster([open_checkpoint(query.path)])
    monkeypatch.setattr(roster, "EVERY_S", 60.0)
    seldom = Roster([open_checkpoint(query.path)], [str(tmp_path)])
    for each in (alone, seldom):
        assert each.get("nobody") is None
        each.state()
    assert looks == []


def test_a_place_that_cannot_be_listed_hides_no_other(tmp_path: Path) -> None:
    first = QueryCoordinator(tmp_path / "a", query=A)
    found = Roster(
        [open_checkpoint(first.path)], ["nfs://no-such-store/x", str(tmp_path / "gone"), str(tmp_path)]
    )
    QueryCoordinator(tmp_path / "b", query=C)
    assert until(lambda: found.get(C) is not None, WAIT_S)
    assert [each.key for each in found.all] == [A, C]
