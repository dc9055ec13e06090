"""The report, the terminal, the notebook and the exports: what any checkpoint becomes, and nothing unescaped."""

from __future__ import annotations

import io
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text
from tests.unit import view_bench as bench
from tests.unit.operator_bench import QueryCoordinator, run

import onceonly
from onceonly.cli import shared
from onceonly.errors import ConfigurationError
from onceonly.log.actions import Action
from onceonly.log.runs import RunFiles
from onceonly.operations import look
from onceonly.operations.find import open_checkpoint
from onceonly.operations.offsets import Partition
from onceonly.ports.standing import Part
from onceonly.view import page, tables, terminal
from onceonly.view.epoch import epoch as epoch_picture
from onceonly.view.exports import perfetto, shiviz
from onceonly.view.multiples import multiples
from onceonly.view.story import view
from onceonly.view.timeline import timeline
from onceonly.view.trace import of_query, with_events
from onceonly.view.values import What

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from onceonly.operations.checkpoint_model import CheckpointModel, EpochModel

NASTY = "</script><img src=x onerror=alert(1)>"


class Seen(HTMLParser):
    """The elements of a page, and their attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.ids: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_data(self, data: str) -> None:
        self.text += data


def nasty() -> CheckpointModel:
    """One of which every text that comes from outside is an attack."""
    vote = bench.vote(1, 0, 2.5, sink=NASTY, transaction=NASTY)
    vote = replace(vote, checksum=NASTY, stamp=bench.stamp(2.5, host=NASTY))
    bad = bench.told(
        replace(bench.claim(1, 2), reason=NASTY), replace(bench.decision(1, 3, [vote], index=1), uses={})
    )
    bad = replace(bad, sources=((Partition(partition=NASTY, start=NASTY, end=3),),), note=NASTY)
    made = bench.model(bench.usual(0, 0), bad, runs=[bench.run(NASTY, -1)], query=NASTY, path=f"/{NASTY}")
    action = Action(command=NASTY, epoch=1, who=NASTY, stamp=bench.stamp(4, host=NASTY), because=NASTY)
    return replace(made, actions=(action,))


@pytest.mark.parametrize(
    ("said", "begun"),
    [
        ("write took longest", "Write took longest"),
        ("at-least-once: its 3 rows", "At-least-once: its 3 rows"),
        ("query's log, and", "Query's log, and"),
        ("chk-3 is decided", "chk-3 is decided"),
        ("s3a://orders/cp is gone", "s3a://orders/cp is gone"),
        ("orders.csv is gone", "orders.csv is gone"),
        ("", ""),
    ],
)
def test_a_sentence_begins_with_a_capital_and_a_name_stays_as_it_is(said: str, begun: str) -> None:
    assert tables.capital(said) == begun


@pytest.mark.parametrize("show", [page.report, lambda each: page.fragment(page.progress(each))])
def test_a_topic_that_is_an_attack_is_text(show: object) -> None:
    html = show(view(nasty()))  # type: ignore[operator]  # one of two functions
    seen = Seen(html)
    assert not seen.tags & {"img", "script", "iframe", "object"}
    assert not [name for name in seen.attributes if name.startswith("on")]
    assert NASTY in seen.text
    assert NASTY not in html


def test_every_picture_of_an_attack_is_well_formed() -> None:
    shown = view(nasty())
    for drawn in (timeline(shown, alone=True), *map(epoch_picture, shown.epochs), *multiples(shown)):
        ET.fromstring(drawn)  # noqa: S314  of our own making
        assert "<img" not in drawn


names = st.text(min_size=1, max_size=8)
moments = st.none() | st.floats(-1e6, 1e6)


@st.composite
def epochs(draw: st.DrawFn, number: int) -> EpochModel:
    """Any epoch: folded, claimed, decided or settled; its clocks say anything, or nothing."""
    at = draw(moments)
    if draw(st.booleans()):
        return bench.folded(number, at)
    votes = [
        bench.vote(number, slot, draw(moments), sink=draw(names), rows=draw(st.integers(0, 10**9)))
        for slot in range(draw(st.integers(0, 3)))
    ]
    chain = [bench.claim(number, draw(st.floats(-1e6, 1e6)))] if draw(st.booleans()) else []
    link = bench.decision(number, at or 0.0, votes, index=len(chain))
    chain.append(link if at is not None else replace(link, stamp=None, planned=None))
    settled = bench.receipt(number, draw(moments), index=len(chain) - 1) if draw(st.booleans()) else None
    return bench.told(*chain, settled=settled, noted=draw(st.booleans()))


@st.composite
def models(draw: st.DrawFn) -> CheckpointModel:
    found = [draw(epochs(number)) for number in range(draw(st.integers(0, 4)))]
    runs = [bench.run(draw(names), draw(st.floats(-1e6, 1e6)), draw(moments))] if draw(st.booleans()) else []
    alive = draw(st.sampled_from([True, False, None]))
    return bench.model(*found, alive=alive, runs=runs, query=draw(names), path=f"/{draw(names)}")


def _are_nested(trace: Sequence[Mapping[str, Any]]) -> None:
    """See that no slice of a track ends within another that began before it: a viewer would drop it."""
    tracks: defaultdict[tuple[int, int], list[tuple[int, float]]] = defaultdict(list)
    for each in trace:
        if each["ph"] in {"X", "B"}:  # one that is only begun has no end
            end = each["ts"] + each.get("dur", math.inf)
            tracks[each["pid"], each["tid"]].append((each["ts"], -end))
    for slices in tracks.values():
        around: list[float] = []
        for begin, end in sorted(slices):
            around = [outer for outer in around if outer > begin]
            assert all(-end <= outer for outer in around), (begin, -end, around)
            around.append(-end)


def _is_taken_whole(log: str) -> None:
    """Take a log as ShiViz does: by its own expression, each host's clock one more at each of its steps."""
    pattern, delimiter, rest = log.split("\n", 2)
    assert delimiter == ""
    taken = list(re.finditer(pattern.replace("(?<", "(?P<") + "\n", rest))
    assert "".join(each[0] for each in taken) == rest
    counts: Counter[str] = Counter()
    for each in taken:
        clock = json.loads(each["clock"])
        counts[each["host"]] += 1
        assert clock[each["host"]] == counts[each["host"]]
        assert all(clock[host] <= counts[host] for host in clock)


