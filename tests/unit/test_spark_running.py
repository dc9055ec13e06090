"""Whose run a foreachBatch function belongs to, by Spark's own list: a stand-in for Spark, no JVM."""

from __future__ import annotations

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest

import onceonly
from onceonly.coordinator.query import QueryCoordinator
from onceonly.errors import CheckpointChangedError, ConfigurationError
from onceonly.executor.kept import Kept
from onceonly.log import owners
from onceonly.settings.query import QuerySettings
from onceonly.settings.telemetry import TelemetrySettings
from onceonly.spark import epoch, kept_back, unused
from onceonly.spark.register import SESSION_CHECKPOINTS
from onceonly.spark.task import EPOCH_PROPERTY, QUERY_PROPERTY, RUN_PROPERTY
from onceonly.telemetry import watching

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

QUERY, RUN = "0b6ff6de-2b6d-4b2c-9d4e-0a3b2f1c4d5e", "run-of-the-query"


def frame(*, listed: bool, root: str = "") -> Any:  # noqa: ANN401  stands for a DataFrame
    """Return a frame whose user has set a job group of his own; ``root`` is where Spark has its checkpoint."""
    properties = {QUERY_PROPERTY: QUERY, EPOCH_PROPERTY: "0", RUN_PROPERTY: "mine"}
    df = MagicMock()
    df.sparkSession.sparkContext.getLocalProperty = properties.get
    stream = stream_of(df)
    stream.runId.return_value = RUN
    stream.resolvedCheckpointRoot.return_value = root
    if not listed:
        queries_of(df).get.side_effect = AttributeError("another version of Spark")
    return df


def queries_of(df: Any) -> Any:  # noqa: ANN401
    return df.sparkSession._jsparkSession.sharedState().activeStreamingQueries()


def stream_of(df: Any) -> Any:  # noqa: ANN401
    return queries_of(df).get.return_value


def checkpoint(folder: Path) -> str:
    (folder / "offsets").mkdir()
    (folder / "offsets" / "0").write_text("v1\n{}\n{}")
    (folder / "metadata").write_text(json.dumps({"id": QUERY}))
    return str(folder)


def test_the_run_is_that_of_the_query_whatever_job_group_its_user_sets(tmp_path: Path) -> None:
    assert epoch._belongs(frame(listed=True), 0, checkpoint(tmp_path)) == (QUERY, RUN)


def test_where_spark_does_not_list_the_query_its_job_group_must_do(tmp_path: Path) -> None:
    assert epoch._belongs(frame(listed=False), 0, checkpoint(tmp_path)) == (QUERY, "mine")


def test_a_function_decides_where_the_session_puts_the_querys_checkpoint() -> None:
    df = frame(listed=True, root="/checkpoints/orders")
    df.sparkSession.conf.get = {SESSION_CHECKPOINTS: "/checkpoints"}.get
    stream_of(df).name.return_value = "orders"
    assert onceonly.sink("onceonly.console")._by_session(df).checkpoint == "/checkpoints/orders"


def test_a_function_of_a_query_without_a_name_is_told_that_its_checkpoint_would_be_lost() -> None:
    df = frame(listed=True, root="/checkpoints/0b6ff6de")
    df.sparkSession.conf.get = {SESSION_CHECKPOINTS: "/checkpoints"}.get
    stream_of(df).name.return_value = None
    with pytest.raises(ConfigurationError, match="no name"):
        onceonly.sink("onceonly.console")._by_session(df)


def test_an_epoch_that_another_driver_has_gone_on_after_is_settled_by_a_restart(tmp_path: Path) -> None:
    location = checkpoint(tmp_path)
    (tmp_path / "offsets" / "13").write_text("v1\n{}\n{}")
    with pytest.raises(CheckpointChangedError, match="chk-13 by now: another driver") as caught:
        epoch._belongs(frame(listed=True), 0, location)
    assert caught.value.restartable


@pytest.mark.parametrize("root", ["s3a://bucket/chk", "viewfs://cluster/chk"])
def test_a_checkpoint_that_spark_has_on_another_store_is_named(tmp_path: Path, root: str) -> None:
    df = frame(listed=True, root=root)
    with pytest.raises(
        ConfigurationError, match=f"no streaming query .* {tmp_path}; Spark keeps the query's at {root}"
    ):
        epoch._belongs(df, 0, str(tmp_path))
    location = checkpoint(tmp_path)
    (tmp_path / "metadata").write_text(json.dumps({"id": "another"}))
    with pytest.raises(
        ConfigurationError, match=f"is that of query another.*; Spark keeps the query's at {root}"
    ):
        epoch._belongs(df, 0, location)


