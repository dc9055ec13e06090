"""Every page in a real browser: both themes, the keyboard alone, no script, no connection, names that are markup."""

from __future__ import annotations

import json
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import html_checker
import pytest
import ui_browser
from tests.unit import ui_bench
from tests.unit.operator_bench import QUERY, QueryCoordinator
from tests.unit.test_ui_pages import EVIL, PAGES, evil_query
from tests.unit.test_ui_traces import write
from tests.unit.test_view_tries import DEAD, recorded
from tests.unit.ui_bench import WAIT_S

from onceonly.log.progress import Progress, ProgressFiles, SourceReport
from onceonly.looking import seen
from onceonly.operations.find import open_checkpoint
from onceonly.ui import opening
from onceonly.ui.pages import TABS
from onceonly.view import multiples
from onceonly.view.page import report as page_of
from onceonly_proof.handover import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import APIResponse, Browser, Page, Request, Route
    from tests.unit.ui_bench import Page as Server
    from ui_browser import Scheme

browser = ui_browser.shared  # a fixture
pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture(scope="module")
def stuck(tmp_path_factory: pytest.TempPathFactory) -> QueryCoordinator:
    """Leave a query of 80 epochs, the last one decided and not committed."""
    query = QueryCoordinator(tmp_path_factory.mktemp("stuck") / "cp")
    query.complete(*range(79))
    query.claim(79)
    query.decide(79, index=1)
    return query


@pytest.fixture(scope="module")
def server(stuck: QueryCoordinator) -> Iterator[Server]:
    with ui_bench.serve([open_checkpoint(stuck.path)]) as server:
        yield server


@pytest.fixture
def query(tmp_path: Path) -> QueryCoordinator:
    query = QueryCoordinator(tmp_path / "cp")
    query.complete(0, 1, 2)
    return query


@pytest.fixture
def live(query: QueryCoordinator, browser: Browser) -> Iterator[tuple[Server, Page]]:
    with (
        ui_bench.serve([open_checkpoint(query.path)]) as server,
        ui_browser.tab(browser, server.address) as (page, _),
    ):
        page.locator("#live[data-state=on]").wait_for()
        yield server, page


@pytest.mark.parametrize("scheme", ui_browser.SCHEMES)
@pytest.mark.parametrize("path", [*PAGES, "/", "/nowhere"])
def test_axe_finds_nothing(
    server: Server, browser: Browser, tmp_path: Path, path: str, scheme: Scheme
) -> None:
    with ui_browser.tab(browser, server.address, scheme=scheme) as (page, wrong):
        page.goto(f"{server.base}{path}")
        assert ui_browser.findings(page) == []
        page.keyboard.press("?")
        page.get_by_role("dialog").wait_for()
        assert ui_browser.findings(page) == []
        assert [each for each in wrong if "404" not in each] == []
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}[scheme]
        assert page.evaluate("document.documentElement.scrollWidth") <= ui_browser.SIZE[0]


class Timed(QueryCoordinator):
    """Reads a source that tells how old the place is at which an epoch begins, as Kinesis does."""

    def barrier(self, epoch: int) -> str:
        return json.dumps({"start": {"a": ["after", "7"]}, "onceonly.behind.ms": {"start/a": 400 * epoch}})


@pytest.fixture(scope="module", params=["rows", "seconds"])
def late(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, str]]:
    """Serve a query whose epochs are behind their source; give the title of the figure that shows it, too."""
    place = tmp_path_factory.mktemp("late") / "cp"
    query = QueryCoordinator(place) if request.param == "rows" else Timed(place)
    query.complete(*range(30))
    for epoch in range(30):
        latest = json.dumps({"events": {"0": 10 * (epoch + 1) + 7 * epoch, "1": 5 * (epoch + 1), "10": 0}})
        source = SourceReport(name="KafkaV2", latest=latest if request.param == "rows" else "")
        ProgressFiles(query.path).put(Progress(epoch=epoch, run="r", sources=(source,)))
    with ui_bench.serve([open_checkpoint(query.path)]) as server:
        yield server, multiples.BEHIND if request.param == "rows" else multiples.BEHIND_S


