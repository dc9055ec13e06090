"""Workers of Spark's that die in a run of the power-loss campaign: drawn, armed, counted, spared."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from onceonly import failpoints
from onceonly_proof.power import workers
from onceonly_proof.power.lives import Life
from onceonly_proof.power.outcome import Found
from onceonly_proof.process import JobProcess

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Life:
    """A life whose process is this one: it takes its failpoints as the job does, and starts nothing."""

    def start(_command: object, *, env: dict[str, str], **_more: object) -> None:
        for name, value in env.items():
            monkeypatch.setenv(name, value)

    monkeypatch.setattr(JobProcess, "start", start)
    return Life(tmp_path / "life")


def test_every_death_is_of_an_attempt_and_each_step_has_its_turn() -> None:
    drawn = {workers.death(random.Random(seed)) for seed in range(200)}
    assert {each.partition("=")[0] for each in drawn} == set(workers.POINTS) < set(failpoints.NAMES)
    assert {int(each.partition("@")[2]) for each in drawn} == set(range(1, workers.PASSES_MAX + 1))


def test_a_death_is_counted_once_it_came_and_none_is_left_for_what_runs_next(life: Life) -> None:
    found = Found(pipeline="p")
    with workers.dying(life, found, "slot.before_begin=raise@2"):
        failpoints.hit("slot.before_begin")
        with pytest.raises(failpoints.FailpointError):
            failpoints.hit("slot.before_begin")
        failpoints.hit("slot.before_begin")  # the next attempt lives
    assert found.deaths == 1
    with workers.dying(life, found, "slot.before_begin=raise@2"):
        failpoints.hit("slot.before_begin")
    failpoints.hit("slot.before_begin")
    with workers.dying(life, found, ""):
        failpoints.hit("slot.before_begin")
    assert found.deaths == 1
