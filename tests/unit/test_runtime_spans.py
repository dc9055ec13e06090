"""What Spark reads by its own memory is held against its files, which another driver may have written over."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from tests.unit.test_runtime_coordinator import SINKS, Job, StateFiles

from onceonly import errors
from onceonly.model import InputFile, Inputs, LinkKind, Mode, Plan, Span

if TYPE_CHECKING:
    from onceonly.coordinator.coordinator import Coordinator


class Files(StateFiles):
    """Spark's files: an epoch ends at its own number."""

    ends: dict[int, str]

    def read(self, epoch: int, *, lists: bool = True) -> Inputs:
        end = self.ends.get(epoch, str(epoch))
        return Inputs(files=(InputFile(name=f"offsets/{epoch}", digest=end, text=f"v1\n{{}}\n{end}"),))


class Memory:
    """Spark's memory."""

    def __init__(self) -> None:
        self.epoch = 0
        self.start: str | None = None
        self.end: str | None = None
        self.asked = 0
        self.told = 0

    def __call__(self, *, deciding: bool) -> Span | None:
        self.asked += 1
        self.told += deciding
        start = str(self.epoch - 1) if self.start is None else self.start
        return Span(
            epoch=self.epoch,
            starts=(start,) if self.epoch else (),
            ends=(str(self.epoch) if self.end is None else self.end,),
        )


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def job(memory: Memory) -> Job:
    job = Job()
    job.files = Files(job.disk)
    job.files.ends = {}
    job.span = memory
    return job


def plan(job: Job, coordinator: Coordinator, epoch: int, continues: Plan | None = None) -> Plan:
    return coordinator.plan(
        epoch, barrier=(str(epoch),), run="run", continues=None if continues is None else continues.id
    )


def decide(job: Job, coordinator: Coordinator, planned: Plan) -> None:
    slots = itertools.product(SINKS, range(len(job.dealt)))
    coordinator.decide(planned, [job.task(planned, sink, slot, run="run") for sink, slot in slots])


def test_spark_is_asked_where_it_began_unless_that_is_known(job: Job, memory: Memory) -> None:
    coordinator = job.coordinator()
    first = plan(job, coordinator, 0)
    assert memory.asked == 1
    decide(job, coordinator, first)
    assert memory.asked == 2
    memory.epoch = 1
    second = plan(job, coordinator, 1, continues=first)
    assert memory.asked == 2, "the end of the epoch before was compared when it was decided"
    decide(job, coordinator, second)
    assert memory.asked == 3
    memory.epoch, memory.start = 2, "0"
    with pytest.raises(errors.CheckpointChangedError):
        plan(job, job.coordinator(), 2)
    assert [link.reason for link in job.disk.links[2]] == ["planned from a wrong start"]


def test_that_its_tasks_are_over_is_told_of_an_epoch_and_of_a_drain_and_not_before(
    job: Job, memory: Memory
) -> None:
    """A query that is asked to end is marked as ended then: before, Spark would break the tasks off."""
    coordinator = job.coordinator()
    first = plan(job, coordinator, 0)
    assert memory.told == 0
    decide(job, coordinator, first)
    assert memory.told == 1

    coordinator = job.coordinator()
    drain = plan(job, coordinator, 0)
    assert drain.mode is Mode.DRAIN
    assert memory.told == 1, "however often it is asked where Spark reads"
    decide(job, coordinator, drain)
    assert memory.told == 2
    memory.epoch = 1
    plan(job, coordinator, 1, continues=drain)
    assert memory.told == 2


def test_an_end_that_was_written_over_before_it_was_planned_is_not_decided(job: Job, memory: Memory) -> None:
    coordinator = job.coordinator()
    planned = plan(job, coordinator, 0)
    memory.end = "more"
    with pytest.raises(errors.CheckpointChangedError, match=r"Spark reads up to \['more'\], now \['0'\]"):
        decide(job, coordinator, planned)
    assert [link.kind for link in job.disk.links[0]] == [LinkKind.ABORT]
    with pytest.raises(errors.CheckpointChangedError, match=r"Spark reads up to \['more'\]"):
        plan(job, job.coordinator(), 0)


def test_what_spark_says_of_another_epoch_or_cannot_say_is_no_reason_to_stop(
    job: Job, memory: Memory
) -> None:
    memory.epoch, memory.end = 5, "elsewhere"
    coordinator = job.coordinator()
    decide(job, coordinator, plan(job, coordinator, 0))
    job.span = lambda **_: None
    coordinator = job.coordinator()
    decide(job, coordinator, plan(job, coordinator, 1))
    assert job.disk.links[1][-1].kind is LinkKind.COMMIT
