"""How many round trips to a distant store an epoch waits for, one after the other.

The goal: two before its tasks, two before its first commit, two after; six to open a log, ten to have taken over after
a kill, opened and all. Requests that are under way at the same time count once. One goal is missed by one trip: between
the put of a decision and its first commit it is looked whether its name was free because the epoch was folded long ago,
by a driver that overtook this one. Only a look after the put can tell, as this process may have stood still before it.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.unit.s3_double import BUCKET, S3Double, Trip, serve

from onceonly.executor.ballot import Ballot
from onceonly.executor.kept import Kept
from onceonly.log import FileDecisionLog
from onceonly.log.presence import Presence
from onceonly.model import Guarantee, Handle, Mode, Plan, Vote
from onceonly.ports import WriteContext
from onceonly.settings.query import QuerySettings, SinkSettings
from onceonly.settings.registry import remember
from onceonly.spark import writer
from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly.stores.address import parse
from onceonly_proof.memory_sink import MemorySink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onceonly.model import Outcome
    from onceonly.stores.port import RewritableStore

CHECKPOINT = f"s3a://{BUCKET}/chk"
LATENCY_S = 0.1


class NotingSink(MemorySink):
    """Notes when it was asked for a commit."""

    commits: list[float] = []  # noqa: RUF012  all of a test's

    def commit(self, handle: Handle) -> Outcome:
        self.commits.append(time.monotonic())
        return super().commit(handle)


class KilledError(BaseException):
    """The process is no more."""


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Double]:
    given = {"path.style.access": "true", "access.key": "ak", "secret.key": "sksksk"}
    for each in serve(S3Double(page=1000)):
        monkeypatch.setattr(opened, "_clients", {})
        told = Hadoop({f"fs.s3a.{name}": value for name, value in {**given, "endpoint": each.url}.items()})
        monkeypatch.setattr(opened, "_told", told)
        MemorySink.stores.clear()
        NotingSink.commits.clear()
        remember(NotingSink)
        monkeypatch.setattr(writer, "freeze", lambda: None)
        for name in ("_planning", "_committing"):
            monkeypatch.setattr(writer, name, Kept(4))
        # As the listener does for as long as the query runs: its heart beats beside it.
        present = Presence.hold(CHECKPOINT, actor="driver")
        yield each
        present.close()


@pytest.fixture
def spark(double: S3Double) -> RewritableStore:
    """Return Spark's side of the checkpoint, with an epoch in flight."""
    store = opened.open_store(parse(CHECKPOINT))
    store.replace("metadata", json.dumps({"id": "q"}).encode())
    write_offsets(store, 0)
    return store


def write_offsets(store: RewritableStore, epoch: int, end: str | None = None) -> None:
    store.replace(f"offsets/{epoch}", f"v1\n{{}}\n{end or json.dumps({'t': {'0': epoch}})}".encode())


def trips(double: S3Double, since: float = 0.0, until: float = float("inf")) -> list[Trip]:
    """Return the requests that came in a time, but for those of the heart, which beats beside the query."""
    return [each for each in double.trips if since <= each.came < until and "/heartbeats" not in each.about]


def rounds(found: list[Trip]) -> int:
    """Return the length of the longest chain of requests each of which came when the one before was answered."""
    count, answered = 0, 0.0
    for each in sorted(found, key=lambda each: each.answered):
        if each.came >= answered:
            count, answered = count + 1, each.answered
    return count


def task(plan: Plan, query: str) -> Ballot:
    """Write one slot, as an executor does."""
    sink = NotingSink({})
    context = WriteContext(
        query=query, sink="memory", run="r", epoch=plan.epoch, plan=plan.id, slot=0, attempt="0",
        guarantee=Guarantee.EXACTLY_ONCE,
    )  # fmt: skip
    handle = sink.pre_commit(sink.begin_transaction(context)) if plan.mode is not Mode.DRAIN else None
    return Ballot(
        vote=Vote(
            sink="memory", epoch=plan.epoch, slot=0, plan=plan.id, run="r", attempt="0", rows=1,
            checksum="xxh3:" + "0" * 16, handle=handle,
        )
    )  # fmt: skip


class Driver:
    """Spark on a store, in one process: by the format's two processes, or with its own Python."""

    def __init__(self, spark: RewritableStore, way: str, application: str = "app") -> None:
        self.spark = spark
        self.way = way
        settings, sink = QuerySettings(checkpoint=CHECKPOINT), SinkSettings(name="memory")
        # As from a classic session, though nobody answers there: else requests to end are listed, too.
        self.stream = writer.Stream(settings, sink, NotingSink, application, start="nobody.word")
        self.coordinator = self.stream.coordinator("driver", ()) if way == "driver" else None
        self.assigned: Plan | None = None

    def plan(self, epoch: int) -> None:
        if self.coordinator is not None:
            self.assigned = self.coordinator.plan(epoch, run="r")
            self.coordinator.assignment(self.assigned, "memory")
        else:
            self.assigned = writer.plan_epoch(self.stream, ())._assignment.plan

    def decide(self) -> None:
        assert self.assigned is not None
        plan, ballot = self.assigned, task(self.assigned, "q")
        if self.coordinator is not None:
            self.coordinator.decide(plan, [ballot])
        else:
            committer = writer.EpochCommitter(self.stream, ())
            committer.commit([writer.SlotMessage(ballot, plan, "q")], plan.epoch)

    def go_on(self, epoch: int, end: Callable[[int], str | None] = lambda _: None) -> None:
        """Note an epoch as Spark does, and write the offsets of the next."""
        self.spark.replace(f"commits/{epoch}", b"v1\n{}")
        write_offsets(self.spark, epoch + 1, end(epoch + 1))

    def run(self, upto: int) -> None:
        for epoch in range(upto):
            self.plan(epoch)
            self.decide()
            self.go_on(epoch)