SMALLEST = """Math.min(...[...document.querySelectorAll(".oo-figures text")].map(
  (each) => each.getScreenCTM().a * parseFloat(getComputedStyle(each).fontSize)))"""
"""How many pixels the smallest words of the figures are high, as they are shown."""


@pytest.mark.parametrize("scheme", ui_browser.SCHEMES)
def test_axe_finds_nothing_where_a_query_is_behind_its_source(
    late: tuple[Server, str], browser: Browser, scheme: Scheme
) -> None:
    server, title = late
    with ui_browser.tab(browser, server.address, scheme=scheme) as (page, wrong):
        for path in ("latency", "epoch/29"):
            page.goto(f"{server.base}/{QUERY}/{path}")
            if path == "latency":
                assert page.get_by_role("img", name=title).count() == 1
                assert page.evaluate(SMALLEST) >= 9
            assert ui_browser.findings(page) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= ui_browser.SIZE[0]
        assert wrong == []


@pytest.mark.parametrize("scheme", ui_browser.SCHEMES)
def test_a_report_is_for_everybody_and_asks_no_network(
    stuck: QueryCoordinator, browser: Browser, tmp_path: Path, scheme: Scheme
) -> None:
    for name, query in (("stuck", stuck), ("evil", evil_query(tmp_path / "cp"))):
        file = tmp_path / f"{name}.html"
        file.write_text(page_of(seen(open_checkpoint(query.path), epochs=1000)), encoding="utf-8")
        with ui_browser.tab(browser, "about:blank", scheme=scheme) as (page, wrong):
            asked: list[str] = []
            page.on("request", partial(note, asked))
            page.goto(file.as_uri())
            for each in page.locator("summary").all()[:3]:
                each.focus()
                page.keyboard.press("Enter")
            assert ui_browser.findings(page) == []
            assert (page.locator("img").count(), page.locator("script").count()) == (0, 0)
            assert asked == [file.as_uri()]
            assert wrong == []


def test_names_of_others_run_nothing(browser: Browser, tmp_path: Path) -> None:
    query = evil_query(tmp_path / "cp")
    several = [open_checkpoint(query.path), open_checkpoint(query.path)]
    with ui_bench.serve(several) as server, ui_browser.tab(browser, server.address) as (page, wrong):
        for path in (*PAGES, "/"):
            page.goto(f"{server.base}{path}")
            assert page.locator("img").count() == 0
            assert page.locator("script").count() == 1
            assert ui_browser.findings(page) == []
        page.goto(f"{server.base}/{QUERY}/now")
        page.locator("#live[data-state=on]").wait_for()
        query.claim(1, 2, reason=EVIL)
        page.locator("#records li", has_text=EVIL).nth(1).wait_for()
        assert page.locator("img").count() == 0
        assert wrong == []


def test_html_and_styles_are_valid(stuck: QueryCoordinator, tmp_path: Path) -> None:
    evil = evil_query(tmp_path / "cp")
    with ui_bench.serve([open_checkpoint(stuck.path), open_checkpoint(evil.path)]) as server:
        found = {
            f"{number}.html": server.get(path).text
            for number, path in enumerate(
                (*PAGES, *(path.replace(QUERY, f"{QUERY}-2") for path in PAGES), "/", "/no")
            )
        }
        found["page.css"] = server.get("/page.css").text
    for query in (stuck, evil):
        found[f"report-{query.path.parent.name}.html"] = page_of(
            seen(open_checkpoint(query.path), epochs=1000)
        )
    assert len(found) == 2 * len(PAGES) + 5
    assert html_checker.complaints(found, tmp_path) == []
    found["0.html"] = found["0.html"].replace("</main>", "</mian>").replace("<h1>", '<h1 id="main">')
    assert len(html_checker.complaints(found, tmp_path)) > 1


