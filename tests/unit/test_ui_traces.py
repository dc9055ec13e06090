"""The page with an event log: what it tells is drawn, is read on as it grows, and hides nothing else."""

from __future__ import annotations

import json
import threading
import time
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from tests.unit import ui_bench
from tests.unit import view_bench as bench
from tests.unit.operator_bench import QUERY, QueryCoordinator, run
from tests.unit.test_view_tries import DEAD, recorded, undecided

from onceonly.operations.find import open_checkpoint
from onceonly.ui import traces, watcher
from onceonly.ui.traces import Traces
from onceonly.view.story import view
from onceonly.view.values import What

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.view.values import View


def write(folder: Path, lines: list[dict[str, object]], name: str = "7-abc.jsonl") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


def plain(number: int = 0, query: str = "q") -> View:
    return view(bench.model(undecided(number), query=query))


def test_the_page_of_an_epoch_that_died_undecided_shows_what_the_event_log_tells(tmp_path: Path) -> None:
    query = QueryCoordinator(tmp_path / "cp")
    query.complete(0)
    query.set_barrier(1)
    lines = [{**line, "query": QUERY, "epoch": 1} for line in recorded() if line["plan"] == DEAD]
    write(tmp_path / "events", lines)
    checkpoints = [open_checkpoint(query.path)]
    with ui_bench.serve(checkpoints) as page:
        assert "was cut off undecided" not in page.get(f"/{QUERY}/epoch/1").text
    with ui_bench.serve(checkpoints, events=tmp_path / "events") as page:
        shown = page.get(f"/{QUERY}/epoch/1").text
        assert "a try was cut off undecided" in shown
        assert "slot 2 of kafka had begun its transaction, and nothing more was heard of it" in shown
        assert "a try was cut off undecided" in page.get(f"/{QUERY}/timeline").text
        assert "in-flight" in shown or "in flight" in shown


def test_the_event_log_is_read_on_as_it_grows_and_anew_where_it_was_made_anew(tmp_path: Path) -> None:
    lines = [line for line in recorded() if line["plan"] == DEAD]
    path = write(tmp_path / "events", lines[:5])
    found = Traces(tmp_path / "events")

    def votes() -> int:
        return sum(mark.what is What.VOTE for mark in found.added(plain()).epochs[0].marks)

    assert votes() == 0
    with path.open("a", encoding="utf-8") as file:
        rest = [json.dumps(line) for line in lines[5:]]
        file.write("\n".join(rest)[:-5])  # the last line is being written
    assert votes() == 4
    assert "had 56 rows refused" not in str(found.added(plain()))
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{rest[-1][-5:]}\n")
    assert str(found.added(plain())).count("had 56 rows refused") == 1
    write(tmp_path / "events", lines[:2])
    assert votes() == 0


def test_a_page_is_told_that_the_event_log_has_grown_and_no_more_often_than_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "EVERY_S", 0.02)
    monkeypatch.setattr(traces, "EVERY_S", 0.3)
    query = QueryCoordinator(tmp_path / "cp")
    query.complete(0)
    query.set_barrier(1)
    path = write(tmp_path / "events", recorded()[:1])
    with (
        ui_bench.serve([open_checkpoint(query.path)], events=tmp_path / "events") as page,
        page.following(f"/{QUERY}/events?after=0.receipt") as told,
    ):
        assert next(told)["event"] == "state"
        began, ended = time.monotonic(), threading.Event()
        growing = threading.Thread(target=grow, args=(path, ended))
        growing.start()
        try:
            assert [each["event"] for each in islice(told, 3)] == ["trace"] * 3
        finally:
            ended.set()
            growing.join()
    assert time.monotonic() - began > 0.5, "thirty lines were written meanwhile for each that was told"


def grow(path: Path, ended: threading.Event) -> None:
    with path.open("a", encoding="utf-8") as file:
        while not ended.wait(0.01):
            file.write(f"{json.dumps(recorded()[0])}\n")
            file.flush()


def test_the_pages_that_the_event_log_is_drawn_on_follow_it_and_no_others(tmp_path: Path) -> None:
    query = QueryCoordinator(tmp_path / "cp")
    query.complete(0)
    write(tmp_path / "events", recorded())
    checkpoints = [open_checkpoint(query.path)]

    def following(page: ui_bench.Page) -> list[str]:
        names = ("now", "timeline", "epoch", "doubt", "latency")
        return [name for name in names if " data-traced>" in page.get(f"/{QUERY}/{name}").text]

    with ui_bench.serve(checkpoints, events=tmp_path / "events") as page:
        assert following(page) == ["timeline", "epoch"]
    with ui_bench.serve(checkpoints) as page:
        assert following(page) == []


def test_of_another_query_and_without_a_folder_nothing_is_added(tmp_path: Path) -> None:
    write(tmp_path / "events", recorded())
    assert Traces(tmp_path / "events").added(plain(query="other")) == plain(query="other")
    assert Traces(None).added(plain()) == plain()


def test_what_of_the_event_log_cannot_be_read_is_said_and_the_rest_is_drawn(tmp_path: Path) -> None:
    write(tmp_path / "events", [{"a": 1}], "1-other.jsonl")
    (tmp_path / "events" / "2-folder.jsonl").mkdir()
    write(tmp_path / "events", recorded())
    for _ in range(2):
        added = Traces(tmp_path / "events").added(plain())
        assert any(mark.what is What.VOTE for mark in added.epochs[0].marks)
        assert "line 1 of" in added.left_out[-2]
        assert "2-folder.jsonl of the event log cannot be read: Is a directory" in added.left_out[-1]


def test_only_the_newest_epochs_lines_are_kept_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "LINES_MAX", 40)
    write(tmp_path / "events", [{**line, "epoch": number} for number in range(10) for line in recorded()])
    found = Traces(tmp_path / "events")
    assert any(mark.what is What.VOTE for mark in found.added(plain(9)).epochs[0].marks)
    old = found.added(plain(2))
    assert not any(mark.what is What.VOTE for mark in old.epochs[0].marks)
    assert "the event log before chk-9 is not kept here" in old.left_out[-1]
    assert found.added(plain(9)).left_out == plain(9).left_out


@pytest.mark.parametrize("command", ["ui", "report"])
def test_a_folder_of_events_that_is_not_there_is_said(tmp_path: Path, command: str) -> None:
    ran = run(command, tmp_path, "--events", tmp_path / "nowhere")
    assert ran.returncode == 64
    assert "nowhere" in ran.stderr
