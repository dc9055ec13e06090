"""Work in threads of its own, for a process that may end before it. Any process.

A thread that is done waits for more: to start one takes up to 1 ms of an epoch in a process that has just stood still
(measured), and to wake one takes a tenth of that.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from concurrent.futures import ALL_COMPLETED, FIRST_EXCEPTION, Future, wait
from math import ceil
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

T = TypeVar("T")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")
Item = TypeVar("Item")

_IDLE = "onceonly-idle"
# More than wait at any time, but where very many commit at once.
_IDLE_MAX = 32
_SLICES, _SLICE_S = 8, 1.0


class _Idle:
    """The threads that wait for work, by their queues. None survives a fork."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.queues: list[SimpleQueue[tuple[str, Callable[[], None]]]] = []


_idle = _Idle()


def _forget() -> None:
    global _idle  # noqa: PLW0603  a lock that another thread held would never be free in the child
    _idle = _Idle()


os.register_at_fork(after_in_child=_forget)


def begin(name: str, work: Callable[..., T], *arguments: object) -> Future[T]:
    """Begin ``work`` in a thread called ``name``; what it gives or raises comes where it is waited for.

    It cannot be cancelled.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work(*arguments))
        except BaseException as error:  # noqa: BLE001  it is raised where it is waited for
            future.set_exception(error)

    idle = _idle
    with idle.lock:
        queue = idle.queues.pop() if idle.queues else None
    if queue is None:
        queue = SimpleQueue()
        # A daemon: it must not keep a process alive that Spark wants gone.
        threading.Thread(target=_serve, args=(idle, queue), name=_IDLE, daemon=True).start()
    queue.put((name, run))
    return future


def wait_awake(
    answers: Collection[Future[Any]], within_s: float, *, return_when: str = ALL_COMPLETED
) -> None:
    """Wait for answers as ``concurrent.futures.wait`` does, while this process is awake.

    One that was stopped (SIGSTOP, a container that is frozen) finds every deadline over when it wakes up, though who is
    to answer stood still with it. So it is waited in slices, of which a pause costs one.
    """
    slice_s = min(within_s / _SLICES, _SLICE_S)
    for _ in range(ceil(within_s / slice_s) if within_s > 0 else 0):
        if not wait(answers, slice_s, return_when=return_when).not_done:
            return
        if return_when == FIRST_EXCEPTION and any(each.done() and each.exception() for each in answers):
            return


def spread(name: str, work: Callable[[Item], T], items: Sequence[Item], *, threads_max: int) -> list[T]:
    """Do the work for each item, in this thread and as many others as there is work for; return what came, in order.

    Returns when every thread is done. What one raises is raised then, and none begins another item after it.
    """
    found: dict[int, T] = {}
    left = deque(enumerate(items))

    def share() -> None:
        while left:
            try:
                place, item = left.popleft()
            except IndexError:  # another thread was quicker
                return
            try:
                found[place] = work(item)
            except BaseException:  # an interrupt, too
                left.clear()
                raise

    others: list[Future[None]] = []
    try:
        others += (begin(name, share) for _ in items[1:threads_max])
        share()
    finally:
        wait(others)
    for other in others:
        other.result()
    return [found[place] for place in range(len(items))]


@overload
def at_once(abreast: int, one: Callable[[], T], two: Callable[[], T2], /) -> tuple[T, T2]: ...
@overload
def at_once(
    abreast: int, one: Callable[[], T], two: Callable[[], T2], three: Callable[[], T3], /
) -> tuple[T, T2, T3]: ...
@overload
def at_once(
    abreast: int,
    one: Callable[[], T],
    two: Callable[[], T2],
    three: Callable[[], T3],
    four: Callable[[], T4],
    five: Callable[[], T5],
    /,
) -> tuple[T, T2, T3, T4, T5]: ...
def at_once(abreast: int, *calls: Callable[[], Any]) -> tuple[Any, ...]:
    """Make a few calls that need nothing of one another; return what came, in order.

    Each has a thread of its own, this one among them; where ``abreast`` is 1, they are made here, one after the other.
    Returns when all are done, and raises what the first of them has raised.
    """
    if abreast == 1:
        return tuple(call() for call in calls)
    others = [begin("onceonly-read", call) for call in calls[1:]]
    try:
        first = calls[0]()
    finally:
        wait(others)
    return (first, *(other.result() for other in others))


def _serve(idle: _Idle, queue: SimpleQueue[tuple[str, Callable[[], None]]]) -> None:
    thread = threading.current_thread()
    while True:
        thread.name, run = queue.get()
        run()
        del run  # and with it what it gave
        thread.name = _IDLE
        with idle.lock:
            if len(idle.queues) >= _IDLE_MAX:
                return
            idle.queues.append(queue)