def test_without_a_script_the_verdict_and_the_tables_stay(server: Server, browser: Browser) -> None:
    with ui_browser.tab(browser, server.address, script=False) as (page, _):
        for name, words in TABS:
            page.get_by_role("link", name=words, exact=True).click()
            assert page.url == f"{server.base}/{QUERY}/{name}"
            page.locator("table tbody tr").first.wait_for()
            page.get_by_text("Without JavaScript this page stands still").wait_for()
        page.goto(f"{server.base}/{QUERY}/now")
        assert "chk-79 is decided, and 2 transactions" in str(page.locator(".oo-verdict").text_content())
        page.get_by_label("Epoch", exact=True).fill("7")
        page.get_by_role("button", name="Go").click()
        page.get_by_role("heading", name="Epoch chk-7").wait_for()


def test_each_page_is_reached_by_its_number(server: Server, browser: Browser) -> None:
    with ui_browser.tab(browser, server.address) as (page, wrong):
        numbered = list(enumerate(TABS, start=1))
        for number, (name, _) in (*numbered[1:], numbered[0]):  # each leads to another page
            page.keyboard.press(str(number))
            page.wait_for_url(f"{server.base}/{QUERY}/{name}")
        assert wrong == []


def test_lines_windows_and_epochs_are_reached_by_the_keyboard(server: Server, browser: Browser) -> None:
    with ui_browser.tab(browser, server.address) as (page, _):
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("k")
        assert ui_browser.focus(page) == "chk-78"
        page.keyboard.press("Enter")
        page.wait_for_url("**/epoch/78")
        page.keyboard.press("ArrowLeft")
        page.wait_for_url("**/epoch/77")
        page.keyboard.press("ArrowRight")
        page.wait_for_url("**/epoch/78")
        page.keyboard.press("n")
        page.wait_for_url("**/epoch")
        page.keyboard.press("e")
        page.keyboard.type("12")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Epoch chk-12").wait_for()
        page.goto(f"{server.base}/{QUERY}/timeline")
        page.keyboard.press("ArrowLeft")
        page.get_by_text("chk-0 to chk-19", exact=True).wait_for()
        page.locator("#live[data-state=on]").wait_for()  # the script listens to keys by then
        page.keyboard.press("ArrowRight")
        page.get_by_text("chk-20 to chk-79", exact=True).wait_for()


def test_help_and_copying_need_no_mouse(server: Server, browser: Browser) -> None:
    with ui_browser.tab(browser, server.address) as (page, _):
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.keyboard.press("?")
        page.get_by_role("dialog", name="Keys").wait_for()
        page.keyboard.press("Escape")
        assert page.get_by_role("dialog").count() == 0
        page.keyboard.press("c")
        page.get_by_role("button", name="Copied").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied.startswith("onceonly transactions commit chk-79 ")


@pytest.mark.parametrize("name", [name for name, _ in TABS])
def test_the_tab_key_reaches_everything_and_it_is_seen_where_it_is(
    server: Server, browser: Browser, name: str
) -> None:
    with ui_browser.tab(browser, server.address) as (page, _):
        page.goto(f"{server.base}/{QUERY}/{name}")
        wanted = page.evaluate(
            """() => [...document.querySelectorAll("a[href], button, input, [tabindex='0']")]
            .filter((each) => each.checkVisibility() && !each.closest("dialog"))
            .map((each, number) => (each.nth = number))"""
        )
        reached = set()
        for _ in range(len(wanted) + 5):
            page.keyboard.press("Tab")
            number, outline = page.evaluate(
                "[document.activeElement.nth ?? null, getComputedStyle(document.activeElement).outlineStyle]"
            )
            if number is not None:
                reached.add(int(number))
                assert outline != "none"
        assert reached == set(wanted)