@pytest.mark.parametrize("listed", [True, False])
def test_where_spark_has_it_there_or_does_not_say_nothing_is_said_of_it(
    tmp_path: Path, *, listed: bool
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        epoch._belongs(frame(listed=listed, root=f"file:{tmp_path}"), 0, str(tmp_path))
    assert caught.value.what == f"no streaming query keeps its checkpoint at {tmp_path}"
    assert "onceonly.epoch by log=..." in caught.value.next_step, "an epoch has no checkpointLocation"


def test_an_epoch_without_a_log_is_told_what_it_is() -> None:
    with pytest.raises(ConfigurationError, match="was given no log") as caught:
        onceonly.epoch(frame(listed=True), 3)
    assert "log=checkpoint" in caught.value.next_step


@pytest.mark.parametrize(("noted", "first"), [(None, 13), (6, 7), (12, 13), (13, 13)])
def test_a_run_begins_where_spark_had_noted_epochs_to_though_its_function_passed_some_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noted: int | None, first: int
) -> None:
    location = checkpoint(tmp_path)
    monkeypatch.setattr(epoch, "_begun", {})
    monkeypatch.setattr(epoch, "_belongs", lambda *_: (QUERY, RUN))
    monkeypatch.setattr("onceonly.spark.epoch.noted_before", lambda _location: noted)
    for number in (13, 14):
        epoch.Epoch(frame(listed=True), number, QuerySettings(checkpoint=location))
        assert epoch._begun == {QUERY: (RUN, first)}


def test_metrics_that_a_run_before_asked_for_are_not_told_of_one_that_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = checkpoint(tmp_path)
    monkeypatch.setattr(epoch, "_begun", {})
    monkeypatch.setattr(watching, "_watching", watching._Watching())
    told = []
    for asked in (TelemetrySettings(file=str(tmp_path / "own.prom")), TelemetrySettings()):
        watching.began(location, QUERY, "orders")
        epoch.Epoch(frame(listed=True), 0, QuerySettings(checkpoint=location, telemetry=asked))
        told.append(len(watching._watching._of_file(str(tmp_path / "own.prom"))))
    assert told == [1, 0]


@pytest.mark.parametrize("within", [True, False], ids=["one block in another", "one after the other"])
@pytest.mark.parametrize("made_first", [True, False])
def test_of_two_blocks_of_one_call_the_second_is_refused_and_not_taken_for_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, within: bool, made_first: bool
) -> None:
    location, decided = checkpoint(tmp_path), MagicMock()
    monkeypatch.setattr(epoch, "_begun", {})
    monkeypatch.setattr(epoch, "_carried_out", {})
    monkeypatch.setattr(epoch, "QueryCoordinator", lambda *_, **__: decided)
    monkeypatch.setattr(epoch, "_coordinators", Kept(1))
    monkeypatch.setattr(epoch, "application", lambda _session: "application")
    decided.plan.return_value.limit_s = None

    def block() -> epoch.Epoch:
        return epoch.Epoch(frame(listed=True), 0, QuerySettings(checkpoint=location))

    made = [block(), block()] if made_first else []

    def opened() -> epoch.Epoch:
        return made.pop() if made else block()

    def write() -> None:
        if within:
            with opened(), opened():
                return
        with opened():
            pass
        with opened():
            pass

    with pytest.raises(ConfigurationError, match="already written in this call"):
        write()
    assert decided.decide.call_count == (0 if within else 1)
    assert not epoch._open


def by_no_guarantee(block: epoch.Epoch) -> None:
    block.write(frame(listed=True), onceonly.sink("onceonly.console", **{"onceonly.guarantee": "perfect"}))


def by_two_of_a_name(block: epoch.Epoch) -> None:
    block.write(frame(listed=True), onceonly.sink("onceonly.console"))


def by_another_checkpoint(block: epoch.Epoch) -> None:
    sink = onceonly.sink("onceonly.console", checkpointLocation="/elsewhere")
    block.write(frame(listed=True), sink, name="other")


def by_a_block_within(block: epoch.Epoch) -> None:
    with onceonly.epoch(frame(listed=True), 0, log=block._settings.checkpoint):
        pass


def by_a_handle(block: epoch.Epoch) -> None:
    onceonly.sink("onceonly.console", checkpointLocation=block._settings.checkpoint)(frame(listed=True), 0)


def in_a_thread(block: epoch.Epoch) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(by_two_of_a_name, block).result()


