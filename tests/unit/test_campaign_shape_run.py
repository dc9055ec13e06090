"""The run in the shape of Kafka's test, with a job and a broker that only say what was done to them."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from onceonly_proof.campaign import shape, shape_run
from onceonly_proof.campaign.shape_run import ShapeOptions, _Stand
from onceonly_proof.campaign.task import Task

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from onceonly_proof.campaign.lives import Life

MESSAGES = 100


@dataclass
class Process:
    exit_code: int | None = None


@dataclass
class FakeLife:
    did: list[str]
    deaf: bool
    process: Process = field(default_factory=Process)

    def kill(self) -> None:
        self.did.append("hard job")
        self.process.exit_code = None if self.deaf else -signal.SIGKILL

    def stop(self) -> bool:
        self.did.append("clean job")
        self.process.exit_code = 1 if self.deaf else 0
        return not self.deaf

    def error(self) -> str:
        return "its last words"


@dataclass
class FakeKafka:
    did: list[str]
    deaf: bool
    pid: int = 1

    def kill(self) -> None:
        self.did.append("hard broker")

    def stop(self) -> None:
        self.did.append("clean broker")

    def start(self) -> None:
        self.pid += 0 if self.deaf else 1


@dataclass
class FakeLives:
    did: list[str]
    deaf: bool
    given: list[FakeLife] = field(default_factory=list)

    def next(self, task: Task) -> Life:
        self.given.append(FakeLife(self.did, self.deaf))
        return cast("Life", self.given[-1])


@dataclass
class FakeWatch:
    """Shows as much as is asked for, up to a limit."""

    limit: int = MESSAGES
    shown: int = 0

    def holds(self, count: int) -> bool:
        self.shown = max(self.shown, min(count, self.limit))
        return count <= self.limit

    def seen(self) -> list[None]:
        return [None] * self.shown


def stand(tmp_path: Path, *, deaf: bool = False, limit: int = MESSAGES) -> tuple[_Stand, list[str]]:
    did: list[str] = []
    task = Task(
        servers="h:1", source="i", target="o", files="", checkpoint=str(tmp_path), connector="kafka",
        guarantee="exactly-once", per_epoch=1,
    )  # fmt: skip
    fakes: dict[str, Any] = {
        "kafka": FakeKafka(did, deaf),
        "lives": FakeLives(did, deaf),
        "watch": FakeWatch(limit),
    }
    options = ShapeOptions(messages=MESSAGES)
    return _Stand(options=options, task=task, say=lambda _: None, **fakes), did


def test_job_and_broker_are_bounced_as_planned_and_the_job_ends_in_order(tmp_path: Path) -> None:
    run, did = stand(tmp_path)
    run.run()
    assert did == [*shape.KINDS, "clean job"]
    assert [each.kind for each in run.done] == list(shape.KINDS)
    assert [each.at_rows for each in run.done] == [b.at_rows for b in shape.plan_bounces(MESSAGES, 1)]
    assert len(run.lived) == 3
    assert run.trouble == []


def test_a_bounce_after_which_the_same_process_is_there_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shape_run, "_PROGRESS_TIMEOUT_S", 0.1)
    run, _ = stand(tmp_path, deaf=True)
    run.run()
    assert [text.partition(":")[0] for text in run.trouble[:4]] == list(shape.KINDS)


def test_a_run_that_shows_nothing_more_is_ended_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shape_run, "_PROGRESS_TIMEOUT_S", 0.1)
    run, did = stand(tmp_path, limit=50)
    run.run()
    assert did == ["hard broker", "clean job"]
    assert run.trouble == ["60 messages were not visible after 0.1 s"]


def test_a_job_that_ends_by_itself_is_started_again_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shape_run, "_PROGRESS_TIMEOUT_S", 0.1)
    run, _ = stand(tmp_path, limit=0)
    run._start()
    cast("FakeLife", run.lived[0]).process.exit_code = 3
    assert not run._shows(1)
    assert run.trouble[0] == "the job ended by itself: its last words"
    assert len(run.lived) == 2