def counted(driver: Driver, double: S3Double, epoch: int) -> tuple[int, int, int, Counter[str]]:
    """Run an epoch; count its rounds before its tasks, before its first commit, and after, and its requests by kind."""
    double.latency_s = LATENCY_S
    begun = time.monotonic()
    driver.plan(epoch)
    planned = time.monotonic()
    NotingSink.commits.clear()
    driver.decide()
    double.latency_s = 0.0
    (committed,) = NotingSink.commits
    parts = trips(double, begun, planned), trips(double, planned, committed), trips(double, committed)
    kinds = Counter(each.method for part in parts for each in part)
    before_tasks, before_commit, after = map(rounds, parts)
    return before_tasks, before_commit, after, kinds


def test_an_epoch_by_the_format_waits_for_few_round_trips(double: S3Double, spark: RewritableStore) -> None:
    driver = Driver(spark, "format")
    driver.run(3)
    *waits, kinds = counted(driver, double, 3)
    assert waits == [2, 3, 1]
    # As docs/how-to/checkpoints-on-stores.md says.
    assert kinds == {"GET": 8, "PUT": 2, "LIST": 2}


def test_an_epoch_in_the_drivers_python_waits_for_few_round_trips(
    double: S3Double, spark: RewritableStore
) -> None:
    driver = Driver(spark, "driver")
    driver.run(3)
    *waits, kinds = counted(driver, double, 3)
    # Query and epoch are looked up in one round before (onceonly.epoch).
    assert waits == [1, 3, 1]
    assert kinds == {"GET": 7, "PUT": 2, "LIST": 1}


def test_an_epoch_of_a_file_source_waits_for_one_more_each_time_that_its_list_is_read(
    double: S3Double, spark: RewritableStore
) -> None:
    def listed(epoch: int) -> str:
        spark.replace(f"sources/0/{epoch}", f'v1\n{{"path":"/in/{epoch}","batchId":{epoch}}}'.encode())
        return f'{{"logOffset":{epoch}}}'

    write_offsets(spark, 0, listed(0))
    driver = Driver(spark, "format")
    for epoch in range(3):
        driver.plan(epoch)
        driver.decide()
        driver.go_on(epoch, listed)
    *waits, _ = counted(driver, double, 3)
    assert waits == [3, 4, 1]


def opened_in(double: S3Double, spark: RewritableStore, application: str) -> tuple[int, Driver]:
    """Open what is there as another driver; count the rounds."""
    double.trips.clear()
    double.latency_s = LATENCY_S
    driver = Driver(spark, "driver", application)
    return rounds(trips(double)), driver


def test_a_log_is_opened_in_few_round_trips(double: S3Double, spark: RewritableStore) -> None:
    """A log of up to 64 files; one more for each further 64, beyond the first 128."""
    new, driver = opened_in(double, spark, "app")
    double.latency_s = 0.0
    driver.run(8)
    again, _ = opened_in(double, spark, "other")
    assert (new, again) == (6, 5)


def killed_in_its_tasks(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    assert driver.assigned is not None
    task(driver.assigned, "q")


def killed_behind_its_link(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(FileDecisionLog, "put_receipt", kill)
        with pytest.raises(KilledError):
            driver.decide()


def killed_behind_its_receipt(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.decide()


@pytest.mark.parametrize(
    ("kill", "mode", "most"),
    [
        (killed_in_its_tasks, Mode.RUN, 9),
        (killed_behind_its_link, Mode.DRAIN, 10),
        (killed_behind_its_receipt, Mode.DRAIN, 9),
    ],
)
def test_who_takes_over_after_a_kill_waits_for_few_round_trips(
    double: S3Double,
    spark: RewritableStore,
    monkeypatch: pytest.MonkeyPatch,
    kill: Callable[[Driver, pytest.MonkeyPatch], None],
    mode: Mode,
    most: int,
) -> None:
    killed = Driver(spark, "driver")
    killed.run(3)
    killed.plan(3)
    kill(killed, monkeypatch)
    _, driver = opened_in(double, spark, "other")
    driver.plan(3)
    assert driver.assigned is not None
    assert driver.assigned.mode is mode
    assert rounds(trips(double)) == most