def test_what_is_new_comes_by_itself_and_the_focus_stays(
    query: QueryCoordinator, live: tuple[Server, Page]
) -> None:
    _, page = live
    page.keyboard.press("j")
    assert ui_browser.focus(page) == "chk-2"
    query.complete(3)
    page.get_by_text("everything up to chk-3 is settled").wait_for()
    assert page.evaluate("Boolean(document.activeElement.closest('#epochs'))")
    query.decide(4)
    page.get_by_text("chk-4 is decided, and 2 transactions").wait_for()
    page.get_by_role("button", name="Copy").wait_for()


def test_what_only_the_event_log_tells_comes_by_itself(
    query: QueryCoordinator, browser: Browser, tmp_path: Path
) -> None:
    query.set_barrier(3)
    lines = [{**line, "query": QUERY, "epoch": 3} for line in recorded() if line["plan"] == DEAD]
    path = write(tmp_path / "events", lines[:1])
    with (
        ui_bench.serve([open_checkpoint(query.path)], events=tmp_path / "events") as server,
        ui_browser.tab(browser, server.address) as (page, wrong),
    ):
        page.goto(f"{server.base}/{QUERY}/epoch/3")
        page.locator("#live[data-state=on]").wait_for()
        time.sleep(1)  # what the first state has asked for is there
        assert not page.get_by_text("voted to commit").count()
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(line)}\n" for line in lines[1:])
        page.locator("td", has_text="voted to commit").first.wait_for(timeout=20_000)
    assert wrong == []


def note(asked: list[str], request: Request) -> None:
    asked.append(request.url)


def positions(page: Page) -> list[str]:
    """Return the records that a tab has shown, oldest first."""
    return [str(each.get_attribute("data-position")) for each in page.locator("#records li").all()][::-1]


def test_without_a_connection_nothing_is_lost_or_repeated(
    query: QueryCoordinator, live: tuple[Server, Page]
) -> None:
    server, page = live
    for turn in range(3):
        page.context.set_offline(True)
        server.cut()  # a connection that stands is not cut by the browser's own switch
        page.locator("#live[data-state=off]").wait_for()
        query.complete(3 + 2 * turn, 4 + 2 * turn)
        page.context.set_offline(False)
        page.locator(f"#records li[data-position='{4 + 2 * turn}.receipt']").wait_for()
    assert positions(page) == [each for epoch in range(9) for each in (f"{epoch}.0", f"{epoch}.receipt")]


def test_a_hidden_tab_has_no_stream_and_is_told_when_it_is_back(
    query: QueryCoordinator, live: tuple[Server, Page]
) -> None:
    server, page = live
    assert len(server.streams) == 1
    hide = "(hidden) => { Object.defineProperty(document, 'hidden', {configurable: true, get: () => Boolean(hidden)});"
    turn = f"{hide} document.dispatchEvent(new Event('visibilitychange')); }}"
    page.evaluate(turn, 1)
    assert until(lambda: len(server.streams) == 0, WAIT_S)
    query.complete(3)
    page.evaluate(turn, 0)
    page.locator("#records li[data-position='3.receipt']").wait_for()
    assert positions(page) == [each for epoch in range(4) for each in (f"{epoch}.0", f"{epoch}.receipt")]


def test_more_tabs_than_streams_still_open_and_say_so(
    query: QueryCoordinator, live: tuple[Server, Page]
) -> None:
    _, first = live
    others = [first.context.new_page() for _ in range(6)]
    for each in others:
        each.goto(first.url)
        each.locator("#live[data-state=on]").wait_for()
    first.get_by_text("not live: too many tabs look").wait_for()
    first.evaluate("dispatchEvent(new Event('focus'))")
    first.locator("#live[data-state=on]").wait_for()


def test_a_page_that_cannot_be_had_anew_does_not_say_that_it_is_live(
    query: QueryCoordinator, live: tuple[Server, Page]
) -> None:
    _, page = live
    page.route("**/now", lambda route: route.fulfill(status=503, body="no"))
    query.complete(3)
    page.wait_for_selector('#live:has-text("not live: this page cannot be shown now")')
    page.unroute("**/now")
    query.complete(4)
    page.wait_for_selector('#live[data-state="on"]')


