"""The page beside a job that is killed again and again: nothing is lost and nothing is told twice, however one looks.

``ONCEONLY_UI_MINUTES`` says for how long; with ``ONCEONLY_UI_PICTURES`` the pictures of the docs are taken, of a job in
the folder that ``ONCEONLY_UI_JOB`` names.
"""

from __future__ import annotations

import http.client
import io
import os
import random
import shutil
import statistics
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
import ui_browser
from harness import start
from tests.unit.operator_bench import QueryCoordinator
from tests.unit.test_ui_command import Browser, ui
from tests.unit.ui_bench import events_of

from benchmarks.processes import used_s
from onceonly.events import stamp
from onceonly.log.runs import Run as RecordedRun
from onceonly.log.runs import RunFiles
from onceonly.operations.find import open_checkpoint
from onceonly.ui.pages import TABS

if TYPE_CHECKING:
    from harness import Run
    from playwright.sync_api import Page

pytestmark = [pytest.mark.acceptance, pytest.mark.long, pytest.mark.timeout(1800)]

MINUTES = float(os.environ.get("ONCEONLY_UI_MINUTES", "3"))
PICTURES = os.environ.get("ONCEONLY_UI_PICTURES")
JOB = str(Path(__file__).with_name("rate_job.py"))
WARM_EPOCHS, WINDOW_S, ROUNDS = 40, 10.0, 6
LIVES = ("link.after_put=pause@9", "", "link.before_put=pause@6", "receipt.before_put=pause@7", "")
OBSERVE = """
addEventListener("DOMContentLoaded", () => {
  const list = document.getElementById("records");
  if (!list) return;
  began(document.body.dataset.position);
  new MutationObserver((changes) => {
    for (const change of changes)
      for (const each of change.addedNodes) if (each.dataset) seen(each.dataset.position);
  }).observe(list, { childList: true });
});
"""


class Reader:
    """Follows the stream as a browser does, but goes away in the middle and comes back, again and again."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._chance = random.Random(3)
        self.began = self.last = "start"
        self.seen: list[str] = []
        self.times = 0

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join(30)

    def _read(self) -> None:
        while not self._ended.is_set():
            self.times += 1
            connection = http.client.HTTPConnection(self._browser.host, self._browser.port, timeout=5)
            try:
                headers = {"Cookie": self._browser.cookie, "Last-Event-ID": self.last}
                connection.request("GET", f"{self._browser.home}/events", headers=headers)
                for each in events_of(connection.getresponse()):
                    assert each["event"] != "gap"
                    if each["event"] == "record":
                        self.last = each["id"]
                        self.seen.append(self.last)
                    if self._ended.is_set() or self._chance.random() < 0.2:
                        break
            except TimeoutError:  # nothing has happened for a while
                continue
            finally:
                connection.close()


def in_the_log(checkpoint: Path) -> list[str]:
    """Return all positions of a log: of each epoch its links, and its receipt."""
    log = open_checkpoint(checkpoint).log
    found: list[str] = []
    folded = {line.epoch: line.links for line in log.history()}
    for epoch in log.epochs():
        links = folded.get(epoch) or len(log.chain(epoch))
        found += [f"{epoch}.{index}" for index in range(links)]
        found += [f"{epoch}.receipt"] if epoch in folded or log.receipt(epoch) is not None else []
    return found


def pictures(page: Page, home: str, folder: Path) -> None:
    """Take the pictures of the docs of one query: every page, and one by night."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, tab, scheme in [*((name, name, "light") for name, _ in TABS), ("dark", "timeline", "dark")]:
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        page.goto(f"{home}/{tab}")
        _take(page, folder / f"page-{name}.png")


def pictures_of_several(page: Page, checkpoint: Path, others: Path, folder: Path) -> None:
    """Take the pictures of the docs of several queries: the list, and one whose log is gone while it is looked at."""
    made = {
        name: QueryCoordinator(others / name, query=str(uuid.uuid4())) for name in ("invoices", "returns")
    }
    for name, each in made.items():
        each.complete(*range(3))
        RunFiles(each.path).put(RecordedRun(run=str(uuid.uuid4()), began=stamp(), name=name))
    page.emulate_media(color_scheme="light")
    with ui(checkpoint, *(each.path for each in made.values())) as (_, line):
        page.goto(line)
        front = page.url
        page.goto(f"{front}{made['returns'].query}/now")
        page.locator("#live[data-state=on]").wait_for()
        shutil.move(made["returns"].path / "onceonly", others / "moved-away")
        page.locator("#trouble .trouble").wait_for()
        _take(page, folder / "page-failed.png")
        page.goto(front)
        _take(page, folder / "page-queries.png", height=400)


def _take(page: Page, file: Path, *, height: int | None = None) -> None:
    """Take a picture of what is seen, or of the upper part of it; of few colours, so that it is small."""
    from PIL import Image

    page.locator("#live[data-state=on]").wait_for()
    taken = Image.open(io.BytesIO(page.screenshot()))
    shown = taken.crop((0, 0, taken.width, height or taken.height))
    # A median of colours makes a green dot blue, and an octree a white ground grey.
    shown.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE).save(file, optimize=True)


