"""The desk of a query: what it refuses before the protocol is asked, and when it is seen to be there."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from onceonly.errors import ConfigurationError, LogError, RecordRefusedError
from onceonly.log.presence import present
from onceonly.model import Guarantee, Mode, Vote
from onceonly.runtime.desk import Desk
from onceonly.runtime.registry import remember
from onceonly.runtime.settings import LetterSettings, QuerySettings, SinkSettings
from onceonly.runtime.slot import Ballot
from onceonly.testing.memory_sink import MemorySink

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.ports import Leftover, QueryContext


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    MemorySink.stores.clear()
    remember(MemorySink)
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": "q"}))
    barrier(tmp_path, 0)
    made = Desk(QuerySettings(checkpoint=str(tmp_path)), actor="driver", application="app")
    made.enlist(SinkSettings(name="memory"), MemorySink, ())
    return made


def barrier(checkpoint: Path, epoch: int) -> None:
    (checkpoint / "offsets" / str(epoch)).write_text(f'v1\n{{}}\n{{"t":{{"0":{epoch}}}}}')


def complete(checkpoint: Path, epoch: int) -> None:
    (checkpoint / "commits" / str(epoch)).write_text("v1\n{}")


def run(desk: Desk, epoch: int) -> None:
    desk.decide(desk.plan(epoch, run="r"), [])


def test_a_function_that_passed_onceonly_by_is_told_so_and_not_to_restore_a_backup(
    desk: Desk, tmp_path: Path
) -> None:
    run(desk, 0)
    for epoch in (0, 1):
        complete(tmp_path, epoch)
    barrier(tmp_path, 2)
    with pytest.raises(ConfigurationError, match="chk-1 without onceonly") as caught:
        desk.plan(2, run="r")
    assert "in every call" in caught.value.next_step


def test_links_that_are_missing_though_spark_never_completed_their_epoch_are_damage(
    desk: Desk, tmp_path: Path
) -> None:
    run(desk, 0)
    barrier(tmp_path, 2)
    with pytest.raises(LogError, match="epochs are missing"):
        desk.plan(2, run="r")


def test_a_desk_that_rests_is_no_living_run(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []
    recover = MemorySink.recover

    def looked_at(self: MemorySink, context: QueryContext) -> list[Leftover]:
        seen.append(present(str(tmp_path)))
        return recover(self, context)

    monkeypatch.setattr(MemorySink, "recover", looked_at)
    run(desk, 0)
    assert seen
    assert all(who is not None and "driver" in who for who in seen)
    assert present(str(tmp_path)) is None


@pytest.mark.parametrize(("again", "index"), [("r", 0), ("s", 1)])
def test_the_next_epoch_is_claimed_by_a_new_run_only(
    desk: Desk, tmp_path: Path, again: str, index: int
) -> None:
    run(desk, 0)
    barrier(tmp_path, 1)
    assert desk.plan(1, run=again).index == index, "its first link is the claim, if there is one"


def ballot(slot: int, refused: int, *, sink: str = "memory") -> Ballot:
    """The ballot of a slot, of which nothing else is looked at."""

    def vote(name: str, rows: int) -> Vote:
        return Vote(
            sink=name, epoch=0, slot=slot, plan="p", run="r", attempt="0", rows=rows, checksum="0" * 16
        )

    letters = vote(f"{sink}.letters", refused) if refused else None
    return Ballot(
        vote=vote(sink, 1), letters=letters, refused=f"row 0 of slot {slot}: why" if refused else ""
    )


def with_letters(desk: Desk, *, store: str = "letters", limit: int = 5) -> None:
    given = LetterSettings(format="memory", limit=limit, options={"store": store})
    desk.enlist(SinkSettings(name="memory", letters=given), MemorySink, (), MemorySink)


def test_slots_that_together_refuse_more_than_the_limit_stop_before_the_decision(desk: Desk) -> None:
    with_letters(desk)
    plan = desk.plan(0, run="r")
    desk.require_few_letters(plan, [ballot(0, 3), ballot(1, 0), ballot(2, 2)])
    with pytest.raises(RecordRefusedError, match="limit, 5; the first: row 0 of slot 1: why"):
        desk.require_few_letters(plan, [ballot(0, 0), ballot(1, 3), ballot(2, 3)])


def test_the_sink_of_letters_takes_part_with_its_columns_and_the_same_promise(desk: Desk) -> None:
    with_letters(desk)
    plan = desk.plan(0, sinks=["memory"], run="r")
    assert plan.mode is Mode.RUN
    assert sorted(plan.settings) == ["memory", "memory.letters"]
    assert plan.settings["memory.letters"] == {"store": "letters"}
    letters = desk.assignment(plan, "memory").letters
    assert letters is MemorySink
    columns = dict(desk._members["memory.letters"].participant.columns)
    assert (columns["row"], columns["epoch"]) == ("string", "bigint")
    assert desk._members["memory.letters"].participant.guarantee is Guarantee.EXACTLY_ONCE


def test_letters_with_the_target_of_the_rows_are_refused_before_the_first_record(desk: Desk) -> None:
    with_letters(desk, store="default")
    with pytest.raises(ConfigurationError, match="same target"):
        desk.plan(0, run="r")


def test_a_sink_that_gives_nothing_back_has_no_letters(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    offered = MemorySink.capabilities
    monkeypatch.setattr(MemorySink, "capabilities", replace(offered, gives_back=False))
    with pytest.raises(ConfigurationError, match="no dead letter would ever be written"):
        with_letters(desk)
