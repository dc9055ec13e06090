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
        self._ended = threading.Event()

    def cancelJobGroup(self, groupId: str) -> None:  # noqa: N802, N803  Spark's names
        self.cancelled.append(groupId)
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
        no_longer_than_planned(jobs, plan(0.05), query="q", run="r"),
    ):
        jobs.run()
    assert jobs.cancelled == ["r"]
    assert "Job 7 cancelled" in str(caught.value.__cause__)


def test_what_a_slot_said_of_itself_is_kept() -> None:
    jobs, theirs = Jobs(), WriteFailedError("the disk is full", next_step="make room")
    with (
        pytest.raises(WriteFailedError, match="the disk is full"),
        no_longer_than_planned(jobs, plan(0.05), query="q", run="r"),
    ):
        jobs.run(theirs)


def test_an_error_in_time_is_not_called_late() -> None:
    jobs = Jobs()
    with (
        pytest.raises(RuntimeError, match="theirs"),
        no_longer_than_planned(jobs, plan(BOUND_S), query="q", run="r"),
    ):
        raise RuntimeError("theirs")
    assert jobs.cancelled == []


@pytest.mark.parametrize("limit_s", [None, BOUND_S])
def test_an_epoch_in_time_is_left_alone(limit_s: float | None) -> None:
    jobs, before = Jobs(), threading.active_count()
    with no_longer_than_planned(jobs, plan(limit_s), query="q", run="r"):
        pass
    assert jobs.cancelled == []
    assert threading.active_count() == before, "no timer outlives its epoch"


def test_the_job_that_follows_a_late_one_is_ended_too() -> None:
    class Later(Jobs):
        def cancelJobGroup(self, groupId: str) -> None:  # noqa: N802, N803  Spark's names
            self.cancelled.append(groupId)
            if len(self.cancelled) == 1:
                raise RuntimeError("no job was there")
            self._ended.set()

    jobs = Later()
    with (
        pytest.raises(EpochTimeoutError),
        no_longer_than_planned(jobs, plan(0.05), query="q", run="r"),
    ):
        jobs.run()
    assert len(jobs.cancelled) >= 2