def test_an_answer_that_is_late_stands_over_no_newer_one(
    query: QueryCoordinator, live: tuple[Server, Page]
) -> None:
    _, page = live
    held: list[Route] = []

    answers: list[APIResponse] = []

    def hold(route: Route) -> None:
        if len(answers) < 2:
            held.append(route)
        else:
            route.continue_()

    page.route("**/now", hold)
    for epoch in (3, 4):
        query.complete(epoch)
        page.wait_for_selector(f'#records a:has-text("chk-{epoch}")')
        # A clock that is set later and for longer rings later than that of the page.
        page.evaluate("new Promise((done) => setTimeout(done, 500))")
        answers.append(held[0].fetch())
    assert len(held) == 1
    held[0].fulfill(response=answers[0])
    page.wait_for_selector('#verdict:has-text("up to chk-4")')


def test_the_file_that_opens_a_browser_leads_to_the_page(
    browser: Browser, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []

    def look(uri: str) -> bool:
        given.append(uri)
        return True

    monkeypatch.setattr("webbrowser.open", look)
    with opening.opened(server.address, given.append):
        assert until(lambda: given, WAIT_S)
        with ui_browser.tab(browser, given[0]) as (page, wrong):
            page.locator("#verdict").wait_for()
            page.locator("#live[data-state=on]").wait_for()
            assert page.url == f"{server.base}/{QUERY}/now"
            assert wrong == []


def test_the_list_of_all_queries_is_live_and_what_is_stuck_comes_first(
    browser: Browser, tmp_path: Path
) -> None:
    first, other = (QueryCoordinator(tmp_path / name, query=name * 8) for name in "ab")
    first.complete(0)
    several = [open_checkpoint(each.path) for each in (first, other)]
    with ui_bench.serve(several) as server, ui_browser.tab(browser, server.address) as (page, wrong):
        page.locator("#live[data-state=on]").wait_for()
        assert "aaaaaaaa" in str(page.locator("#queries tbody tr").first.text_content())
        other.decide(0)
        page.locator("#queries tbody tr").first.get_by_text("bbbbbbbb").wait_for()
        assert ui_browser.findings(page) == []
        assert wrong == []


def test_the_end_of_the_server_is_said(live: tuple[Server, Page]) -> None:
    server, page = live
    server.streams.close()
    page.get_by_text("not live: onceonly ui has ended").wait_for()
    assert "everything up to chk-2 is settled" in str(page.locator("#verdict").text_content()).lower()


def test_paper_has_no_buttons_and_no_menus(server: Server, browser: Browser) -> None:
    with ui_browser.tab(browser, server.address, scheme="dark") as (page, _):
        page.emulate_media(media="print")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        for gone in ("nav", "#live", "button", "footer", "form"):
            assert not page.locator(gone).first.is_visible()
        assert page.locator(".oo-verdict").is_visible()


def test_a_narrow_screen_scrolls_in_one_direction(server: Server, browser: Browser) -> None:
    with ui_browser.tab(browser, server.address, width=320) as (page, _):
        for path in (*PAGES, "/"):
            page.goto(f"{server.base}{path}")
            assert page.evaluate("document.documentElement.scrollWidth") <= 320, path


def test_a_page_that_is_looked_at_is_cheap(query: QueryCoordinator, live: tuple[Server, Page]) -> None:
    """Epochs come ten times a second: the tab asks for the page twice a second at most."""
    _, page = live
    asked: list[str] = []
    page.on("request", partial(note, asked))

    def write() -> None:
        for epoch in range(3, 33):
            query.complete(epoch)
            time.sleep(0.1)

    writer = threading.Thread(target=write)
    writer.start()
    page.locator("#records li[data-position='32.receipt']").wait_for()
    writer.join()
    assert 1 <= asked.count(page.url) <= 15
