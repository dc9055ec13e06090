"""What is known of a plan's promise, and what becomes of a drain that gives other rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from onceonly import protocol as p
from onceonly.checkpoint.files import FolderFiles
from onceonly.coordinator import repeats
from onceonly.errors import ConfigurationError
from onceonly.model import Guarantee, Link, LinkKind, Mode, Plan, Vote
from onceonly.settings.query import Replay, replay_of

if TYPE_CHECKING:
    from pathlib import Path


def vote(rows: int) -> Vote:
    return Vote(sink="a", epoch=1, slot=0, plan="p", run="r", attempt="0", rows=rows, checksum="0" * 16)


DECIDED = Link(epoch=1, index=0, kind=LinkKind.COMMIT, plan="o", run="r", votes=(vote(3),))
DRAIN = Plan(id="p", epoch=1, mode=Mode.DRAIN, index=1, guarantee=Guarantee.EXACTLY_ONCE, decided=DECIDED)


def answer(plan: Plan, rows: int) -> tuple[p.Command, ...]:
    return p.step(p.resume(plan), p.VotesCollected((vote(rows),)))[1]


def test_other_rows_stop_a_strict_drain_and_are_told_of_in_another() -> None:
    (stopped,) = answer(replace(DRAIN, strict=True), 2)
    assert isinstance(stopped, p.Stop)
    assert stopped.reason is p.StopReason.REPLAY
    (told,) = answer(DRAIN, 2)
    assert isinstance(told, p.Report)
    assert answer(DRAIN, 3) == answer(replace(DRAIN, strict=True), 3) == ()


def test_the_word_of_a_run_is_read_and_that_of_an_earlier_one_is_not(tmp_path: Path) -> None:
    files = FolderFiles(tmp_path)
    assert not repeats.noted(files)
    repeats.note(files, "")
    assert not repeats.noted(files), "there is no log yet"
    (tmp_path / "onceonly").mkdir()
    repeats.note(files, "")
    assert repeats.noted(files)
    repeats.note(files, "rand()")
    assert not repeats.noted(files)
    repeats.note(files, "")
    repeats.note(files, None)
    assert not repeats.noted(files)
    assert list((tmp_path / "onceonly").iterdir()) == []


def test_a_word_that_is_none_is_refused() -> None:
    assert replay_of(" Stop ") is Replay.STOP
    with pytest.raises(ConfigurationError, match="cannot be 'maybe'"):
        replay_of("maybe")
