"""What is new is told to every tab once, in the order of the log, however often a tab goes away and comes back."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit import ui_bench
from tests.unit.operator_bench import QUERY, QueryCoordinator
from tests.unit.ui_bench import WAIT_S

from onceonly.log import history
from onceonly.operations import look
from onceonly.operations.find import open_checkpoint
from onceonly.ui import records, stream, watcher
from onceonly.ui.records import RECEIPT, START, Position
from onceonly.ui.watcher import Watcher
from onceonly_proof.handover import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.unit.ui_bench import Page

    from onceonly.model import Link

EVENTS = f"/{QUERY}/events"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "EVERY_S", 0.02)
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


@pytest.fixture
def query(tmp_path: Path) -> QueryCoordinator:
    query = QueryCoordinator(tmp_path / "cp")
    query.complete(0, 1, 2)
    return query


@pytest.fixture
def page(query: QueryCoordinator) -> Iterator[Page]:
    with ui_bench.serve([open_checkpoint(query.path)]) as page:
        yield page


def told(events: Iterator[dict[str, str]], count: int) -> list[str]:
    """Return the positions of the next records."""
    found = (each for each in events if each["event"] == "record")
    return [each["id"] for each in islice(found, count)]


def positions(*epochs: int) -> list[str]:
    return [position for epoch in epochs for position in (f"{epoch}.0", f"{epoch}.receipt")]


def test_each_record_is_told_once_in_the_order_of_the_log(query: QueryCoordinator, page: Page) -> None:
    with page.following(f"{EVENTS}?after=2.receipt") as events:
        query.complete(3)
        query.claim(4)
        query.settle(query.decide(4, index=1))
        query.complete(5)
        assert told(events, 7) == [*positions(3), "4.0", "4.1", "4.receipt", *positions(5)]


def test_a_record_says_what_it_is(query: QueryCoordinator, page: Page) -> None:
    with page.following(f"{EVENTS}?after=2.0") as events:
        record = next(each for each in events if each["event"] == "record")
    assert record["id"] == "2.receipt"
    said = json.loads(record["data"])
    assert (said["name"], said["position"], said["what"]) == ("chk-2", "2.receipt", "settled")


def test_who_comes_back_is_told_what_has_come_since(query: QueryCoordinator, page: Page) -> None:
    with page.following(f"{EVENTS}?after=2.receipt") as events:
        query.complete(3)
        assert told(events, 1) == ["3.0"]
    query.complete(4)
    # The browser's own word goes before that of the page, which is as old as the page.
    with page.following(f"{EVENTS}?after=2.receipt", **{"Last-Event-ID": "3.0"}) as events:
        assert told(events, 3) == ["3.receipt", *positions(4)]


def test_going_away_and_coming_back_loses_and_repeats_nothing(query: QueryCoordinator, page: Page) -> None:
    ended, last, seen = 40, "2.receipt", list[str]()
    writer = threading.Thread(target=query.complete, args=range(3, ended + 1))
    writer.start()
    chance = random.Random(7)
    while last != f"{ended}.receipt":
        with page.following(EVENTS, **{"Last-Event-ID": last}) as events:
            for each in events:
                if each["event"] != "record":
                    continue
                last = each["id"]
                seen.append(last)
                if chance.random() < 0.3 or last == f"{ended}.receipt":
                    break
    writer.join()
    assert seen == positions(*range(3, ended + 1))


def test_a_page_of_an_empty_log_is_told_the_first_link(tmp_path: Path) -> None:
    query = QueryCoordinator(tmp_path / "cp")
    with (
        ui_bench.serve([open_checkpoint(query.path)]) as page,
        page.following(f"{EVENTS}?after={START}") as events,
    ):
        query.complete(0)
        assert told(events, 2) == positions(0)


def test_what_is_folded_meanwhile_is_told_too(
    query: QueryCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.complete(*range(3, 90))
    folding = QueryCoordinator(query.path, keep=5)
    folding.log.newest()
    folding.log.fold()
    monkeypatch.setattr(watcher, "EPOCHS_MAX", 10)
    with (
        ui_bench.serve([open_checkpoint(query.path)]) as page,
        page.following(f"{EVENTS}?after=57.0") as events,
    ):
        said = told(events, 3 + 20 + 20)
    # Of a folded epoch there is one line: that it is settled.
    assert said == [f"{epoch}.receipt" for epoch in range(57, 80)] + positions(*range(80, 90))


@pytest.mark.parametrize("after", ["999.0", "99999999.receipt"])
def test_a_position_of_another_log_makes_the_page_load_anew(page: Page, after: str) -> None:
    with page.following(f"{EVENTS}?after={after}") as events:
        assert next(events)["event"] == "gap"


def test_what_is_too_long_ago_makes_the_page_load_anew(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "EPOCHS_MAX", 1)
    monkeypatch.setattr(watcher, "RECORDS_MAX", 1)
    with page.following(f"{EVENTS}?after=0.0") as events:
        assert next(events)["event"] == "gap"


def test_all_streams_share_one_look_at_the_log(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "EVERY_S", 0.2)
    looks: list[float] = []
    whole = look.tail

    def tail(*arguments: Any, **more: Any) -> Any:  # noqa: ANN401  as the one that it stands for
        looks.append(time.monotonic())
        return whole(*arguments, **more)

    monkeypatch.setattr(look, "tail", tail)
    with page.following(EVENTS), page.following(EVENTS), page.following(EVENTS), page.following(EVENTS):
        assert until(lambda: len(looks) >= 6, WAIT_S)
    gaps = [after - before for before, after in pairwise(looks)]
    assert min(gaps) >= 0.19, gaps


def test_nobody_is_asked_while_nobody_looks(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(look, "tail", lambda *_, **__: looks.append(1))
    time.sleep(0.2)
    assert not looks


def test_a_browser_keeps_a_connection_for_its_pages(page: Page) -> None:
    """It has six to a server: where a sixth stream comes, the oldest one ends and says why."""
    with page.following(EVENTS) as oldest:
        assert next(oldest)["event"] == "state"
        with ExitStack() as others:
            for _ in range(stream.STREAMS_MAX):
                assert next(others.enter_context(page.following(EVENTS)))["event"] == "state"
            assert [each["event"] for each in oldest] == ["crowded"]
            assert len(page.streams) == stream.STREAMS_MAX
    assert until(lambda: len(page.streams) == 0, WAIT_S)


def test_the_end_of_the_server_is_told_to_the_tabs(page: Page) -> None:
    with page.following(EVENTS) as events:
        assert next(events)["event"] == "state"
        page.streams.close()
        assert [each["event"] for each in events] == ["ended"]


def test_a_log_that_cannot_be_read_now_is_told(query: QueryCoordinator, page: Page) -> None:
    with page.following(EVENTS) as events:
        assert json.loads(next(events)["data"])["trouble"] == ""
        (query.path / "onceonly" / "links" / f"{3:020d}.0.json").write_text("torn", encoding="utf-8")
        trouble = next(said for each in events if (said := json.loads(each["data"])["trouble"]))
    assert f"{3:020d}.0.json" in trouble


def test_a_position_survives_its_text() -> None:
    for position in (START, Position(0, 0), Position(7, 2), Position(7, RECEIPT)):
        assert records.parse(str(position)) == position
    for text in ("", "7", "7.", ".0", "-1.0", "7.x", "7.0\n", "\u0667.0", "9" * 30 + ".0"):
        assert records.parse(text) is None


def test_only_the_newest_epochs_are_kept(query: QueryCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    query.complete(*range(3, 40))
    monkeypatch.setattr(watcher, "EPOCHS_MAX", 10)
    seen = Watcher(open_checkpoint(query.path))
    assert [each.view.epoch for each in seen.model().epochs] == [*range(39, 29, -1)]
    assert seen.model().known == 40
    monkeypatch.setattr(watcher, "VOTES_MAX", 9)
    seen = Watcher(open_checkpoint(query.path))
    assert len(seen.model().epochs) == 4


def test_a_window_reads_what_it_needs(query: QueryCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    query.complete(*range(3, 90))
    folding = QueryCoordinator(query.path, keep=5)
    folding.log.newest()
    folding.log.fold()
    seen = Watcher(open_checkpoint(query.path))
    window = seen.window(70, 85).epochs
    assert [each.view.epoch for each in window] == [*range(85, 69, -1)]
    assert [each.view.folded for each in window] == [False] * 6 + [True] * 10
    assert history.SIZES[0] == 20


def test_a_window_that_was_looked_at_while_an_epoch_was_in_doubt_does_not_say_so_for_ever(
    query: QueryCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "EPOCHS_MAX", 2)
    monkeypatch.setattr(watcher, "EVERY_S", 0.0)
    decided = query.decide(3)
    seen = Watcher(open_checkpoint(query.path))
    assert [each.view.pending for each in seen.window(0, 3).epochs] == [2, 0, 0, 0]
    query.settle(decided)
    query.complete(4, 5)
    assert [each.view.pending for each in seen.window(0, 3).epochs] == [0, 0, 0, 0]


def test_one_thread_at_a_time_reads_the_log(query: QueryCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    query.complete(*range(3, 40))
    monkeypatch.setattr(watcher, "EPOCHS_MAX", 10)
    seen = Watcher(open_checkpoint(query.path))
    seen.model()
    reading = threading.Lock()
    together: list[int] = []
    whole = seen.checkpoint.log.chain

    def chain(epoch: int) -> tuple[Link, ...]:
        if not reading.acquire(blocking=False):
            together.append(epoch)
            return whole(epoch)
        try:
            time.sleep(0.001)
            return whole(epoch)
        finally:
            reading.release()

    monkeypatch.setattr(seen.checkpoint.log, "chain", chain)
    with ThreadPoolExecutor() as tabs:
        told = [tabs.submit(seen.since, Position(1, 0)) for _ in range(4)]
        assert {len(each.result() or ()) for each in told} == {77}
    assert together == []


def test_an_epoch_is_read_once_it_is_settled_no_more(
    query: QueryCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Watcher(open_checkpoint(query.path))
    seen.model()
    read: list[int] = []
    whole = seen.checkpoint.log.chain

    def chain(epoch: int) -> tuple[Link, ...]:
        read.append(epoch)
        return whole(epoch)

    monkeypatch.setattr(seen.checkpoint.log, "chain", chain)
    query.decide(3)
    time.sleep(0.03)
    assert seen.model().epochs[0].view.pending == 2
    assert set(read) == {3}
