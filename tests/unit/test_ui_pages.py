"""The pages say how a checkpoint stands, whatever its names are, without a script and without a write."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest
from tests.unit import ui_bench
from tests.unit.operator_bench import QUERY, QueryCoordinator, run

from onceonly.model import Handle, Stamp
from onceonly.operations.find import open_checkpoint
from onceonly.ui.pages import TABS, Window, _templates
from onceonly.view.markup import tag

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.unit.ui_bench import Page

EVIL = "</script><img src=x onerror=alert(1)>"
PAGES = (*(f"/{QUERY}/{name}" for name, _ in TABS), f"/{QUERY}/epoch/1", f"/{QUERY}/timeline?to=1")


class EvilCoordinator(QueryCoordinator):
    """Names everything that has a name of somebody else's so that it would be markup."""

    def barrier(self, epoch: int) -> str:
        return json.dumps({EVIL: {"0": 10 * (epoch + 1)}})


@pytest.fixture(scope="module")
def query(tmp_path_factory: pytest.TempPathFactory) -> QueryCoordinator:
    query = QueryCoordinator(tmp_path_factory.mktemp("pages") / "cp")
    query.complete(*range(12))
    query.claim(12)
    query.decide(12, index=1)
    return query


@pytest.fixture(scope="module")
def page(query: QueryCoordinator) -> Iterator[Page]:
    with ui_bench.serve([open_checkpoint(query.path)]) as page:
        yield page