@given(models())
@settings(max_examples=60, deadline=None)
def test_any_model_becomes_a_page_well_formed_pictures_and_exports(model: CheckpointModel) -> None:
    shown = view(model)
    html = page.report(shown)
    html.encode()
    seen = Seen(html)
    assert len(set(seen.ids)) == len(seen.ids)
    assert "script" not in seen.tags
    for drawn in (timeline(shown), *map(epoch_picture, shown.epochs), *multiples(shown)):
        ET.fromstring(drawn)  # noqa: S314  of our own making
        assert "nan" not in drawn
    _are_nested(json.loads(perfetto(shown))["traceEvents"])
    _is_taken_whole(shiviz(shown))
    for epoch in shown.epochs:
        spine = [mark.place for mark in epoch.marks if mark.lane == "driver" and mark.place is not None]
        assert spine == sorted(spine)


def test_a_report_of_a_thousand_epochs_is_below_a_megabyte_and_lists_them_all() -> None:
    html = page.report(view(bench.model(*(bench.usual(number, 2 * number) for number in range(1000)))))
    assert len(html.encode()) < 1_000_000
    assert len(set(re.findall(r">(chk-\d+)</(?:a|td)>", html))) == 1000


_HUNDRED_THOUSAND = """
import resource
from tests.unit import view_bench as bench
from onceonly.view import page
from onceonly.view.story import view
made = bench.model(*(bench.folded(number, 2 * number) for number in range(100_000)))
before = resource.getrusage(resource.RUSAGE_SELF)
html = page.report(view(made))
after = resource.getrusage(resource.RUSAGE_SELF)
print(len(html.encode()), "older epochs are in the figures alone" in html)
print(after.ru_maxrss - before.ru_maxrss, after.ru_utime - before.ru_utime)
"""


@pytest.mark.long
def test_a_hundred_thousand_epochs_take_bounded_time_and_memory_and_what_does_not_fit_is_said() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _HUNDRED_THOUSAND], capture_output=True, text=True, check=True
    )
    size, is_said, more_kib, cpu_s = done.stdout.split()
    assert int(size) < 1_000_000
    assert is_said == "True"
    assert int(more_kib) < 200_000
    assert float(cpu_s) < 30


