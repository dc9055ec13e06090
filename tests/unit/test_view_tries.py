"""Tries that no decision came of: what the event log tells of them is drawn, and nothing of it as if decided."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit import view_bench as bench

from onceonly.model import LinkKind
from onceonly.operations import states
from onceonly.operations.checkpoint_model import EpochModel
from onceonly.view import page
from onceonly.view.epoch import epoch as epoch_picture
from onceonly.view.story import view
from onceonly.view.timeline import kinds, timeline
from onceonly.view.trace import of_query, with_events
from onceonly.view.values import EXECUTORS, Epoch, View, What, Work

if TYPE_CHECKING:
    from collections.abc import Mapping

RECORDED = Path(__file__).with_name("recorded") / "cut_off_try.jsonl"
"""A real job's lines of chk-24: its machine was cut off while slot 2 wrote; the next run put an ABORT, and swept."""
DEAD = "1839df8f1d22.f0ac5bfc8e9e4794b51c15bc786b51eb"
NEXT = "c986ea08ba33.b055a1cca81645948ac1ce9fe9113573"
BEGAN_S, CLAIMED_S = 571.339, 619.153
_DECIDED = {What.DECISION, What.COMMITTED, What.DOUBT, What.RECOVERED, What.RECEIPT}


def recorded() -> list[dict[str, object]]:
    """Return the lines, moved to chk-0 of the query of these tests and to the tests' own moment."""
    lines = [json.loads(text) for text in RECORDED.read_text(encoding="utf-8").splitlines()]
    begin = lines[0]["t"]
    return [{**line, "query": "q", "epoch": 0, "t": bench.ZERO + line["t"] - begin} for line in lines]


def undecided(number: int = 0) -> EpochModel:
    """An epoch that has a barrier alone."""
    return EpochModel(view=states.describe(number, (), None, noted=False))


def claimed(plan: str = NEXT) -> EpochModel:
    return bench.told(replace(bench.claim(0, CLAIMED_S - BEGAN_S), plan=plan), noted=False)


def drawn(found: EpochModel, lines: list[dict[str, object]], *, alive: bool | None = False) -> Epoch:
    plain = view(bench.model(found, alive=alive))
    told = with_events(plain, of_query(plain, lines))
    _draw(told)
    return told.epochs[0]


def _draw(told: View) -> None:
    assert timeline(told)
    assert page.report(told)
    assert all(epoch_picture(each) for each in told.epochs)


def of_plan(epoch: Epoch, plan: str) -> list[What]:
    return [mark.what for mark in epoch.marks if mark.record == f"event log, plan {plan[-8:]}"]


def test_a_try_that_was_cut_off_is_drawn_up_to_the_last_that_was_heard_of_it() -> None:
    epoch = drawn(claimed(), recorded())
    dead = of_plan(epoch, DEAD)
    assert (dead[0], dead.count(What.VOTE), dead[-1]) == (What.PLAN, 4, What.CUT)
    names = [mark.what for mark in epoch.marks]
    assert names.index(What.CUT) < names.index(What.ABORT)
    cut = next(mark for mark in epoch.marks if mark.what is What.CUT)
    assert cut.at is None, "nobody noted when it died"
    assert cut.place == pytest.approx(bench.ZERO + 3.449, abs=0.001)
    assert "link 0.0 closed it" in cut.told
    assert not [mark for mark in epoch.marks if mark.skewed]


def test_a_slot_that_was_not_heard_of_again_is_not_drawn_as_if_it_had_written() -> None:
    epoch = drawn(claimed(), recorded())
    bars = {bar.slot: bar for bar in epoch.bars if bar.lane == EXECUTORS}
    assert [bars[slot].work for slot in range(3)] == [Work.WRITING, Work.WRITING, Work.UNHEARD]
    assert bars[2].end == pytest.approx(bench.ZERO + CLAIMED_S - BEGAN_S), "the link that closed it"
    still = {bar.slot: bar for bar in drawn(undecided(), recorded()[:-8]).bars}
    assert (still[2].work, still[2].end) == (Work.UNHEARD, None)


def test_nothing_of_a_try_without_a_decision_is_drawn_as_committed() -> None:
    line = recorded()[3]
    lies = [
        {
            **line,
            "kind": kind,
            "plan": DEAD,
            "transaction": "t0-0",
            "outcome": "Committed",
            "t": bench.ZERO + 3,
        }
        for kind in ("handle.committed", "handle.resolved", "receipt.persisted", "epoch.done")
    ]
    put = {**line, "kind": "link.persisted", "link": LinkKind.COMMIT.value, "index": 0, "plan": DEAD}
    for found in (undecided(), claimed()):
        epoch = drawn(found, [*recorded(), *lies, put])
        assert not {mark.what for mark in epoch.marks} & _DECIDED
        assert (epoch.in_doubt, epoch.sinks, epoch.words) == (
            (),
            {},
            view(bench.model(found)).epochs[0].words,
        )
        assert not [bar for bar in epoch.bars if bar.work in {Work.COMMITTING, Work.DOUBT}]
        assert What.CUT not in of_plan(epoch, DEAD), "it may have been decided: the log was read before"
        assert any("does not have it" in mark.told for mark in epoch.marks)


