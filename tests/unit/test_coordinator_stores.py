"""A query whose whole checkpoint is on a store of objects: planned, decided, restarted; and what that asks of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.unit.s3_double import BUCKET, Fault, S3Double, serve

from onceonly.checkpoint.batches import BatchCheckpoint
from onceonly.coordinator.query import QueryCoordinator
from onceonly.errors import CheckpointChangedError, ConfigurationError, SupersededError
from onceonly.log.opening import look
from onceonly.model import Mode
from onceonly.settings.query import QuerySettings, SinkSettings
from onceonly.settings.registry import remember
from onceonly.stores import opened
from onceonly.stores.access import Hadoop
from onceonly.stores.address import parse
from onceonly_proof.memory_sink import MemorySink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly.stores.port import RewritableStore

CHECKPOINT = f"s3a://{BUCKET}/chk"


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Double]:
    for each in serve(S3Double()):
        monkeypatch.setattr(opened, "_clients", {})
        monkeypatch.setattr(
            opened,
            "_told",
            Hadoop(
                {
                    "fs.s3a.endpoint": each.url,
                    "fs.s3a.path.style.access": "true",
                    "fs.s3a.access.key": "ak",
                    "fs.s3a.secret.key": "sksksk",
                }
            ),
        )
        yield each


@pytest.fixture
def spark(double: S3Double) -> RewritableStore:
    """Return Spark's side of the checkpoint, with an epoch in flight."""
    store = opened.open_store(parse(CHECKPOINT))
    store.replace("metadata", json.dumps({"id": "q"}).encode())
    barrier(store, 0)
    MemorySink.stores.clear()
    remember(MemorySink)
    return store


def barrier(store: RewritableStore, epoch: int) -> None:
    store.replace(f"offsets/{epoch}", f'v1\n{{}}\n{{"t":{{"0":{epoch}}}}}'.encode())


def started(application: str = "app") -> QueryCoordinator:
    made = QueryCoordinator(QuerySettings(checkpoint=CHECKPOINT), actor="driver", application=application)
    made.enlist(SinkSettings(name="memory"), MemorySink, ())
    return made


def run(coordinator: QueryCoordinator, spark: RewritableStore, epoch: int) -> None:
    coordinator.decide(coordinator.plan(epoch, run="r"), [])
    spark.replace(f"commits/{epoch}", b"v1\n{}")
    barrier(spark, epoch + 1)


def test_a_query_runs_and_goes_on_after_a_restart(spark: RewritableStore) -> None:
    coordinator = started()
    for epoch in range(3):
        run(coordinator, spark, epoch)
    again = started("other")
    assert again.plan(3, run="r2").mode is Mode.RUN
    log = look(CHECKPOINT)[0]
    assert log.epochs() == range(4)
    assert [log.receipt(epoch) is not None for epoch in range(3)] == [True] * 3


def test_a_decided_epoch_that_spark_did_not_note_is_drained(spark: RewritableStore) -> None:
    coordinator = started()
    coordinator.decide(coordinator.plan(0, run="r"), [])
    assert started("other").plan(0, run="r2").mode is Mode.DRAIN


def test_offsets_that_another_driver_has_written_over_are_restored_there(spark: RewritableStore) -> None:
    run(started(), spark, 0)
    as_decided = spark.get("offsets/0")
    spark.replace("offsets/0", b'v1\n{}\n{"t":{"0":77}}')
    with pytest.raises(CheckpointChangedError, match="offsets/0 is again as decided"):
        started("other").plan(1, run="r2")
    assert spark.get("offsets/0") == as_decided


def test_who_was_overtaken_stops(spark: RewritableStore) -> None:
    old, new = started(), started("other")
    plan = old.plan(0, run="r")
    run(new, spark, 0)
    with pytest.raises((SupersededError, CheckpointChangedError)):
        old.decide(plan, [])


def test_a_login_that_expires_between_plan_and_decision_stops_it_and_the_next_start_goes_on(
    double: S3Double, spark: RewritableStore
) -> None:
    coordinator = started()
    plan = coordinator.plan(0, run="r")
    double.fault("PUT", Fault(400, "ExpiredToken"))
    with pytest.raises(ConfigurationError, match="have expired"):
        coordinator.decide(plan, [])
    assert look(CHECKPOINT)[0].receipt(0) is None
    run(started("other"), spark, 0)
    assert look(CHECKPOINT)[0].receipt(0) is not None


def test_the_log_of_a_batch_may_be_there_too(double: S3Double) -> None:
    remember(MemorySink)
    location = f"{CHECKPOINT}/2026-11-01"
    for run_of, mode in (("a", Mode.RUN), ("b", Mode.DRAIN), ("a", Mode.DRAIN)):
        checkpoint = BatchCheckpoint.at(location, "2026-11-01", (("id", "bigint"),))
        checkpoint.begin()
        settings = QuerySettings(checkpoint=location)
        made = QueryCoordinator(
            settings, actor="driver", application=f"{run_of}{mode}", checkpoint=checkpoint
        )
        made.enlist(SinkSettings(name="memory"), MemorySink, ())
        plan = made.plan(0, run=run_of)
        assert plan.mode is mode
        made.decide(plan, [])
        assert checkpoint.committed() == {0}
    with pytest.raises(ConfigurationError, match="is the log of another query"):
        BatchCheckpoint.at(f"{location}/x", "x").begin()


def test_a_batch_that_is_done_looks_its_log_through_once_before_its_coordinator_does(
    double: S3Double,
) -> None:
    checkpoint = BatchCheckpoint.at(f"{CHECKPOINT}/day", "day", (("id", "bigint"),))
    checkpoint.begin()
    asked: list[list[str]] = []
    for call in (lambda: look(checkpoint.location), checkpoint.begin, checkpoint.query):
        double.requests.clear()
        call()
        asked.append([method for method, _ in double.requests])
    once, began, named = (each.count("LIST") for each in asked)
    assert (began, named) == (once, 0)