@pytest.mark.parametrize("settled", [True, False])
def test_a_report_of_thousands_of_slots_is_below_a_megabyte_and_says_what_is_not_drawn(
    *, settled: bool
) -> None:
    def wide(number: int) -> EpochModel:
        votes = [bench.vote(number, slot, number * 5 + 0.4) for slot in range(500)]
        done = bench.receipt(number, number * 5 + 1.25, commits=500) if settled or number < 3 else None
        return bench.told(bench.decision(number, number * 5 + 1, votes), settled=done)

    shown = view(bench.model(*map(wide, range(4))))
    html = page.report(shown)
    assert len(html.encode()) < page.BYTES_MAX
    assert "800 more steps are not shown" in html
    assert "no epoch has more than 24 marks of a kind in a lane: the others are left out" in html
    assert "500 transactions of chk-2 written and prepared" in html
    assert ("400 more transactions are not shown" in html) != settled


@pytest.mark.timeout(60)
def test_a_report_whose_first_tables_leave_no_room_ends_and_says_what_it_left_out() -> None:
    votes = [bench.vote(4, slot, 20.4) for slot in range(500)]
    wide = bench.told(bench.decision(4, 21, votes))
    html = page.report(
        view(bench.model(*(bench.usual(each, each) for each in range(4)), wide)), bytes_max=100_000
    )
    assert "5 older epochs are in the figures alone: their lines would not fit" in html
    assert "400 more transactions are not shown" in html


def test_a_report_of_a_query_that_was_started_again_and_again_is_below_a_megabyte() -> None:
    claims = [bench.claim(1, number / 10, index=number) for number in range(1500)]
    html = page.report(view(bench.model(bench.usual(0, -10), bench.told(*claims))))
    assert len(html.encode()) < page.BYTES_MAX
    assert "1,400 more steps are not shown" in html


def test_a_vote_whose_clock_contradicts_the_log_has_its_sign_in_the_legend() -> None:
    votes = [bench.vote(0, 0, 500.0)]
    html = page.report(
        view(bench.model(bench.told(bench.decision(0, 1, votes), settled=bench.receipt(0, 2))))
    )
    assert "! a clock that contradicts the order of the log" in html


def test_in_a_narrow_terminal_an_epoch_that_was_as_always_has_one_line() -> None:
    console = Console(width=80, file=io.StringIO())
    found = bench.usual(20, 0)
    assert found.receipt is not None
    settled = replace(found.receipt, outcomes={"committed": 1, "already_committed": 1})
    recovered = bench.told(*found.chain, settled=settled)
    as_always = [bench.usual(number, 2 * number) for number in (21, 22)]
    with console.capture() as captured:
        console.print(terminal.screen(view(bench.model(recovered, *as_always, bench.in_doubt(23, 9999)))))
    lines = captured.get().splitlines()
    [first, second] = [number for number, line in enumerate(lines) if re.match("chk-2[12] ", line)]
    assert second == first + 1
    assert lines[first].rstrip().endswith(" 0.250 s  2 committed  2023-11-14 22:14:05Z")


def test_a_folded_epoch_is_said_to_be_in_a_terminal_too() -> None:
    shown = terminal.screen(view(bench.model(bench.folded(0, 0), bench.usual(1, 10))))
    console = Console(width=200, file=io.StringIO())
    with console.capture() as captured:
        console.print(shown)
    lines = [line for line in captured.get().splitlines() if line.startswith("chk-")]
    assert ["complete, folded" in line for line in lines] == [False, True]


def test_an_export_for_perfetto_has_a_slice_for_each_bar_and_one_in_doubt_has_no_end() -> None:
    trace = json.loads(perfetto(view(bench.model(bench.usual(0, 0), bench.in_doubt(1, 5)))))["traceEvents"]
    phases = [(each["ph"], each["name"]) for each in trace if each["ph"] in {"X", "B"}]
    assert phases.count(("X", "writing")) == 3
    assert phases.count(("X", "committing")) == 1
    assert phases.count(("B", "in doubt since the decision")) == 1


