"""The renderer: what a model becomes, in which order, and what is said of what is not known."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit import view_bench as bench

from onceonly.log.left import RESTORED
from onceonly.log.progress import Progress, SourceReport
from onceonly.model import Guarantee, InputFile, Inputs, Skip
from onceonly.operations import look, states
from onceonly.operations.checkpoint_model import EpochModel
from onceonly.operations.disk import BARRIER, NOTED, Step
from onceonly.operations.find import open_checkpoint
from onceonly.operations.render import header
from onceonly.operations.report import checkpoint
from onceonly.view import tables, terminal
from onceonly.view.axis import Axis
from onceonly.view.epoch import epoch as epoch_picture
from onceonly.view.markup import tag, text
from onceonly.view.multiples import BEHIND, BEHIND_S, multiples
from onceonly.view.page import report, summary
from onceonly.view.shapes import CHARACTER
from onceonly.view.story import view
from onceonly.view.telling import moment
from onceonly.view.timeline import timeline
from onceonly.view.values import Level, What, Work

if TYPE_CHECKING:
    from onceonly.model import Link
    from onceonly.view.markup import Markup
    from onceonly.view.values import Verdict

GOLDEN = Path(__file__).parent / "golden" / "view"
DOCS = Path(__file__).parents[2] / "docs" / "how-to"
NASTY = "</script><img src=x onerror=alert(1)>\"'&\x00\ud800"


def test_a_text_is_escaped_and_markup_stays_as_it_is() -> None:
    made = tag("p", NASTY, tag("b", "<"), class_=NASTY)
    assert "<img" not in made
    assert "<b>&lt;</b>" in made
    ET.fromstring(made)  # noqa: S314  of our own making
    assert made.__html__() == made
    assert text("a\u200fb\u202ec") == "a\u200fb\ufffdc"


@given(st.text(), st.text())
def test_any_text_is_well_formed_in_an_element_and_in_an_attribute(inside: str, value: str) -> None:
    made = tag("p", inside, title=value)
    made.encode()
    ET.fromstring(made)  # noqa: S314  of our own making
    # Nothing that is legal is lost.
    assert text(inside) == inside or re.search(r"[^\w ]", inside, re.ASCII)


def test_the_steps_of_an_epoch_are_in_the_order_of_the_log_each_with_its_file_and_checksum() -> None:
    [epoch] = view(bench.model(bench.usual(7, 0))).epochs
    assert [mark.what for mark in epoch.marks] == [
        What.PLAN, What.VOTE, What.VOTE, What.DECISION, What.COMMITTED, What.COMMITTED, What.RECEIPT,
    ]  # fmt: skip
    slot = epoch.marks[1]
    assert (slot.slot, slot.rows, slot.checksum) == (0, 3, "xxh3:0000000000000000")
    assert slot.by == "process 7 on executor-0"
    assert epoch.marks[3].file == "onceonly/links/00000000000000000007.0.json"
    assert epoch.marks[-1].file == "onceonly/receipts/00000000000000000007.json"
    assert [(each.name, round(each.seconds or 0, 3)) for each in epoch.phases] == [
        ("write", 0.9), ("decide", 0.1), ("commit", 0.25),
    ]  # fmt: skip
    assert epoch.slow == "write took longest: 0.900 s; slot 1 of box voted last, 0.500 s after the one before"


@pytest.mark.parametrize(
    ("slots", "finished_by", "told"),
    [
        (1, 7, "its one transaction is that of slot 0 of box"),
        (2, 7, "which of its transactions was slow, the log does not tell"),
        (2, 8, "it was in doubt until process 8 on driver-1 finished it"),
    ],
)
def test_a_slow_commit_says_what_it_waited_for_as_far_as_the_log_tells(
    slots: int, finished_by: int, told: str
) -> None:
    votes = [bench.vote(0, slot, 0.5) for slot in range(slots)]
    settled = replace(bench.receipt(0, 9), stamp=bench.stamp(9, pid=finished_by))
    [epoch] = view(bench.model(bench.told(bench.decision(0, 1, votes), settled=settled))).epochs
    assert epoch.slow == f"commit took longest: 8.000 s; {told}"


def test_a_slow_commit_of_no_transaction_names_none() -> None:
    [epoch] = view(bench.model(bench.told(bench.decision(0, 1, []), settled=bench.receipt(0, 9)))).epochs
    assert epoch.slow == "commit took longest: 8.000 s"


def test_each_record_of_an_epoch_that_is_read_in_full_has_the_checksum_of_its_file() -> None:
    usual = bench.usual(7, 0)
    link, settled = f"links/{7:020d}.0.json", f"receipts/{7:020d}.json"
    read = InputFile(name="offsets/7", digest="sha256:of-the-barrier")
    decided = replace(usual.chain[0], inputs=Inputs(files=(read,)))
    found = replace(
        bench.told(decided, settled=usual.receipt),
        steps=(Step(BARRIER, bench.ZERO - 1),),
        checksums={link: f"sha256:{'ab' * 32}", settled: "sha256:of-the-receipt"},
    )
    [epoch] = view(bench.model(found)).epochs
    sums = {mark.what: mark.checksum for mark in epoch.marks}
    assert sums[What.BARRIER] == "sha256:of-the-barrier"
    assert sums[What.DECISION] == f"sha256:{'ab' * 32}"
    assert sums[What.RECEIPT] == "sha256:of-the-receipt"
    shown = tables.steps(epoch)
    assert f'<code title="sha256:{"ab" * 32}">sha256:{"ab" * 9}a…</code>' in shown
    assert "<code>xxh3:0000000000000000</code>" in shown


def test_a_vote_says_its_rows_and_their_size_where_the_log_has_it() -> None:
    votes = [replace(bench.vote(4, 0, 0.4), bytes=2048), bench.vote(4, 1, 0.5)]
    seen = view(bench.model(bench.told(bench.decision(4, 1, votes), settled=bench.receipt(4, 1.2))))
    assert [mark.told for mark in seen.epochs[0].marks if mark.what is What.VOTE] == [
        "slot 0 of box voted to commit: 3 rows, 2.0 KiB",
        "slot 1 of box voted to commit: 3 rows",
    ]


def test_what_is_in_doubt_is_never_drawn_as_committed() -> None:
    shown = view(bench.model(bench.usual(0, 0), bench.in_doubt(1, 5)))
    doubtful = shown.epochs[1]
    assert [mark.what for mark in doubtful.marks if mark.transaction] == [What.VOTE, What.DOUBT]
    assert [bar.end for bar in doubtful.bars if bar.lane == "sink box"] == [None]
    drawn = epoch_picture(doubtful)
    assert "m doubt" in drawn
    assert "committed" not in drawn.replace("not known to be committed", "")
    assert shown.in_doubt == ((doubtful, doubtful.marks[-1]),)


def test_what_another_process_had_to_finish_was_in_doubt_until_then() -> None:
    died = bench.decision(0, 1, [bench.vote(0, 0, 0.5)])
    finished = replace(bench.receipt(0, 60, commits=1), stamp=bench.stamp(60, pid=8))
    [epoch] = view(bench.model(bench.told(died, settled=finished))).epochs
    [bar] = [bar for bar in epoch.bars if bar.lane == "sink box"]
    assert (bar.work, bar.begin, bar.end) == (Work.DOUBT, bench.ZERO + 1, bench.ZERO + 60)
    assert bar.told.endswith("in doubt until process 8 on driver-1 finished it")
    assert epoch.in_doubt == ()


def test_what_a_later_link_carries_is_not_told_by_a_receipt_that_is_not_there() -> None:
    kept, lost = bench.vote(0, 0, 0.4), bench.vote(0, 1, 0.5)
    again = bench.decision(0, 3, [bench.vote(0, 1, 2.5, transaction="again")], index=1)
    again = replace(again, carried=(kept,), reason="a part of it was lost")
    [epoch] = view(bench.model(bench.told(bench.decision(0, 1, [kept, lost]), again))).epochs
    told = [mark.told for mark in epoch.marks if mark.what is What.COMMITTED]
    assert told == ["t0-0: committed, as the link says that was put after its own"]


def test_what_a_command_found_committed_is_told_though_no_receipt_says_it() -> None:
    half = bench.told(bench.decision(0, 1, [bench.vote(0, 0, 0.4), bench.vote(0, 1, 0.5)]))
    [epoch] = view(bench.model(replace(half, by_hand=frozenset({"t0-0"})))).epochs
    told = [mark.told for mark in epoch.marks if mark.what is What.COMMITTED]
    assert told == ["t0-0: committed, as an operator's command has found"]
    assert [mark.transaction for mark in epoch.in_doubt] == ["t0-1"]


def test_what_is_not_known_is_said_and_drawn_with_broken_lines() -> None:
    old = bench.told(
        bench.decision(0, 1, [bench.vote(0, 0, None)]), settled=bench.receipt(0, None), noted=True
    )
    [epoch] = view(bench.model(old)).epochs
    voted, committed = (
        next(m for m in epoch.marks if m.what is what) for what in (What.VOTE, What.COMMITTED)
    )
    assert voted.at is committed.at is None
    assert "vote unknown" in timeline(view(bench.model(old)))
    assert "when is not known" in epoch_picture(epoch)
    assert epoch.phase("write") is None
    assert "unknown" in tables.steps(epoch)


def test_an_epoch_was_last_heard_of_by_its_log_whenever_sparks_files_were_copied() -> None:
    settled = replace(bench.usual(0, 0), at=bench.ZERO + 1.25, steps=(Step(NOTED, bench.ZERO + 9999),))
    shown = view(bench.model(settled))
    assert shown.epochs[0].at == bench.ZERO + 1.25
    assert ">22:13:21." in timeline(shown), "nor is its time line as long as until the copy"
    assert "22:33" not in timeline(shown)


def test_a_clock_that_contradicts_the_log_is_marked_and_changes_no_order() -> None:
    early = bench.told(
        bench.decision(1, -99, [bench.vote(1, 0, -99.5)]), settled=bench.receipt(1, -98.75, commits=1)
    )
    shown = view(bench.model(bench.usual(0, 0), early))
    places = [mark.place for epoch in shown.epochs for mark in epoch.marks]
    spine = [
        mark.place for epoch in shown.epochs for mark in epoch.marks
        if mark.lane == "driver" and mark.place is not None
    ]  # fmt: skip
    assert spine == sorted(spine)
    assert None not in places
    assert [mark.what for mark in shown.epochs[1].marks if mark.skewed][:1] == [What.PLAN]
    assert "contradicts the order of the log" in shown.skew[0]
    # What it took by its own clock stays as long as it was.
    assert shown.epochs[1].seconds == pytest.approx(1.25)


def test_a_vote_whose_clock_is_wrong_stands_between_its_plan_and_its_decision() -> None:
    found = bench.told(bench.decision(0, 1, [bench.vote(0, 0, 900)]), settled=bench.receipt(0, 1.25))
    plan, voted, decided, *_ = view(bench.model(found)).epochs[0].marks
    assert voted.skewed
    assert plan.place is not None
    assert voted.place is not None
    assert decided.place is not None
    assert plan.place <= voted.place <= decided.place


@pytest.mark.parametrize("off_s", [-3600, 3600])
def test_a_phase_is_unknown_where_the_clock_of_a_vote_contradicts_plan_or_decision(off_s: float) -> None:
    votes = [bench.vote(0, 0, 0.4), bench.vote(0, 1, off_s + 0.9)]
    [epoch] = view(
        bench.model(bench.told(bench.decision(0, 1, votes), settled=bench.receipt(0, 1.25)))
    ).epochs
    assert (epoch.phase("write"), epoch.phase("decide"), epoch.decided_s) == (None, None, None)
    assert (epoch.phase("commit"), epoch.slow) == (0.25, "")


def test_how_long_the_commits_took_is_unknown_where_the_receipt_has_no_stamp() -> None:
    found = bench.told(
        bench.decision(0, 1, [bench.vote(0, 0, 0.4)]), settled=bench.receipt(0, None, commits=1)
    )
    [bar] = [bar for bar in view(bench.model(found)).epochs[0].bars if bar.lane == "sink box"]
    assert bar.told == "1 transaction of box committed; how long it took is not known"


def test_a_folded_epoch_is_one_line_and_is_said_to_be() -> None:
    shown = view(bench.model(bench.folded(0, 1), bench.folded(1, None), bench.usual(2, 9), known=9))
    assert [mark.what for mark in shown.epochs[0].marks] == [What.FOLDED]
    assert shown.epochs[0].seconds == pytest.approx(1.25)
    assert shown.epochs[1].at is None
    assert shown.left_out == (
        "6 of 9 epochs are not shown",
        "2 epochs are folded into one line of history each: their votes, files and checksums are no longer there",
    )


def test_a_run_that_nobody_saw_end_was_cut_off_and_the_one_that_lives_was_not() -> None:
    runs = [bench.run("a", 0, 5), bench.run("b", 6), bench.run("c", 8)]
    shown = view(bench.model(bench.usual(0, 0), bench.usual(1, 9), alive=True, runs=runs))
    assert [mark.what for mark in shown.marks] == [
        What.BEGAN, What.ENDED, What.BEGAN, What.CUT, What.BEGAN,
    ]  # fmt: skip
    assert [bar.end is None for bar in shown.bars] == [False, False, True]


def test_a_run_that_was_cut_off_is_drawn_as_long_as_it_was_heard_of_and_what_follows_is_idle() -> None:
    runs = [bench.run("a", 0), bench.run("b", 600)]
    late = replace(bench.usual(1, 601), steps=(Step(what=BARRIER, at=bench.ZERO + 2.5),))
    shown = view(bench.model(bench.usual(0, 1), late, alive=True, runs=runs))
    cut = next(mark for mark in shown.marks if mark.what is What.CUT)
    assert (cut.at, cut.place, shown.bars[0].end) == (None, bench.ZERO + 2.5, bench.ZERO + 2.5)
    # An epoch that was begun before and written after is no reason to draw ten minutes of nothing.
    assert "idle 10.0 min" in str(timeline(shown))


def test_a_run_that_was_killed_last_is_the_newest_that_happened() -> None:
    runs = [bench.run("a", 0, 5), bench.run("b", 6)]
    shown = view(bench.model(bench.usual(0, 1), bench.usual(1, 7), runs=runs))
    assert [mark.what for mark in shown.marks] == [What.BEGAN, What.ENDED, What.BEGAN, What.CUT]
    assert shown.bars[1].end == bench.ZERO + 8.25


def test_runs_are_in_the_order_of_the_log_where_the_clock_of_one_was_ahead() -> None:
    dead, lives = bench.usual(0, 3600), bench.usual(1, 9)
    dead = replace(dead, chain=(replace(dead.chain[0], run="dead"),))
    lives = replace(lives, chain=(replace(lives.chain[0], run="lives"),))
    by_clock = [bench.run("lives", 8), bench.run("dead", 3600)]
    shown = view(bench.model(dead, lives, alive=True, runs=by_clock))
    assert [bar.told.split()[1].rstrip(",") for bar in shown.bars] == ["dead", "lives"]
    assert [bar.told.rpartition(", ")[2] for bar in shown.bars] == ["cut off: nobody noted its end", "alive"]


def test_an_epoch_says_whether_it_was_written_twice() -> None:
    def once(*epochs: EpochModel) -> str:
        return view(bench.model(*epochs)).epochs[-1].once

    whole = bench.usual(0, 0)
    rows = sum(each.rows for each in whole.chain[-1].votes)
    under = f"its {rows} rows are in 2 transactions under one decision"
    assert once(whole) == f"written once: {under}, link 0.0, and committed"
    claimed = bench.told(
        bench.claim(0, 0), replace(whole.chain[0], index=1), settled=bench.receipt(0, 1, index=1)
    )
    assert once(claimed).endswith("link 0.1, and committed; whatever tries before it had prepared is void")
    assert (
        once(bench.folded(0, 1))
        == "written once: its 6 rows are in 2 transactions under one decision, and committed"
    )
    assert once(bench.in_doubt(0, 0)).startswith("not written twice: its ")
    assert once(bench.told(bench.claim(0, 0))) == ""
    twice = replace(whole, chain=(replace(whole.chain[0], guarantee=Guarantee.AT_LEAST_ONCE),))
    assert once(twice) == f"at-least-once: {under}, link 0.0"


def test_how_far_behind_its_source_an_epoch_ended_is_drawn_also_where_nothing_was_left() -> None:
    def behind(latest: str) -> EpochModel:
        found = bench.usual(0, 0)
        report = Progress(
            epoch=0, run="r", rows=1, sources=(SourceReport(name="KafkaV2", rows=1, latest=latest),)
        )
        chain = (replace(found.chain[0], barrier=('{"events":{"0":10,"1":5}}',)),)
        return replace(found, chain=chain, progress=report)

    assert behind('{"events":{"0":17,"1":6}}').behind == 8
    assert behind("").behind is None
    drained = str(multiples(view(bench.model(behind('{"events":{"0":10,"1":5}}'))))[0])
    assert (
        f"{text(BEHIND)}, chk-0 to chk-0: at least 0, median 0, at most 0, newest 0 (chk-0), known of"
        in drained
    )
    assert ">at most 0<" in drained


UNTIMED = bench.told(*bench.usual(1, 5).chain, settled=bench.receipt(1, None))


def places(*epochs: EpochModel) -> tuple[str, dict[str, float]]:
    """Return what the axis of the rows is said to be, and where the bar of each epoch begins."""
    drawn = next(each for each in multiples(view(bench.model(*epochs))) if "rows of each epoch" in each)
    said = re.findall(r'aria-label="[^"]*; ([^"]*)"', drawn)
    bars = re.findall(r'class="b high" x="([^"]*)"[^>]*><title>(chk-[^:]*):', drawn)
    return said[0], {name: float(x) for x, name in bars}


def test_figures_are_over_time_where_the_log_tells_it() -> None:
    said, at = places(*(bench.usual(number, begin) for number, begin in enumerate((0, 2, 4, 8, 12))))
    assert said == "over time"
    assert at["chk-4"] - at["chk-2"] > 1.5 * (at["chk-2"] - at["chk-0"])
    # A night in which the job was down takes no room.
    said, at = places(*(bench.usual(number, begin) for number, begin in enumerate((0, 2, 40_000, 40_002))))
    assert said == "over time, idle time folded"
    assert max(after - before for before, after in pairwise(at.values())) < 400
    # What is under way is behind what is settled, and takes nothing away from it.
    under_way = EpochModel(view=states.describe(2, (), None, noted=False))
    assert places(bench.usual(0, 0), bench.usual(1, 2), under_way)[0] == "over time"


@pytest.mark.parametrize(
    ("epochs", "why"),
    [
        ([bench.usual(0, 0), bench.folded(1, None), bench.usual(2, 5)], "when each was over is not known"),
        (
            [bench.usual(0, 0), UNTIMED, bench.usual(2, 9)],
            "when each was over is not known",
        ),
        ([bench.usual(0, 0), bench.usual(1, -500), bench.usual(2, 5)], "a clock contradicts the log"),
        ([bench.folded(0, 50), bench.folded(1, 10)], "a clock contradicts the log"),
    ],
)  # fmt: skip
def test_where_clocks_do_not_tell_figures_are_over_the_epochs_and_say_so(
    epochs: list[EpochModel], why: str
) -> None:
    said, at = places(*epochs)
    assert said == f"over the epochs: {why}"
    apart = [after - before for before, after in pairwise(at.values())]
    assert apart == [pytest.approx(apart[0], abs=0.2)] * (len(epochs) - 1)


def test_more_epochs_than_places_share_them_by_time() -> None:
    said, at = places(*(bench.usual(number, 2 * number) for number in range(400)))
    assert said == "over time"
    assert len(at) <= 180
    assert "chk-0" in next(iter(at))


def test_where_epochs_share_a_column_the_figure_says_what_its_colours_are() -> None:
    few, many = (
        multiples(view(bench.model(*(bench.usual(number, 2 * number) for number in range(count)))))
        for count in (5, 400)
    )
    assert all("dark: the median, light: the most" in each for each in many)
    assert not any("dark:" in each for each in few)


def test_how_old_the_place_was_that_a_source_of_time_began_at_is_drawn() -> None:
    found = bench.usual(0, 0)
    offset = (
        '{"start":{"a":["after","7"],"b":["after","9"]},"onceonly.behind.ms":{"start/a":1200,"start/b":300}}'
    )
    told = replace(found, chain=(replace(found.chain[0], barrier=(offset,)),))
    assert (told.behind_s, found.behind_s) == (1.2, None)
    drawn = str(multiples(view(bench.model(told)))[0])
    assert f"{text(BEHIND_S)}, chk-0 to chk-0: at least 1.200 s" in drawn


@pytest.mark.parametrize(
    ("epochs", "alive", "level", "command"),
    [
        ([bench.usual(0, 0)], False, Level.SAFE, ""),
        (
            [bench.usual(0, 0), bench.in_doubt(1, 2)],
            False,
            Level.STUCK,
            "onceonly transactions commit chk-1 /c",
        ),
        ([bench.usual(0, 0), bench.in_doubt(1, 2)], True, Level.WORKING, ""),
        (
            [bench.usual(0, 0), bench.in_doubt(1, 2)],
            None,
            Level.UNKNOWN,
            "onceonly transactions commit chk-1 /c",
        ),
        ([bench.usual(0, 0), bench.told(bench.claim(1, 3))], False, Level.WAITING, ""),
        ([bench.usual(0, 0), bench.partly_lost(1, 2)], False, Level.STUCK, ""),
        ([bench.usual(0, 0), bench.partly_lost(1, 2)], True, Level.WORKING, ""),
        (
            [bench.told(bench.decision(1, 1, [bench.vote(1, 0, 1)]), bench.claim(1, 3, index=1))],
            False,
            Level.STUCK,
            "",
        ),
        ([], False, Level.SAFE, ""),
        ([], True, Level.WORKING, ""),
    ],
)
def test_the_verdict_says_how_it_stands_and_what_to_type(
    *, epochs: list[EpochModel], alive: bool | None, level: Level, command: str
) -> None:
    found = view(bench.model(*epochs, alive=alive)).verdict
    assert (found.level, found.command) == (level, command)
    assert found.level is not Level.STUCK or found.since == bench.ZERO + 3


def test_the_first_sentence_says_what_was_left_out_of_a_settled_log() -> None:
    def safe(*epochs: EpochModel) -> str:
        return view(bench.model(*epochs)).verdict.safe

    settled = "everything up to chk-1 is settled: what was decided is committed"
    assert safe() == "no epoch has begun yet, so that nothing is open and nothing is in doubt"
    assert safe(bench.usual(0, 0), bench.usual(1, 2)) == settled
    assert safe(bench.usual(0, 0), bench.skipped(1, 3, Skip.UNCHANGED)) == settled
    foreign = safe(bench.usual(0, 0), bench.skipped(1, 3, Skip.FOREIGN))
    assert foreign.startswith(f"{settled}; nothing was decided here of chk-1: another sink wrote it")
    more = safe(bench.skipped(0, 0, Skip.SWALLOWED), bench.skipped(1, 3, Skip.SWALLOWED))
    assert "of chk-1 and 1 more: it failed" in more
    tried = bench.usual(1, 2)
    assert tried.receipt is not None
    tried = bench.told(
        replace(tried.chain[0], guarantee=Guarantee.AT_MOST_ONCE),
        settled=replace(tried.receipt, outcomes={"committed": 1, "unknown": 1}),
    )
    assert safe(tried) == f"{settled}, save what chk-1 tried at most once and gave up"


def test_a_batch_is_run_again_and_has_no_epoch_after_its_own() -> None:
    def found(epoch: EpochModel) -> Verdict:
        return view(replace(bench.model(epoch), query="batch-2026-11-01-0123456789ab")).verdict

    stuck = found(bench.in_doubt(0, 2))
    assert stuck.waits == "whoever reads its rows from box"
    assert stuck.next_step.startswith("run the batch again, which finishes chk-0")
    begun = found(bench.told(bench.claim(0, 3)))
    assert begun.waits == "whoever reads rows of chk-0"
    assert begun.next_step == "run the batch again, which writes all of chk-0"
    done = found(bench.usual(0, 0))
    assert done.next_step == "no run is alive; the next start finds the batch done, and writes nothing"


AT_LATEST = ", since at the latest "
DECIDED = bench.decision(1, 3, [bench.vote(1, 0, 2.5)])


def unstamped(*chain: Link, written_s: float | None = None) -> EpochModel:
    """An epoch that an older onceonly decided; on a file system its file has a time of its own."""
    found = bench.told(replace(chain[0], stamp=None), *chain[1:])
    if written_s is None:
        return replace(found, at=bench.ZERO + 2)  # of its plan, which is before
    steps = (Step(f"link {found.chain[0].name}: commit", bench.ZERO + written_s),)
    return replace(found, steps=steps, at=bench.ZERO + written_s)


@pytest.mark.parametrize(
    ("newest", "after_s", "told"),
    [
        (unstamped(DECIDED, written_s=3.5), 3.5, AT_LATEST),
        (unstamped(DECIDED), None, ", and since when is not known"),
        (unstamped(DECIDED, bench.decision(1, 9, DECIDED.votes, index=1)), 9, AT_LATEST),
        (unstamped(bench.claim(1, 3), written_s=4), 4, AT_LATEST),
        (bench.in_doubt(1, 2), 3, ", since "),
    ],
)
def test_where_a_record_has_no_time_what_came_after_it_says_the_latest(
    newest: EpochModel, after_s: float | None, told: str
) -> None:
    found = view(bench.model(bench.usual(0, 0), newest)).verdict
    at = None if after_s is None else bench.ZERO + after_s
    assert (found.since, found.at_latest) == (at, told != ", since ")
    shown = "" if at is None else moment(at)
    assert f"{found.stuck}{told}{shown}\n" in terminal.verdict(found).plain
    assert f"{told}{'<time' if shown else '.'}" in tables.verdict(found)
    assert ("data-at-least" in tables.verdict(found)) == (found.at_latest and at is not None)


def test_what_was_decided_and_lost_is_told_from_what_never_was_decided() -> None:
    taken_over = "(a new run took it over; earlier tries are void)"
    begun = view(bench.model(bench.usual(0, 0), bench.told(bench.claim(1, 3)))).verdict
    assert begun.stuck == f"nothing of chk-1 is decided yet {taken_over}"
    assert begun.waits == "whoever reads rows of chk-1, or of what comes after it"
    lost = bench.told(bench.decision(1, 1, [bench.vote(1, 0, 1)]), bench.claim(1, 3, index=1))
    assert view(bench.model(lost)).verdict.stuck == f"what was decided of chk-1 was lost {taken_over}"


def test_where_all_is_well_nothing_is_to_be_done() -> None:
    found = view(bench.model(bench.usual(0, 0), alive=True)).verdict
    assert found.next_step == "nothing is to be done: a run is alive"


def test_what_is_but_closed_to_older_runs_waits_for_nobody() -> None:
    closed = bench.told(replace(bench.claim(1, 3), reason="claimed before a drain"))
    found = view(bench.model(bench.usual(0, 0), closed)).verdict
    assert (found.level, found.stuck, found.waits) == (Level.SAFE, "", "")
    assert found.next_step == "no run is alive; the next start goes on from here"


def test_where_a_query_was_restored_elsewhere_the_page_leads_there() -> None:
    ended = bench.told(replace(bench.claim(1, 3), reason=RESTORED))
    left = replace(bench.model(bench.usual(0, 0), ended), is_moved=True, is_left=True, home="file:///there")
    found = view(left).verdict
    assert (found.level, found.stuck, found.command) == (Level.SAFE, "", "")
    assert found.next_step.startswith("start the job at file:///there: its query was restored there")


def test_a_checkpoint_that_was_moved_is_said_to_be_beside_what_is_in_doubt() -> None:
    moved = replace(
        bench.model(bench.usual(0, 0), bench.in_doubt(1, 2)), is_moved=True, home="file:///before"
    )
    found = view(moved).verdict
    assert (found.level, found.since) == (Level.STUCK, bench.ZERO + 3)
    # From here nobody can tell one from the other, and to accept a copy would give two queries the same transactions.
    assert found.stuck.startswith("the checkpoint was moved or copied here from file:///before")
    assert found.next_step == "accept the move, if it was meant and no copy is in use"
    said = " is not known to be committed, since 2023-11-14T22:13:23.000Z\n"
    assert said in terminal.verdict(found).plain
    assert found.command == "onceonly checkpoints accept-move /c"


@pytest.mark.parametrize("newest", [bench.usual(0, 0), bench.in_doubt(0, 0), bench.told(bench.claim(0, 0))])
def test_who_cannot_tell_whether_a_run_is_alive_says_so_before_anything_is_started(
    newest: EpochModel,
) -> None:
    found = view(bench.model(newest, alive=None)).verdict
    assert found.next_step.startswith("whether a run is alive cannot be told (")


def test_idle_time_is_folded_and_busy_time_is_in_proportion() -> None:
    axis = Axis([(0, 10), (1_000_000, 1_000_010)], 0, 1030)
    assert [round(axis(t)) for t in (0, 5, 10, 1_000_000, 1_000_005, 1_000_010)] == [
        0, 250, 500, 530, 780, 1030,
    ]  # fmt: skip
    assert 500 < axis(500_000) < 530
    assert [round(fold.seconds) for fold in axis.folds] == [999_990]


GOLDEN_PICTURES = {
    "timeline": timeline(
        view(bench.model(bench.usual(0, 0), bench.in_doubt(1, 600), runs=[bench.run("a", -1)]))
    ),
    "epoch": epoch_picture(view(bench.model(bench.usual(0, 0))).epochs[0]),
    "multiples": multiples(view(bench.model(bench.folded(0, 0), bench.usual(1, 5))))[0],
}


@pytest.mark.parametrize("name", GOLDEN_PICTURES)
def test_a_picture_is_as_it_was(name: str) -> None:
    """``python -m tests.unit.test_view`` draws them anew; look at them before they are committed."""
    assert _lines(GOLDEN_PICTURES[name]) == (GOLDEN / f"{name}.svg").read_text(encoding="utf-8")


def test_what_a_slot_writes_to_two_sinks_is_two_bars_one_below_the_other() -> None:
    votes = [bench.vote(0, 0, 3.2, sink="a"), bench.vote(0, 0, 3.8, sink="b")]
    drawn = timeline(view(bench.model(bench.told(bench.decision(0, 4, votes)))))
    assert len(set(re.findall('<rect class="b writing"[^>]* y="([^"]*)"', drawn))) == 2


def test_a_time_line_of_many_epochs_says_that_it_marks_only_what_was_not_as_always() -> None:
    many = [bench.usual(number, 2 * number) for number in range(40)]
    drawn = timeline(view(bench.model(*many, bench.in_doubt(40, 99))))
    assert "41 epochs: only what was not as always has a mark" in drawn
    assert "m vote" not in drawn
    assert drawn.count("m doubt") == 1


def test_what_stands_above_a_time_line_never_stands_in_one_another() -> None:
    drawn = timeline(view(bench.model(*(bench.usual(number, 100 * number) for number in range(12)))))
    found = re.findall(r'<text [^>]*x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]+)</text>', drawn)
    idle = [(float(x), y, said) for x, y, said in found if said.startswith("idle ")]
    assert len(idle) > 3
    for (x, _, said), (after, _, _) in pairwise(idle):
        assert after - x >= CHARACTER * len(said)
    assert {y for _, y, said in found if said.endswith("UTC")}.isdisjoint({y for _, y, _ in idle})


def drawn_for_the_docs() -> str:
    """The run of the golden folder that died between a decision and its commits."""
    died = open_checkpoint(GOLDEN.parent / "midway-2-decided" / "checkpoint")
    shown = view(look.newest(died, limit=12, history=True))
    return _lines(timeline(shown, alone=True))


def test_the_picture_in_the_docs_is_drawn_from_a_run() -> None:
    assert (DOCS / "see-a-run.svg").read_text(encoding="utf-8") == drawn_for_the_docs()


def _lines(svg: Markup) -> str:
    """An element a line, so that a change can be read."""
    return re.sub(r"(?<=>)(?=<(?!/))", "\n", svg) + "\n"


def test_a_page_fetches_nothing_runs_nothing_and_says_what_was_left_out() -> None:
    page = report(view(bench.model(*(bench.usual(n, 2 * n) for n in range(70)), known=99)))
    assert "<script" not in page
    assert not re.search(r'(src|href)="(?!#)', page)
    assert "default-src &#x27;none&#x27;" in page
    assert "29 of 99 epochs are not shown" in page
    assert "40 older epochs are not in this picture" in page


def test_a_query_is_called_by_the_name_of_its_newest_run_beside_its_id() -> None:
    runs = [replace(bench.run("r1", 0.0), name="former"), replace(bench.run("r2", 5.0), name="<orders>")]
    named = bench.model(bench.usual(0, 1.0), runs=runs)
    assert "query <orders> q  run" in header(named).plain
    assert checkpoint(named)["name"] == "<orders>"
    assert "Query &lt;orders&gt; q" in report(view(named))
    assert summary(view(named)).startswith("query <orders> q, run")
    stuck = summary(view(bench.model(bench.in_doubt(1, 2))))
    assert stuck.endswith("or, with the job down, type: onceonly transactions commit chk-1 /c")
    nameless = bench.model(bench.usual(0, 1.0), runs=[bench.run("r1", 0.0)])
    assert "query q  run" in header(nameless).plain
    assert checkpoint(nameless)["name"] is None
    assert "Query q<" in report(view(nameless))


def test_a_moment_in_a_table_is_not_broken_at_its_hyphen() -> None:
    page = report(view(bench.model(bench.usual(0, 1.0), bench.in_doubt(1, 3.0), runs=[bench.run("r1", 0.0)])))
    assert ".oo-table time{white-space:nowrap}" in page
    cells = re.findall(r"<td[^>]*>(?:<time>)?\d{4}-\d\d-\d\dT", page)
    assert len(cells) > 5, "steps, epochs, runs, and what is in doubt"
    assert all("<time>" in cell for cell in cells)


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for picture, drawn in GOLDEN_PICTURES.items():
        (GOLDEN / f"{picture}.svg").write_text(_lines(drawn), encoding="utf-8")
    (DOCS / "see-a-run.svg").write_text(drawn_for_the_docs(), encoding="utf-8")