def test_beside_a_job_under_kills_nothing_is_lost_or_told_twice(tmp_path: Path) -> None:
    folder = Path(os.environ.get("ONCEONLY_UI_JOB", tmp_path / "job"))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    checkpoint = folder / "checkpoint"
    began: list[str] = []
    seen: list[str] = []
    deadline = time.monotonic() + 60 * MINUTES
    run = start(JOB, folder, "format", "100000", str(folder))
    try:
        run.until((checkpoint / "onceonly" / "links").is_dir, "there was a log")
        with ui(checkpoint) as (process, line), ui_browser.browser() as chromium:
            page = chromium.new_context(viewport={"width": 1200, "height": 860}).new_page()
            page.expose_function("began", lambda position: began.append(position))  # noqa: PLW0108  it must be a function
            page.expose_function("seen", lambda position: seen.append(position))  # noqa: PLW0108  as above
            page.add_init_script(OBSERVE)
            page.goto(line)
            home = page.url.rpartition("/")[0]
            reader = Reader(Browser(line))
            reader.begin()
            lives = 0
            while time.monotonic() < deadline or lives < len(LIVES):
                run = _live_and_die(run, LIVES[lives % len(LIVES)], folder)
                lives += 1
            run.kill_tree()
            whole = in_the_log(checkpoint)
            last = whole[-1]
            page.locator(f"#records li[data-position='{last}']").wait_for()
            reader.end()
            page.wait_for_timeout(500)  # what would be told twice is told by then
            used = psutil.Process(process.pid)
            told = (
                f"{lives} lives, {len(seen)} records in the browser, {reader.times} streams of a reader; "
                f"{used.memory_info().rss >> 20} MiB, {sum(used.cpu_times()[:2]):.1f} s of the processor"
            )
            sys.stdout.write(f"{told}\n")
            assert used.memory_info().rss < 150 << 20
            assert len(began) == 1, "the page was loaded anew"
            assert seen == whole[_after(whole, began[0]) :]
            assert reader.seen == whole
            assert reader.times > lives
            if PICTURES:
                _with_a_doubt(folder)
                pictures(page, home, Path(PICTURES))
                pictures_of_several(page, checkpoint, folder, Path(PICTURES))
    finally:
        run.kill_tree()


def test_a_page_that_is_looked_at_costs_the_driver_nothing(tmp_path: Path) -> None:
    """In seconds of the processor, as the machine may be busy otherwise; in turns, as a JVM becomes faster."""
    checkpoint = tmp_path / "checkpoint"
    with_page: list[float] = []
    without: list[float] = []
    run = start(JOB, tmp_path, "format", "100000", str(tmp_path), "1 second")
    try:
        run.until((checkpoint / "commits" / "0").exists, "there was an epoch")
        log = open_checkpoint(checkpoint).log
        run.until(lambda: (log.newest() or 0) >= WARM_EPOCHS, "the driver was warm")
        with ui(checkpoint) as (_, line), ui_browser.browser() as chromium:
            page = chromium.new_page()
            page.goto(line)
            home = page.url
            for number in range(ROUNDS):
                for looks in (number % 2 == 0, number % 2 == 1):
                    page.goto(home if looks else "about:blank")
                    (with_page if looks else without).append(_share(run))
                    if looks:
                        assert page.locator("#live").get_attribute("data-state") == "on"
    finally:
        run.kill_tree()
    cost = statistics.median(more - less for more, less in zip(with_page, without, strict=True))
    told = (
        f"the driver takes {statistics.median(without):.1%} of a processor, and with a page {cost:+.2%}; "
        f"with it {', '.join(f'{each:.1%}' for each in with_page)}, "
        f"without {', '.join(f'{each:.1%}' for each in without)}"
    )
    sys.stdout.write(f"{told}\n")
    assert cost <= 0.01, told


def _share(run: Run) -> float:
    """Return how much of a processor a job takes, its executors and its JVM among it, over some epochs."""

    def used() -> float:
        driver = psutil.Process(run.process.pid)
        return sum(used_s(each) for each in (driver, *driver.children(recursive=True)))

    began, before = time.monotonic(), used()
    run.until(lambda: time.monotonic() >= began + WINDOW_S, "the window ended", poll_s=0.2)
    return (used() - before) / (time.monotonic() - began)


def _live_and_die(run: Run, failpoint: str, folder: Path) -> Run:
    """Let a life that has begun grow for a while, kill it, and give one that ends at its crash point."""
    log = open_checkpoint(folder / "checkpoint").log
    before = log.newest() or 0
    try:
        if failpoint:
            run.kill_tree()
            run = start(JOB, folder, "format", "100000", str(folder), failpoints=failpoint)
            run.wait_for(failpoint.partition("=")[0])
        else:
            run.until(lambda: (log.newest() or 0) >= before + 5, "there were five epochs more")
    finally:
        run.kill_tree()
    return start(JOB, folder, "format", "100000", str(folder))


def _with_a_doubt(folder: Path) -> None:
    """Leave the last epoch decided, with its transactions not known to be committed."""
    run = start(JOB, folder, "format", "100000", str(folder), failpoints="link.after_put=pause@7")
    try:
        run.wait_for("link.after_put")
    finally:
        run.kill_tree()


def _after(whole: list[str], position: str) -> int:
    return 0 if position == "start" else whole.index(position) + 1