def test_an_export_for_perfetto_has_two_tracks_for_a_slot_that_writes_to_two_sinks_at_once() -> None:
    votes = [bench.vote(0, 0, 3.2, sink="a"), bench.vote(0, 0, 3.8, sink="b")]
    settled = bench.told(bench.decision(0, 4, votes), settled=bench.receipt(0, 5))
    begun = [event("slot.begun", 3.1, sink="a"), event("slot.begun", 3.15, sink="b")]
    trace = json.loads(perfetto(with_events(view(bench.model(settled)), begun)))["traceEvents"]
    _are_nested(trace)
    names = {each["tid"]: each["args"]["name"] for each in trace if each["name"] == "thread_name"}
    writing = [names[each["tid"]] for each in trace if each["name"] == "writing"]
    assert writing == ["executors, slot 0", "executors, slot 0 (2)"]


def test_an_export_for_shiviz_has_clocks_by_which_a_decision_knows_of_its_votes() -> None:
    text = shiviz(view(bench.model(bench.usual(0, 0))))
    pattern, delimiter, *lines = text.splitlines()
    assert (pattern, delimiter) == (r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})", "")
    clocks = {
        event.split(":")[0]: json.loads(host.partition(" ")[2])
        for event, host in zip(lines[::2], lines[1::2], strict=True)
    }
    assert clocks["chk-0 decision"] == {"7-on-driver-1": 2, "7-on-executor-0": 1, "7-on-executor-1": 1}
    assert clocks["chk-0 receipt"]["7-on-driver-1"] == 3


def test_an_export_for_shiviz_of_an_event_log_orders_a_slot_after_its_plan_whatever_clocks_say() -> None:
    def line(seq: int, t: float, kind: str, actor: str, **more: object) -> dict[str, object]:
        base = {
            "seq": seq,
            "t": t,
            "kind": kind,
            "actor": actor,
            "incarnation": actor,
            "query": "q",
            "epoch": 0,
        }
        return {**base, "plan": "p1", "sink": "", "slot": -1, "transaction": "", **more}

    log = [
        line(1, 9.0, "epoch.planned", "planner"),
        line(1, 5.0, "slot.begun", "executor", slot=0),
        line(2, 5.1, "slot.voted", "executor", slot=0),
        line(1, 9.5, "votes.collected", "committer"),
        {**line(1, 9.0, "epoch.planned", "other"), "query": "another"},
    ]
    shown = view(bench.model(bench.usual(0, 0)))
    told = shiviz(shown, [each for each in log if each["query"] == "q"]).splitlines()[2:]
    assert [each.split()[1] for each in told[::2]] == [
        "epoch.planned", "slot.begun", "slot.voted", "votes.collected",
    ]  # fmt: skip
    assert json.loads(told[-1].partition(" ")[2]) == {
        "planner-planner": 1, "executor-executor": 2, "committer-committer": 1,
    }  # fmt: skip


def event(kind: str, after_s: float, **more: object) -> dict[str, object]:
    return {
        "kind": kind,
        "t": bench.ZERO + after_s,
        "query": "q",
        "epoch": 0,
        "sink": "box",
        "slot": 0,
        **more,
    }


def test_an_event_log_tells_when_a_slot_began_and_when_a_transaction_was_committed() -> None:
    lines = [
        event("slot.begun", 0.3),
        event("handle.committed", 1.1, transaction="t0-0", outcome="Committed"),
        event("handle.resolved", 99, transaction="t0-1", slot=1, outcome="AlreadyCommitted"),
        event("swept", 0.1, transaction="old"),
        {**event("handle.committed", 1.2, transaction="t0-1", outcome="Committed"), "query": "another"},
    ]
    plain = view(bench.model(bench.usual(0, 0)))
    [epoch] = with_events(plain, of_query(plain, lines)).epochs
    first, second = (
        mark for mark in epoch.marks if mark.transaction in {"t0-0", "t0-1"} and mark.what is not What.VOTE
    )
    assert (first.what, first.at, first.skewed) == (What.COMMITTED, bench.ZERO + 1.1, False)
    # Its clock contradicts the receipt, which came after it.
    assert (second.what, second.skewed, second.place) == (What.RECOVERED, True, bench.ZERO + 1.25)
    assert [mark.transaction for mark in epoch.marks if mark.what is What.SWEPT] == ["old"]
    writing = {bar.slot: bar.begin for bar in epoch.bars if bar.slot is not None}
    assert writing == {0: pytest.approx(bench.ZERO + 0.3), 1: bench.ZERO}


