"""The textbook's recordings are what real runs give today: one crash step anew, and all of them at length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from onceonly import failpoints
from onceonly_proof.textbook import recordings
from onceonly_proof.textbook.record import Recorder

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly_proof.embedded.kafka import EmbeddedKafka
    from onceonly_proof.textbook.values import Crash, Look

pytestmark = [pytest.mark.acceptance]
RECORDED = recordings.read()


@pytest.fixture
def recorder(kafka: EmbeddedKafka, classes: Path, tmp_path: Path) -> Recorder:
    return Recorder(
        kafka, tmp_path, lambda _: None, java=f"-XX:SharedArchiveFile={classes}" if classes.exists() else ""
    )


def recorded(point: str) -> Crash:
    [found] = [each for each in RECORDED.crashes.crashes if each.point == point]
    return found


def test_killed_when_it_is_decided_a_job_takes_the_steps_that_are_recorded(recorder: Recorder) -> None:
    assert recorder.crash("link.after_put") == recorded("link.after_put")


@pytest.mark.long
@pytest.mark.parametrize("point", failpoints.EVERYWHERE)
def test_killed_at_each_step_a_job_shows_what_is_recorded(recorder: Recorder, point: str) -> None:
    # Which of two slots is first is chance; what is there of both is not.
    assert told(recorder.crash(point)) == told(recorded(point))


@pytest.mark.long
def test_the_counts_the_files_and_the_votes_are_those_that_are_recorded(recorder: Recorder) -> None:
    counts = recorder.counts()
    assert msgspec.structs.replace(counts, made=RECORDED.counts.made) == RECORDED.counts
    growth = recorder.growth()
    assert [(each.keys, each.changed, each.snapshot is None) for each in growth.versions] == [
        (each.keys, each.changed, each.snapshot is None) for each in RECORDED.growth.versions
    ]


def told(crash: Crash) -> object:
    looks = [seen(each) for each in (crash.before, crash.between, crash.after)]
    return looks, [(step.life, step.kind) for step in crash.steps]


def seen(look: Look) -> object:
    return len(look.visible), look.open, look.barrier, look.link, look.receipt, look.noted
