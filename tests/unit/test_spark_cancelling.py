"""The jobs of a late epoch are ended, and that is what its error says; nobody else's are."""

from __future__ import annotations

import threading

import pytest

from onceonly.errors import EpochTimeoutError, WriteFailedError
from onceonly.model import Guarantee, Mode, Plan
from onceonly.spark.cancelling import no_longer_than_planned

BOUND_S = 20.0


class Jobs:
    """A SparkContext with one job that ends only when it is cancelled."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []
        self.tags: list[str] = []
        self.properties: dict[str, str | None] = {"spark.job.interruptOnCancel": "false"}
        self._ended = threading.Event()

    def addJobTag(self, tag: str) -> None:  # noqa: N802  Spark's names
        self.tags.append(tag)

    def removeJobTag(self, tag: str) -> None:  # noqa: N802
        self.tags.remove(tag)

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802
        return self.properties.get(key)

    def setLocalProperty(self, key: str, value: str | None) -> None:  # noqa: N802
        self.properties[key] = value

    def cancelJobsWithTag(self, tag: str) -> None:  # noqa: N802
        assert self.tags == [tag], "only what this thread starts meanwhile"
        assert self.properties["spark.job.interruptOnCancel"] == "true"
        self.cancelled.append(tag)
        self._ended.set()

    def run(self, error: Exception | None = None) -> None:
        assert self._ended.wait(BOUND_S)
        raise error or RuntimeError("Job 7 cancelled part of cancelled job group")


def plan(limit_s: float | None) -> Plan:
    return Plan(id="p", epoch=4, mode=Mode.RUN, index=0, guarantee=Guarantee.EXACTLY_ONCE, limit_s=limit_s)


def test_a_job_that_stands_still_is_ended_at_the_limit() -> None:
    jobs = Jobs()
    with (
        pytest.raises(EpochTimeoutError, match=r"Query q, chk-4: .* longer than 0.05 s") as caught,
        no_longer_than_planned(jobs, plan(0.05), query="q"),
    ):
        jobs.run()
    assert jobs.cancelled == ["onceonly-p"], "the epoch's own, and no job group of the user's"
    assert jobs.tags == []
    assert jobs.properties == {"spark.job.interruptOnCancel": "false"}, (
        "the user's jobs after it are as before"
    )
    assert "Job 7 cancelled" in str(caught.value.__cause__)


def test_what_a_slot_said_of_itself_is_kept() -> None:
    jobs, theirs = Jobs(), WriteFailedError("the disk is full", next_step="make room")
    with (
        pytest.raises(WriteFailedError, match="the disk is full"),
        no_longer_than_planned(jobs, plan(0.05), query="q"),
    ):
        jobs.run(theirs)


def test_an_error_in_time_is_not_called_late() -> None:
    jobs = Jobs()
    with (
        pytest.raises(RuntimeError, match="theirs"),
        no_longer_than_planned(jobs, plan(BOUND_S), query="q"),
    ):
        raise RuntimeError("theirs")
    assert jobs.cancelled == []


@pytest.mark.parametrize("limit_s", [None, BOUND_S])
def test_an_epoch_in_time_is_left_alone(limit_s: float | None) -> None:
    jobs, before = Jobs(), threading.active_count()
    with no_longer_than_planned(jobs, plan(limit_s), query="q"):
        pass
    assert jobs.cancelled == []
    assert threading.active_count() == before, "no timer outlives its epoch"


def test_the_job_that_follows_a_late_one_is_ended_too() -> None:
    class Later(Jobs):
        def cancelJobsWithTag(self, tag: str) -> None:  # noqa: N802
            self.cancelled.append(tag)
            if len(self.cancelled) == 1:
                raise RuntimeError("no job was there")
            self._ended.set()

    jobs = Later()
    with (
        pytest.raises(EpochTimeoutError),
        no_longer_than_planned(jobs, plan(0.05), query="q"),
    ):
        jobs.run()
    assert len(jobs.cancelled) >= 2
