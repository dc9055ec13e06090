"""Work beside: its result, its error, its thread."""

from __future__ import annotations

import os
import threading
from concurrent.futures import wait

import pytest

from onceonly import background
from onceonly_proof.conformance.world import wait_for


@pytest.fixture(autouse=True)
def _no_idle_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_idle", background._Idle())


def settled() -> None:
    """Wait until a thread that was begun here stands still."""
    assert wait_for(lambda: bool(background._idle.queues))


def test_what_work_gives_or_raises_comes_where_it_is_waited_for() -> None:
    assert background.begin("beside", divmod, 7, 2).result(10) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        background.begin("beside", divmod, 1, 0).result(10)


def test_one_thread_does_one_thing_after_the_other_under_the_name_of_each() -> None:
    seen: list[tuple[int, str]] = []

    def look() -> None:
        seen.append((threading.get_ident(), threading.current_thread().name))

    for name in ("beside-a", "beside-b", "beside-c"):
        background.begin(name, look).result(10)
        settled()
    assert len({ident for ident, _ in seen}) == 1
    assert [name for _, name in seen] == ["beside-a", "beside-b", "beside-c"]
    (thread,) = (each for each in threading.enumerate() if each.ident == seen[0][0])
    assert thread.daemon, "it keeps no process alive"


def test_what_waits_keeps_nothing_else_waiting() -> None:
    go_on = threading.Event()
    waiting = [background.begin("beside", go_on.wait, 10) for _ in range(40)]
    assert background.begin("beside", divmod, 7, 2).result(10) == (3, 1)
    go_on.set()
    assert not wait(waiting, 10).not_done


def test_of_many_threads_few_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_IDLE_MAX", 2)
    go_on = threading.Event()
    before = threading.active_count()
    waiting = [background.begin("beside", go_on.wait, 10) for _ in range(6)]
    go_on.set()
    wait(waiting, 10)
    assert wait_for(lambda: threading.active_count() == before + 2)
    assert len(background._idle.queues) == 2


def test_work_that_is_spread_comes_in_order_and_is_done_by_as_many_threads_as_it_may_have() -> None:
    together = threading.Barrier(3)
    seen: set[str] = set()

    def work(number: int) -> int:
        together.wait(10)  # fewer threads would stand still here, and more would break it
        seen.add(threading.current_thread().name)
        return number * number

    assert background.spread("beside", work, range(12), threads_max=3) == [each * each for each in range(12)]
    assert seen == {"beside", threading.current_thread().name}
    assert background.spread("beside", work, [], threads_max=3) == []


def test_after_an_error_no_thread_begins_another_item() -> None:
    begun: list[int] = []
    both, ours = threading.Barrier(2), threading.current_thread()

    def work(number: int) -> None:
        begun.append(number)
        both.wait(10)
        if threading.current_thread() is not ours:
            raise ZeroDivisionError
        settled()

    with pytest.raises(ZeroDivisionError):
        background.spread("beside", work, range(9), threads_max=2)
    assert sorted(begun) == [0, 1]


def test_an_error_is_raised_when_the_other_threads_are_done() -> None:
    together = threading.Barrier(2)
    go_on = threading.Event()
    done: list[int] = []

    def work(number: int) -> None:
        together.wait(10)
        if number == 0:
            threading.Timer(0.1, go_on.set).start()
            raise ZeroDivisionError
        assert go_on.wait(10)
        done.append(number)

    with pytest.raises(ZeroDivisionError):
        background.spread("beside", work, range(2), threads_max=2)
    assert done == [1]


# From Python 3.12 on, of a fork beside threads.
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_begins_with_threads_of_its_own() -> None:
    background.begin("beside", divmod, 7, 2).result(10)
    settled()
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(theirs, b"%d" % background.begin("beside", divmod, 9, 2).result(5)[0])
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as answered:
        assert answered.read() == b"4"
    os.waitpid(child, 0)