@pytest.mark.parametrize(
    "write",
    [by_no_guarantee, by_two_of_a_name, by_another_checkpoint, by_a_block_within, by_a_handle, in_a_thread],
)
def test_an_epoch_is_not_decided_without_a_write_whose_error_was_caught_in_its_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[epoch.Epoch], None]
) -> None:
    location, decided = checkpoint(tmp_path), MagicMock()
    for name in ("_begun", "_carried_out"):
        monkeypatch.setattr(epoch, name, {})
    monkeypatch.setattr(epoch, "QueryCoordinator", lambda *_, **__: decided)
    monkeypatch.setattr(epoch, "_coordinators", Kept(1))
    monkeypatch.setattr(epoch, "application", lambda _session: "application")
    monkeypatch.setattr(epoch, "run_tasks", lambda *_: [])
    decided.plan.return_value.limit_s = None
    caught: list[Exception] = []

    def block(*, fails: bool) -> None:
        with onceonly.epoch(frame(listed=True), 0, log=location) as opened:
            opened.write(frame(listed=True), onceonly.sink("onceonly.console"))
            if fails:
                try:
                    write(opened)
                except ConfigurationError as error:
                    caught.append(error)

    with pytest.raises(ConfigurationError) as raised:
        block(fails=True)
    assert caught == [raised.value]
    assert not decided.plan.called
    block(fails=False)
    assert decided.decide.call_count == 1


def test_what_fails_before_a_block_or_outside_of_one_is_not_kept_back(tmp_path: Path) -> None:
    location = checkpoint(tmp_path)

    def wrong_option(df: Any, number: int) -> None:  # noqa: ANN401  stands for a DataFrame
        onceonly.epoch(df, number, log=location, replay="never")

    def outside(df: Any, number: int) -> None:  # noqa: ANN401  as above
        onceonly.epoch(df, number, log=location).write(df, onceonly.sink("onceonly.console"))

    def unpersisted(df: Any, number: int) -> None:  # noqa: ANN401  as above
        df.storageLevel.useMemory = df.storageLevel.useDisk = False
        df.persist.side_effect = ConfigurationError("it cannot be persisted", next_step="")
        with onceonly.epoch(df, number, log=location):
            pass

    for function, said in (
        (wrong_option, "never"), (outside, "outside its block"), (unpersisted, "it cannot be persisted")
    ):  # fmt: skip

        def catches(df: Any, number: int, function: Any = function) -> None:  # noqa: ANN401  as above
            with contextlib.suppress(ConfigurationError):
                function(df, number)

        with pytest.raises(ConfigurationError, match=said):
            kept_back.guarded(catches)(frame(listed=True), 0)


def test_an_epoch_that_a_thread_tries_to_write_and_nobody_waits_for_fails_its_function(
    tmp_path: Path,
) -> None:
    location = checkpoint(tmp_path)
    elsewhere = frame(listed=True)
    elsewhere.sparkSession.sparkContext.getLocalProperty = {}.get  # a thread of the user's has no query

    def leaves(_df: object, number: int) -> None:
        with ThreadPoolExecutor() as threads:
            threads.submit(
                onceonly.epoch, elsewhere, number, log=location
            )  # its error is looked at by nobody

    with pytest.raises(ConfigurationError, match="the epoch that it has entered is not decided"):
        unused.watched(leaves)(frame(listed=True), 0)


def test_a_start_in_a_new_application_of_the_same_process_takes_over_from_one_that_took_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = checkpoint(tmp_path)
    (tmp_path / "commits").mkdir()
    settings = QuerySettings(checkpoint=location)
    for name in ("_begun", "_carried_out"):
        monkeypatch.setattr(epoch, name, {})
    monkeypatch.setattr(epoch, "_coordinators", Kept(1))

    def run(number: int, *, application: str, run: str) -> None:
        monkeypatch.setattr(epoch, "application", lambda _session: application)
        monkeypatch.setattr(epoch, "_belongs", lambda *_: (QUERY, run))
        epoch.Epoch(frame(listed=True), number, settings).carry_out()
        (tmp_path / "commits" / str(number)).write_text("v1\n{}")
        (tmp_path / "offsets" / str(number + 1)).write_text("v1\n{}\n{}")

    run(0, application="first", run="a")
    elsewhere = QueryCoordinator(settings, actor="driver", application="other")
    elsewhere.decide(elsewhere.plan(1, sinks=()), [])
    (tmp_path / "commits" / "1").write_text("v1\n{}")
    (tmp_path / "offsets" / "2").write_text("v1\n{}\n{}")
    run(2, application="second", run="b")
    run(3, application="second", run="b")
    assert owners(location) == ("first", "other", "second")
