"""How an attempt at a slot is waited for no longer than its time. Executor.

Nothing can interrupt a thread that stands still in a library. So with a limit an attempt is made in a thread of its
own, and Spark's thread gives it up: the task fails, Spark ends the worker process, and what the attempt left open is
fenced by the sweep that follows. Should it wake up before its end, it sees that its time is over, and does not vote.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from onceonly.executor.slot import Deadline

T = TypeVar("T")
_Queue: TypeAlias = "SimpleQueue[tuple[Callable[[], Any], Future[Any]]]"


def in_time(deadline: Deadline, attempt: Callable[[], T]) -> T:
    """Make an attempt; give it up at its deadline, wherever it stands. Spark's thread, once an attempt.

    All attempts of a process are made by the same thread, as a sink may keep what belongs to one.
    """
    if deadline.limit_s is None:
        return attempt()
    done: Future[T] = Future()
    _thread_of_process().put((attempt, done))
    wait([done], deadline.limit_s)
    if not done.done():
        _abandon()
        raise deadline.error()
    return done.result()


_queue: tuple[int, _Queue] | None = None


def _thread_of_process() -> _Queue:
    global _queue  # noqa: PLW0603  one a process, made anew after a fork
    if _queue is None or _queue[0] != os.getpid():
        _queue = (os.getpid(), SimpleQueue())
        # A daemon: one that stands still must not keep a worker alive.
        threading.Thread(target=_work, args=(_queue[1],), name="onceonly-slot", daemon=True).start()
    return _queue[1]


def _abandon() -> None:
    global _queue  # noqa: PLW0603  see above
    _queue = None


def _work(queue: _Queue) -> None:
    while True:
        attempt, done = queue.get()
        try:
            done.set_result(attempt())
        except BaseException as error:  # noqa: BLE001  it is raised where the attempt is waited for
            done.set_exception(error)
        # What an attempt holds (its rows, its transaction) must not live until the next one.
        del attempt, done
