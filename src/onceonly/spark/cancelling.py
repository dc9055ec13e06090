"""Ending the jobs of a late epoch. Driver's Python, foreachBatch road; the other road has no hold of its jobs."""

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


class Jobs(Protocol):
    """What is used of a SparkContext."""

    def cancelJobGroup(self, groupId: str) -> None: ...  # noqa: N802, N803  Spark's names


@contextmanager
def no_longer_than_planned(jobs: Jobs, plan: Plan, *, query: str, run: str) -> Iterator[None]:
    """End all jobs of a run that are at work when the epoch's limit is over, and raise ``EpochTimeoutError``.

    A slot sees by itself that it is late, but only once it has begun: not while a stage before it stands still.
    """
    if plan.limit_s is None or not run:
        yield
        return
    late = threading.Event()

    over = threading.Event()

    def end() -> None:
        if over.wait(plan.limit_s):
            return
        late.set()
        while True:
            try:
                jobs.cancelJobGroup(run)
            except Exception as error:  # noqa: BLE001  whatever Spark answers: the next time may be better
                log.warning("Query %s, chk-%s: its jobs could not be ended yet: %s", query, plan.epoch, error)
            # Again and again: a late epoch's next job must not begin after the first has been ended.
            if over.wait(_AGAIN_S):
                return

    timer = threading.Thread(target=end, name="onceonly-limit", daemon=True)
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
        over.set()
        # One that has just begun must not end the jobs of the epoch after.
        timer.join()
