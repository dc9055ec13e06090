"""Ending the jobs of a late epoch. Driver's Python, foreachBatch way; the other way has no hold of its jobs."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from onceonly.errors import EpochTimeoutError, find_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly.model import Plan


log = logging.getLogger("onceonly")

_AGAIN_S = 0.5
_INTERRUPT = "spark.job.interruptOnCancel"


class Jobs(Protocol):
    """What is used of a SparkContext, by Spark's names."""

    def addJobTag(self, tag: str) -> None: ...  # noqa: N802
    def removeJobTag(self, tag: str) -> None: ...  # noqa: N802
    def cancelJobsWithTag(self, tag: str) -> None: ...  # noqa: N802
    def getLocalProperty(self, key: str) -> str | None: ...  # noqa: N802
    def setLocalProperty(self, key: str, value: str) -> None: ...  # noqa: N802


@contextmanager
def no_longer_than_planned(jobs: Jobs | None, plan: Plan, *, query: str) -> Iterator[None]:
    """End the jobs of an epoch that are at work when its limit is over, and raise ``EpochTimeoutError``.

    They are known by a tag of their own, which the jobs get that this thread starts meanwhile: a job group is the
    user's, who may have put other jobs into it. A slot sees by itself that it is late, but only once it has begun: not
    while a stage before it stands still. Nobody does it where there is no hold of them, on Spark Connect (None).
    """
    if jobs is None or plan.limit_s is None:
        yield
        return
    tag = f"onceonly-{plan.id}"
    late = threading.Event()

    over = threading.Event()

    def end() -> None:
        if over.wait(plan.limit_s):
            return
        late.set()
        while True:
            try:
                jobs.cancelJobsWithTag(tag)
            except Exception as error:  # noqa: BLE001  whatever Spark answers: the next time may be better
                log.warning("Query %s, chk-%s: its jobs could not be ended yet: %s", query, plan.epoch, error)
            # Again and again: a late epoch's next job must not begin after the first has been ended.
            if over.wait(_AGAIN_S):
                return

    timer = threading.Thread(target=end, name="onceonly-limit", daemon=True)
    interrupts = jobs.getLocalProperty(_INTERRUPT)
    jobs.addJobTag(tag)
    jobs.setLocalProperty(
        _INTERRUPT, "true"
    )  # as Spark has it for streams; a job group of the user's may not
    timer.start()
    try:
        yield
    except Exception as error:
        if late.is_set() and find_error(error) is None:
            raise EpochTimeoutError(
                f"Query {query}, chk-{plan.epoch}: its tasks took longer than {plan.limit_s:g} s and were ended. "
                "Nothing of this try is decided.",
                next_step="Let the query start again, as a supervised one does: the epoch runs anew. If it is late "
                "every time, raise the epoch's time-out.",
            ) from error
        raise
    finally:
        jobs.setLocalProperty(_INTERRUPT, interrupts)  # type: ignore[arg-type]  # None takes it away
        jobs.removeJobTag(tag)
        over.set()
        # One that has just begun must not end the jobs of the epoch after.
        timer.join()