def committed(**after_ms: int | None) -> list[dict[str, object]]:
    """Lines of commits that were answered after so long, told of together nine seconds after the decision."""
    return [
        event(
            "handle.committed", 10, transaction=f"t0-{slot}", slot=slot, outcome="Committed", plan="p",
            **({} if span is None else {"after_ms": span}),
        )
        for slot, span in enumerate(after_ms.values())
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (committed(a=0, b=8000, c=500), "slot 1 of box was committed last, 7.500 s after the one before"),
        (committed(a=9000, b=9000, c=0), "slot 0 of box and 1 more were committed last, 9.000 s after the one before"),
        (committed(a=9000, b=9000, c=9000), "its 3 transactions were committed together"),
        (committed(a=0, b=8000, c=None), "which of its transactions was slow, the log does not tell"),
        (committed(a=0, b=8000), "which of its transactions was slow, the log does not tell"),
        (
            [*committed(a=0, b=8000, c=1)[:2], {**committed(a=0, b=8000, c=1)[2], "plan": "of another try"}],
            "which of its transactions was slow, the log does not tell",
        ),
    ],
)  # fmt: skip
def test_an_event_log_says_which_slot_a_slow_commit_waited_for(
    lines: list[dict[str, object]], said: str
) -> None:
    votes = [bench.vote(0, slot, 0.5) for slot in range(3)]
    found = bench.told(bench.decision(0, 1, votes), settled=bench.receipt(0, 10.5))
    [epoch] = with_events(view(bench.model(found)), lines).epochs
    assert epoch.slow == f"commit took longest: 9.500 s; {said}"


def test_an_event_log_places_each_commit_where_it_was_answered_not_where_all_were_told_of() -> None:
    votes = [bench.vote(0, slot, 0.5) for slot in range(2)]
    found = bench.told(bench.decision(0, 1, votes), settled=bench.receipt(0, 10.5))
    [epoch] = with_events(view(bench.model(found)), committed(a=1000, b=9000)).epochs
    at = [mark.at for mark in epoch.marks if mark.what is What.COMMITTED]
    assert at == [bench.ZERO + 2, bench.ZERO + 10]
    bars = re.findall(r'class="b committing"[^>]* width="([\d.]+)"', epoch_picture(epoch))
    short, long = map(float, bars)
    assert long == pytest.approx(9 * short, rel=0.01), "and each slot's bar ends there"


def test_an_epoch_says_rows_and_bytes_of_each_slot_and_that_bytes_are_not_known() -> None:
    votes = [bench.vote(0, 1, 0.4, rows=5), replace(bench.vote(0, 0, 0.9, rows=7), bytes=4321)]
    voted = replace(bench.claim(0, 1), votes=(replace(bench.vote(0, 9, 0.2, rows=99), plan="p2"),))
    chain = (voted, bench.decision(0, 3, votes, index=1))
    [epoch] = view(bench.model(bench.told(*chain, settled=bench.receipt(0, 4, index=1)))).epochs
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", str(tables.slots(epoch)))
    assert cells == ["box", "0", "7", "4,321", "box", "1", "5", "unknown"], "of what was decided alone"
    assert str(tables.slots(epoch)) in str(page.detail(epoch))
    assert not str(tables.slots(view(bench.model(bench.told(voted))).epochs[0]))


def test_an_epoch_says_where_it_wrote_and_that_what_it_read_is_counted_by_slot() -> None:
    parts = (
        ("files", Part(partition="day=1", rows=1200, bytes=40960)),
        ("files", Part(partition="", rows=5, bytes=7)),
        ("kafka", Part(partition="orders/0", first=17)),
    )
    read = (Partition(partition="events/0", start=3, end=10),)
    found = replace(bench.usual(0, 0), parts=parts, sources=(read,))
    [epoch] = view(bench.model(found)).epochs
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", str(tables.parts(epoch)))
    assert cells == [
        *("files", "day=1", "1,200", "40,960", "-"),
        *("files", "-", "5", "7", "-"),
        *("kafka", "orders/0", "unknown", "-", "17"),
    ]
    assert str(tables.parts(epoch)) in str(page.detail(epoch))
    assert "offsets between" in str(page.detail(epoch))
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", str(tables.ranges(epoch)))
    assert cells[1:5] == ["events/0", "3", "10", "7"]
    assert "counted by slot: no vote says which partitions a slot has read" in str(page.detail(epoch))
    assert "of a topic that is compacted or written by transactions, rows and gaps" in str(page.detail(epoch))
    assert str(tables.parts(view(bench.model(bench.usual(0, 0))).epochs[0])) == ""


