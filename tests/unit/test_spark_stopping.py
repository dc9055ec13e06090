"""A query that is asked to end is left alone until its epoch is over, and is not over for anybody before."""

from __future__ import annotations

import contextlib
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkContext
from pyspark.sql.streaming.query import StreamingQuery

from onceonly import events
from onceonly.errors import UnavailableError
from onceonly.log.runs import Run
from onceonly.log.stops import Stop, StopFiles
from onceonly.spark import stopping

if TYPE_CHECKING:
    from pathlib import Path

JVM = {stopping._STATES[0]: SimpleNamespace(**{"MODULE$": "over"})}


class Query:
    """Spark's, seen from Java: an epoch in flight for some looks, then idle; ends when stopped, or by itself."""

    def __init__(self, busy: int, *, ends_alone: bool = False) -> None:
        self.busy, self.ends_alone = busy, ends_alone
        self.marked: list[str] = []
        self.broken_off: bool | None = None
        self.is_alive = True

    def runId(self) -> Any:  # noqa: ANN401, N802  Spark's name
        return SimpleNamespace(toString=lambda: "run-1")

    def state(self) -> Any:  # noqa: ANN401
        return SimpleNamespace(set=self.marked.append)

    def queryExecutionThread(self) -> Any:  # noqa: ANN401, N802
        return SimpleNamespace(isAlive=lambda: self.is_alive)

    def status(self) -> Any:  # noqa: ANN401
        self.busy -= 1
        if self.ends_alone and self.busy <= 0:
            self.is_alive = False
        return SimpleNamespace(isTriggerActive=lambda: self.busy > 0)

    def stop(self) -> None:
        self.broken_off = self.busy > 0
        self.is_alive = False

    def end(self) -> list[str]:
        told: list[str] = []
        session: Any = SimpleNamespace(_jvm=SimpleNamespace(**JVM))
        stopping.end(self, session, lambda: told.append("noted"))
        return told


def test_an_idle_query_is_woken_and_a_busy_one_is_never_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "_POLL_S", 0.001)
    for busy in (0, 5):
        query = Query(busy)
        assert query.end() == ["noted"]
        assert (query.marked, query.broken_off) == ([], False)
    alone = Query(3, ends_alone=True)
    assert alone.end() == ["noted"]
    assert alone.broken_off is None


def test_a_busy_query_is_marked_where_an_epoch_is_about_to_be_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stopping, "_POLL_S", 0.001)
    stopping.deciding("run-1")  # nobody has asked for an end
    query = Query(10**9)
    thread = threading.Thread(target=query.end)
    thread.start()
    until = time.monotonic() + 10
    while not query.marked and time.monotonic() < until:
        stopping.deciding("another")
        stopping.deciding("run-1")
    query.is_alive = False
    thread.join(10)
    assert set(query.marked) == {"over"}
    assert query.broken_off is None


def test_it_is_active_until_its_last_epoch_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "_ending", {"run-1"})
    stopping.install()
    run = SimpleNamespace(toString=lambda: "run-1")
    java = SimpleNamespace(
        isActive=lambda: False, awaitTermination=lambda *_: True, runId=lambda: run, id=lambda: run
    )
    query: Any = StreamingQuery(java)
    assert query.isActive
    assert query.awaitTermination(0.2) is False
    threading.Timer(0.2, stopping._ending.clear).start()
    assert query.awaitTermination(30) is True
    assert not query.isActive


@pytest.mark.parametrize("fails", [False, True])
def test_who_waits_for_an_end_goes_on_when_all_is_done_that_is_done_then(fails: bool) -> None:  # noqa: FBT001
    stopping.install()
    run = SimpleNamespace(toString=lambda: "run-1")

    def ends(*_: object) -> bool:
        if fails:
            raise RuntimeError("failed")
        return True

    java = SimpleNamespace(isActive=lambda: False, awaitTermination=ends, runId=lambda: run, id=lambda: run)
    query: Any = StreamingQuery(java)
    running = SimpleNamespace(isActive=lambda: True)
    stopping.tells("run-1", java, lambda: True)
    stopping.tells("run-2", running, lambda: True)
    done: list[str] = []

    def tell() -> None:
        done.append("report")
        stopping.told("run-1")

    threading.Timer(0.3, tell).start()
    with pytest.raises(RuntimeError) if fails else contextlib.nullcontext():
        assert query.awaitTermination()
    assert done == ["report"]
    assert set(stopping._untold) == {"run-2"}
    stopping.told("run-2")


class Left:
    """A query that a program leaves running: its end is told a moment after it."""

    def __init__(self, run: str, *, told: bool = True, fails: bool = False) -> None:
        self.run, self.told, self.fails = run, told, fails
        self.is_active = True

    def isActive(self) -> bool:  # noqa: N802  Spark's name
        return self.is_active

    def stop(self) -> None:
        if self.fails:
            raise RuntimeError("the JVM is gone")
        self.is_active = False
        if self.told:
            threading.Timer(0.2, stopping.told, [self.run]).start()


def test_a_session_that_is_stopped_stops_what_is_ours_before_and_waits_until_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)  # what a stop leaves
    seen: list[tuple[bool, set[str]]] = []
    ours, foreign = Left("ours"), Left("foreign")
    java = SimpleNamespace(stop=lambda: seen.append((ours.is_active, set(stopping._untold))))
    context: Any = SimpleNamespace(_jsc=java)
    stopping.install()
    stopping.tells("ours", ours, lambda: True)
    stopping.tells("foreign", foreign, lambda: False)
    try:
        SparkContext.stop(context)
    finally:
        stopping.told("foreign")
    assert seen == [(False, {"foreign"})]
    assert foreign.is_active


@pytest.mark.parametrize("left", [Left("run", told=False), Left("run", fails=True)])
def test_a_program_ends_though_an_end_is_not_told_or_spark_is_gone(
    left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "_TOLD_S", 0.3)
    stopping.tells("run", left, lambda: True)
    began = time.monotonic()
    stopping.end_all()
    assert time.monotonic() - began < 5
    stopping.told("run")


def test_a_request_is_heard_by_its_own_run_alone_and_it_is_written_down_when(tmp_path: Path) -> None:
    stops = StopFiles(tmp_path)
    (tmp_path / "onceonly").mkdir()
    run = Run(run="one", began=events.stamp())
    other = Run(run="two", began=events.stamp())
    stops.put(Stop(run="one", began=run.began, who="ann", stamp=events.stamp()))
    over = threading.Event()
    threading.Timer(0.2, over.set).start()
    began = time.monotonic()
    assert not stopping.heard(stops, other, over, 0.01)
    assert time.monotonic() - began >= 0.1
    assert stopping.heard(stops, run, threading.Event(), 0.01)
    found = stops.of(run)
    assert found is not None
    assert found.seen


def test_a_request_is_heard_on_a_disk_that_takes_no_word_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stops = StopFiles(tmp_path)
    (tmp_path / "onceonly").mkdir()
    run = Run(run="one", began=events.stamp())
    stop = Stop(run="one", began=run.began, who="ann", stamp=events.stamp(), because="release B")
    stops.put(stop)

    def is_full(_stop: Stop) -> None:
        raise UnavailableError("no space left", next_step="make room")

    monkeypatch.setattr(stops, "put", is_full)
    over = threading.Event()
    timer = threading.Timer(5, over.set)
    timer.start()
    assert stopping.heard(stops, run, over, 0.01)
    timer.cancel()
    assert caplog.text.count(f"The {stop.sentence}; it ends after the epoch in flight.") == 1