class Elements(HTMLParser):
    """Collects what a browser would make of a page: its elements, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def evil_query(folder: Path) -> QueryCoordinator:
    query = EvilCoordinator(folder)
    query.complete(0)
    stamp = Stamp(at="2026-03-01T12:00:00.000Z", host=EVIL, pid=7)
    vote = replace(
        query.vote(1), sink=EVIL, stamp=stamp, run=EVIL, checksum=EVIL, handle=Handle(transaction=EVIL)
    )
    link = query.link(1, 1, votes=[vote])
    query.set_barrier(1)
    query.claim(1, reason=EVIL)
    query.log.put_link(replace(link, stamp=stamp, planned=stamp, run=EVIL, uses={EVIL: link.uses["box"]}))
    return query


def test_names_of_others_are_text(tmp_path: Path) -> None:
    query = evil_query(tmp_path / "cp")
    shown = ""
    with ui_bench.serve([open_checkpoint(query.path)]) as page:
        for path in (
            *PAGES,
            f"/{QUERY}/epoch/{EVIL.replace('/', '%2F').replace(' ', '%20')}",
            f"/{QUERY}/nowhere",
        ):
            found = Elements(page.get(path).text)
            assert found.of("img") == []
            assert [each.get("src") for each in found.of("script")] == ["/page.js"], path
            assert not [name for _, each in found.elements for name in each if name.startswith("on")]
            assert not [each for _, each in found.elements if "style" in each]
            shown += found.text
        with page.following(f"/{QUERY}/events?after=0.receipt") as events:
            first = next(events)
        assert EVIL in json.loads(first["data"])["what"]
    assert shown.count(EVIL) > 10


def test_a_name_does_not_turn_round_what_stands_behind_it() -> None:
    page = (
        _templates().from_string("<p>{{ name }} is {{ how }}</p>").render(name="a\u202eb<", how=tag("b", "x"))
    )
    assert page == "<p>a\ufffdb&lt; is <b>x</b></p>"


def test_without_a_script_each_page_says_how_it_stands(page: Page) -> None:
    for path in PAGES:
        answer = page.get(path)
        assert answer.status == 200, path
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        found = Elements(answer.text)
        assert "chk-1" in found.text
        assert "Without JavaScript this page stands still" in found.text
        assert found.of("table")
    now = Elements(page.get(f"/{QUERY}/now").text).text
    assert "Everything up to chk-11 is settled" in now
    assert "2 transactions of it with 6 rows (box) are not known to be committed" in now
    assert "onceonly transactions commit chk-12" in now


def test_what_is_in_doubt_is_explained(page: Page, query: QueryCoordinator) -> None:
    text = Elements(page.get(f"/{QUERY}/doubt").text).text
    for words in (
        "t12-0",
        "t12-1",
        "what slot 0 of chk-12 has prepared",
        "onceonly transactions commit t12-0",
    ):
        assert words in text
    assert "this page asks no target" in text
    assert f"onceonly transactions list --ask {query.path}" in text


def test_of_a_checkpoint_that_was_moved_no_command_is_told_that_refuses(tmp_path: Path) -> None:
    query = QueryCoordinator(tmp_path / "cp")
    query.decide(0)
    here = query.path.rename(tmp_path / "elsewhere")
    with ui_bench.serve([open_checkpoint(here)]) as page:
        text = Elements(page.get(f"/{QUERY}/doubt").text).text
    assert f"onceonly checkpoints accept-move {here}" in text
    assert "onceonly transactions commit" not in text
    assert f"there is none before the move from file://{tmp_path}/cp is accepted; then: it asks" in text


def test_where_a_query_was_restored_from_the_page_leads_there(tmp_path: Path) -> None:
    query, there = QueryCoordinator(tmp_path / "cp"), tmp_path / "there"
    query.complete(0, 1)
    assert run("savepoint", "create", query.path, tmp_path / "saved").returncode == 0
    assert run("savepoint", "restore", tmp_path / "saved", "--to", there).returncode == 0
    with ui_bench.serve([open_checkpoint(query.path)]) as page:
        text = Elements(page.get(f"/{QUERY}/now").text).text
    assert f"start the job at file://{there}: its query was restored there from a savepoint" in text
    assert "accept" not in text
    told = run("checkpoints", "list", query.path).stdout
    assert f"restored from a savepoint to file://{there}: no run starts here" in told


def test_a_page_of_an_empty_log_has_the_places_where_the_first_epoch_is_shown(tmp_path: Path) -> None:
    query = QueryCoordinator(tmp_path / "cp")

    def live() -> dict[str, set[str | None]]:
        with ui_bench.serve([open_checkpoint(query.path)]) as page:
            pages = {name: Elements(page.get(f"/{QUERY}/{name}").text) for name, _ in TABS}
        return {
            name: {each["id"] for _, each in found.elements if "data-live" in each}
            for name, found in pages.items()
        }

    before = live()
    query.complete(0)
    assert live() == before


def test_an_epoch_leads_to_its_neighbours(page: Page) -> None:
    found = {each.get("rel"): each["href"] for each in Elements(page.get(f"/{QUERY}/epoch/5").text).of("a")}
    assert found["prev"] == f"/{QUERY}/epoch/4"
    assert found["next"] == f"/{QUERY}/epoch/6"
    assert page.get(f"/{QUERY}/epoch?epoch=chk-5").text.count("chk-5") > 3
    assert "chk-12" in page.get(f"/{QUERY}/epoch").text


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (f"/{QUERY}/epoch/999", "has no chk-999"),
        (f"/{QUERY}/epoch/nine", "does not name an epoch"),
        (f"/{QUERY}/timeline?to=-3", "does not name an epoch"),
        (f"/{QUERY}/timeline?to=%D9%A7", "does not name an epoch"),
        (f"/{QUERY}/epoch?epoch={'9' * 400}", "does not name an epoch"),
        ("/no-such-query/now", "There is no query no-such-query here"),
        ("/no-such-query/events", "There is no such query here"),
        (f"/{QUERY}/passwd", "There is no such page"),
        (f"/{QUERY}/../../../../etc/passwd", "There is no such page"),
        ("/..%2f..%2fetc/passwd", "There is no such page"),
        ("/%2e%2e/%2e%2e/page.css", "There is no such page"),
        ("/static/page.js", "There is no such page"),
        ("/page.js/../serving.py", "There is no such page"),
        ("/templates/base.html.jinja", "There is no such page"),
        ("/page.js%00", "There is no such page"),
    ],
)
def test_what_is_not_there_is_said_and_nothing_else_is_given(page: Page, path: str, words: str) -> None:
    answer = page.get(path)
    assert answer.status == 404
    assert words in Elements(answer.text).text
    assert "Traceback" not in answer.text


def test_several_queries_are_listed_with_how_they_stand(query: QueryCoordinator, tmp_path: Path) -> None:
    other = QueryCoordinator(tmp_path / "other", query="99999999-2222-3333-4444-555555555555")
    other.complete(0)
    both = [open_checkpoint(query.path), open_checkpoint(other.path), open_checkpoint(other.path)]
    with ui_bench.serve(both, prefix="/proxy") as page:
        found = Elements(page.get("/proxy/").text)
        assert f"/proxy/{QUERY}/now" in [each["href"] for each in found.of("a")]
        assert f"/proxy/{other.query}-2/now" in [each["href"] for each in found.of("a")]
        assert "stuck: chk-12 is decided, and 2 transactions" in found.text


@pytest.mark.parametrize("strips", [False, True], ids=["whole paths", "stripped paths"])
@pytest.mark.parametrize("prefix", ["", "/proxy/4000"])
def test_a_slash_more_or_less_leads_to_the_page_below_the_prefix(
    query: QueryCoordinator, prefix: str, *, strips: bool
) -> None:
    seen = "" if strips else prefix
    with ui_bench.serve([open_checkpoint(query.path)], prefix=prefix) as page:
        for asked, leads in (
            (f"/{QUERY}", f"/{QUERY}/now"),
            (f"/{QUERY}/", f"/{QUERY}"),
            (f"/{QUERY}/timeline/?to=7", f"/{QUERY}/timeline?to=7"),
            (f"/{QUERY}/epoch/", f"/{QUERY}/epoch"),
            ("//evil.example//", "/evil.example"),
            ("/%5Cevil.example/", "/%5Cevil.example"),
        ):
            answer = page.get(seen + asked)
            assert (answer.status, answer.headers.get("location")) == (303, prefix + leads), asked
        assert page.get(seen or "/").headers["location"] == f"{prefix}/{QUERY}/now"
        assert page.get(f"{seen}/no-such-query").status == 404


def test_one_that_cannot_be_read_hides_no_other(query: QueryCoordinator, tmp_path: Path) -> None:
    other = QueryCoordinator(tmp_path / "other", query="99999999-2222-3333-4444-555555555555")
    other.complete(0)
    both = [open_checkpoint(query.path), open_checkpoint(other.path)]
    shutil.rmtree(other.path / "onceonly" / "links")
    with ui_bench.serve(both) as page:
        answer = page.get(f"/{other.query}/now")
        assert (answer.status, "is missing" in answer.text) == (503, True)
        front = Elements(page.get("/").text).text
        assert "is missing" in front
        assert "stuck: chk-12 is decided, and 2 transactions" in front


def test_what_was_seen_stays_where_the_checkpoint_cannot_be_read_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceonly.ui.watcher.EVERY_S", 0.0)
    query = QueryCoordinator(tmp_path / "cp")
    query.complete(0, 1)
    with ui_bench.serve([open_checkpoint(query.path)]) as page:
        assert "cannot be read now" not in page.get(f"/{QUERY}/now").text
        (query.path / "onceonly" / "links" / f"{2:020d}.0.json").write_text("torn", encoding="utf-8")
        answer = page.get(f"/{QUERY}/now")
    assert answer.status == 200
    assert "This is not new: the checkpoint cannot be read now." in answer.text
    assert "everything up to chk-1 is settled" in answer.text
    assert "when it was last read, safe: everything" in Elements(answer.text).text
    assert 'class="oo-verdict unknown"' in answer.text, "what is not known now is not drawn as safe"
    assert "the next start goes on from here" not in answer.text


def test_a_checkpoint_that_vanishes_while_it_is_watched_is_not_said_to_be_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceonly.ui.watcher.EVERY_S", 0.0)
    query = QueryCoordinator(tmp_path / "cp")
    query.complete(0, 1)
    query.decide(2)
    other = QueryCoordinator(tmp_path / "other", query="other")
    with ui_bench.serve([open_checkpoint(each.path) for each in (query, other)]) as page:
        assert "not new" not in page.get("/").text
        shutil.rmtree(query.path)
        assert page.get("/").text.count("not new, as it cannot be read now (the decision log of query") == 1
        answer = page.get(f"/{QUERY}/now")
        assert "has no chk-2" not in page.get(f"/{QUERY}/epoch/2").text
    assert "This is not new: the checkpoint cannot be read now." in answer.text
    assert "2 transactions of it with 6 rows (box) are not known to be committed" in answer.text


def test_nothing_is_written(query: QueryCoordinator, page: Page) -> None:
    def everything() -> dict[str, tuple[int, int]]:
        found = (each for each in query.path.rglob("*") if each.is_file())
        return {str(each): (each.stat().st_mtime_ns, each.stat().st_size) for each in found}

    before = everything()
    for path in PAGES:
        page.get(path)
    with page.following(f"/{QUERY}/events") as events:
        next(events)
    assert everything() == before
    assert sorted(each.name for each in query.path.iterdir()) == [
        "commits",
        "metadata",
        "offsets",
        "onceonly",
    ]


def test_the_script_is_one_and_small(page: Page) -> None:
    script = page.get("/page.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert len(script.text.encode()) < 15_000
    sheet = page.get("/page.css").text
    for words in ("prefers-color-scheme", "@media print", ".oo-verdict"):
        assert words in sheet
    for outside in ("http:", "https:", "@import", "url("):
        assert outside not in script.text + sheet


def test_windows_are_those_of_the_log() -> None:
    assert Window.of(range(100_000), None, 60) == Window(first=99_940, last=99_999, older=99_939, newer=None)
    assert Window.of(range(100_000), 99_939, 60) == Window(
        first=99_880, last=99_939, older=99_879, newer=99_999
    )
    assert Window.of(range(5, 20), 7, 60) == Window(first=5, last=7, older=None, newer=19)
    assert Window.of(range(5, 20), 2, 60) == Window(first=5, last=5, older=None, newer=19)
    assert Window.of(range(5, 20), 900, 60) == Window(first=5, last=19, older=None, newer=None)
    assert Window.of(range(0), None, 60) == Window(first=0, last=0, older=None, newer=None)