def test_an_event_log_never_commits_what_the_log_has_in_doubt() -> None:
    plain = view(bench.model(bench.in_doubt(0, 0)))
    lines = [event("handle.committed", 1.1, transaction="t0-0", outcome="Committed")]
    assert with_events(plain, lines).in_doubt == plain.in_doubt


# --- on a checkpoint ------------------------------------------------------------------------------------------


@pytest.fixture
def stuck(tmp_path: Path) -> QueryCoordinator:
    """A job that is down, with an epoch in doubt."""
    query = QueryCoordinator(tmp_path / "checkpoint")
    query.complete(0, 1)
    query.decide(2)
    return query


def test_a_name_that_would_steer_a_terminal_is_seen_in_its_place() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=60)
    with console.capture() as captured:
        console.print(shared.Legible(Text("job\x1b]0;owned\x07 \u202eb", style="bold")))
    assert re.sub(r"\x1b\[[0-9;]*m", "", captured.get()) == "job\ufffd]0;owned \ufffdb\n"


def test_report_writes_one_file_and_says_by_its_status_that_something_is_stuck(
    stuck: QueryCoordinator,
) -> None:
    (stuck.path.parent / "sub").mkdir()
    out, trace = stuck.path.parent / "sub" / "run.html", stuck.path.parent / "trace.json"
    ran = run("report", stuck.path, "--out", out, "--export", "perfetto", trace)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert f"onceonly transactions commit chk-2 {stuck.path}" in out.read_text(encoding="utf-8")
    assert json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    assert sorted(path.name for path in out.parent.iterdir()) == ["run.html"]


def test_report_goes_to_standard_output_where_a_dash_asks_for_that(
    stuck: QueryCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stuck.path.parent)
    ran = run("report", stuck.path, "--out", "-")
    assert (ran.returncode, ran.stdout[:15], ran.stderr) == (1, "<!doctype html>", "")
    assert not (stuck.path.parent / "-").exists()


def test_report_without_a_place_and_with_one_that_cannot_be_written_says_so(stuck: QueryCoordinator) -> None:
    assert run("report", stuck.path).returncode == 64
    ran = run("report", stuck.path, "--out", stuck.path.parent / f"{'x' * 300}.html")
    assert ran.returncode == 2
    assert "cannot be written" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("line", ['{"a":1}', "7"])
def test_an_event_log_with_a_line_of_something_else_is_refused_by_file_and_line(
    stuck: QueryCoordinator, line: str
) -> None:
    folder = stuck.path.parent / "events"
    folder.mkdir()
    ran = run("report", stuck.path, "--out", "-", "--events", folder)
    assert f"is of the query {stuck.query}" in ran.stderr
    (folder / "other.jsonl").write_text(f"{line}\n")
    ran = run("report", stuck.path, "--out", "-", "--events", folder)
    assert (ran.returncode, "Traceback" in ran.stderr) == (64, False)
    assert f"line 1 of {folder}/other.jsonl" in " ".join(ran.stderr.split())


def test_all_runs_that_are_kept_are_read_and_what_is_left_out_is_said(stuck: QueryCoordinator) -> None:
    for number in range(30):
        RunFiles(stuck.path).put(bench.run(f"r{number}", number))
    assert len(look.newest(open_checkpoint(str(stuck.path)), limit=1, history=False).runs) == 30
    many = view(bench.model(*(bench.usual(each, 2 * each) for each in range(45)), runs=[bench.run("a", 0)]))
    assert "1 older run of these epochs is not drawn" in many.left_out
    assert "5 more epochs in the list above without details." in page.report(many)


def test_report_writes_no_export_over_the_report(stuck: QueryCoordinator) -> None:
    out = stuck.path.parent / "x.html"
    ran = run("report", stuck.path, "--out", out, "--export", "perfetto", out)
    assert (ran.returncode, out.exists()) == (64, False)
    assert "named twice" in ran.stderr