@pytest.mark.parametrize(("alive", "cut"), [(True, 0), (None, 0), (False, 1)])
def test_a_try_is_said_to_be_over_only_where_it_is(*, alive: bool | None, cut: int) -> None:
    epoch = drawn(undecided(), recorded()[:15], alive=alive)
    assert of_plan(epoch, DEAD).count(What.CUT) == cut
    yet = [mark for mark in epoch.marks if "no decision of it is known yet" in mark.told]
    assert bool(yet) is not bool(cut)


def test_what_the_log_tells_of_a_try_is_not_told_again() -> None:
    lines: list[Mapping[str, object]] = [{**line, "plan": "p"} for line in recorded() if line["plan"] == DEAD]
    assert of_plan(drawn(bench.usual(0, 0), [dict(line) for line in lines]), "p") == []
    # A try that gave itself up has put its plan and its votes into its ABORT.
    votes = tuple(bench.vote(0, slot, 3, sink="kafka") for slot in range(2))
    link = replace(
        bench.claim(0, 10), plan=DEAD, votes=votes, planned=bench.stamp(0.1), reason="a slot failed"
    )
    gave_up = {**recorded()[0], "kind": "epoch.aborted", "t": bench.ZERO + 9}
    epoch = drawn(bench.told(link, noted=False), [*recorded()[:18], gave_up])
    found = of_plan(epoch, DEAD)
    assert (found.count(What.PLAN), found.count(What.VOTE), found.count(What.CUT)) == (0, 2, 0)
    assert [bar.slot for bar in epoch.bars if bar.work is Work.WRITING] == [0, 1]


def test_a_plan_that_only_finishes_what_was_decided_is_no_try() -> None:
    drains = [
        {**recorded()[0], "kind": kind, "mode": "drain", "plan": NEXT, "t": bench.ZERO + 5}
        for kind in ("plan.started", "epoch.planned", "epoch.done")
    ]
    assert of_plan(drawn(bench.usual(0, 0), drains), NEXT) == []


def test_a_try_is_drawn_after_the_claim_of_its_own_and_not_before_the_epoch_before() -> None:
    chain = (
        replace(bench.claim(1, CLAIMED_S - BEGAN_S), plan=NEXT),
        replace(bench.claim(1, 100, index=1), plan="later"),
    )
    plain = view(bench.model(bench.usual(0, 500), bench.told(*chain, noted=False)))
    lines = [{**line, "epoch": 1} for line in recorded()]
    epoch = with_events(plain, lines).epochs[1]
    names = [mark.record for mark in epoch.marks if mark.what in {What.PLAN, What.ABORT}]
    assert names == [
        f"event log, plan {DEAD[-8:]}", "link 1.0", f"event log, plan {NEXT[-8:]}", "link 1.1",
    ]  # fmt: skip
    floor = max(mark.place or 0 for mark in plain.epochs[0].marks)
    assert min(mark.place or 0 for mark in epoch.marks) >= floor


def test_a_sweep_has_a_lane_where_no_sink_has_one_yet_and_many_slots_are_few_marks() -> None:
    assert "sink kafka" in with_events(view(bench.model(claimed())), recorded()).lanes
    begun = next(line for line in recorded() if line["kind"] == "slot.begun")
    many = [{**begun, "slot": slot, "attempt": str(slot)} for slot in range(2000)]
    plain = view(bench.model(claimed()))
    told = with_events(plain, [*recorded(), *many])
    assert (
        str(timeline(told)).count('class="b unheard"') + str(timeline(told)).count("nothing more was heard")
        < 10
    )
    assert What.HEARD in kinds(told)
    assert len(page.report(told)) < page.BYTES_MAX


def test_a_secret_in_a_line_of_the_event_log_is_not_shown() -> None:
    failed = {
        **recorded()[5],
        "kind": "slot.failed",
        "error": "no answer of https://me:hunter2@db/x",
        "plan": DEAD,
    }
    told = str(page.detail(drawn(claimed(), [*recorded()[:5], failed])))
    assert ("slot.failed" not in told, "failed with no answer" in told, "hunter2" in told) == (
        True,
        True,
        False,
    )