def test_report_shows_as_many_epochs_as_it_is_told_and_says_how_many_there_are(
    stuck: QueryCoordinator,
) -> None:
    run("report", stuck.path, "--out", stuck.path.parent / "run.html", "--limit", "1")
    assert "2 of 3 epochs are not shown" in (stuck.path.parent / "run.html").read_text(encoding="utf-8")


def test_watch_without_a_terminal_shows_it_once(stuck: QueryCoordinator) -> None:
    ran = run("watch", stuck.path)
    assert ran.returncode == 1
    assert ran.stdout.count("t2-") == 2
    assert f"  onceonly transactions commit chk-2 {stuck.path}" in ran.stdout.splitlines()


def test_a_notebook_shows_a_checkpoint_and_one_of_its_epochs(stuck: QueryCoordinator) -> None:
    looked = onceonly.look(stuck.path)
    # Notebooks keep the plain text of a value beside its page.
    assert repr(looked) == str(looked)
    assert str(looked).startswith(f"query {stuck.query}, run down; stuck: chk-2 is decided, and 2")
    html = looked._repr_html_()
    # What is wider than its page is moved without a mouse, too.
    assert html.count('class="oo-scroll"') == html.count('class="oo-scroll" tabindex="0"') == 1
    assert {"script", "link"}.isdisjoint(Seen(html).tags)
    assert "2 transactions in doubt" in html
    one = looked.epoch(2)
    assert repr(one) == str(one) == "chk-2: decided, 2 transactions in doubt"
    # Offsets are there, as it was read in full.
    assert "events/10" in one._repr_html_()
    with pytest.raises(ConfigurationError, match="has no chk-9"):
        looked.epoch(9)


def test_what_is_no_checkpoint_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be told"):
        onceonly.look(object())
    with pytest.raises(ConfigurationError, match="there is no checkpoint in"):
        onceonly.look(tmp_path)


def test_watch_in_a_terminal_is_live_until_it_is_interrupted(stuck: QueryCoordinator) -> None:
    ours, theirs = os.openpty()
    # Tests that were started in a shell's background would pass on that Ctrl-C is ignored.
    heard = ["env", "--default-signal=INT"]
    command = [*heard, sys.executable, "-m", "onceonly", "watch", str(stuck.path), "--every", "0.2"]
    wide = {**os.environ, "COLUMNS": "200", "LINES": "60"}
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=wide
    ) as process, ExitStack() as ends:  # fmt: skip
        ends.callback(process.kill)
        os.close(theirs)
        _until(ours, b"2 transactions in doubt")
        stuck.settle(stuck.log.chain(2)[0])
        _until(ours, b"everything up to chk-2 is settled")
        process.send_signal(signal.SIGINT)
        # Whoever does not read keeps it from ending.
        reader = threading.Thread(target=_until, args=(ours, b"\0never"), daemon=True)
        reader.start()
        assert process.wait(10) == 0
        reader.join(10)
    os.close(ours)


def test_watch_in_a_small_terminal_shows_what_is_stuck_and_says_that_there_is_more(
    stuck: QueryCoordinator,
) -> None:
    QueryCoordinator(stuck.path.parent / "a-first").complete(*range(15))
    ours, theirs = os.openpty()
    heard = ["env", "--default-signal=INT"]
    command = [*heard, sys.executable, "-m", "onceonly", "watch", str(stuck.path.parent)]
    small = {**os.environ, "COLUMNS": "60", "LINES": "14"}
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=small
    ) as process, ExitStack() as ends:  # fmt: skip
        ends.callback(process.kill)
        os.close(theirs)
        seen = _until(ours, b"chk-")
        process.send_signal(signal.SIGINT)
        seen += _until(ours, b"\0never")
    os.close(ours)
    assert b"STUCK" in seen
    assert re.search(rb"\d+ more lines: make the terminal higher; Ctrl-C ends it", seen)


def _until(terminal: int, expected: bytes) -> bytes:
    """Read until it is there, or nobody writes any more; return what was read."""
    seen = b""
    while expected not in (read := re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", seen)):
        try:
            seen += os.read(terminal, 65_536)
        except OSError:
            break
    return read
