"""What a task sees to before it writes a row: its epoch, its query, and the shared checkpoint."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from onceonly.coordinator.query import Assignment
from onceonly.errors import CheckpointChangedError, ConfigurationError, ProtocolError
from onceonly.log import identity_token, open_log
from onceonly.model import Guarantee, Mode, Plan, Visible
from onceonly.settings.query import SinkSettings
from onceonly.settings.registry import find
from onceonly.spark import task

if TYPE_CHECKING:
    from pathlib import Path


class Context:
    """Spark's TaskContext, as far as a slot looks at it."""

    def __init__(self, epoch: str, query: str) -> None:
        self.properties = {task.EPOCH_PROPERTY: epoch, task.QUERY_PROPERTY: query, task.RUN_PROPERTY: "r"}

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802  Spark's name
        return self.properties.get(name)

    def partitionId(self) -> int:  # noqa: N802  Spark's name
        return 3

    def taskAttemptId(self) -> int:  # noqa: N802  Spark's name
        return 17


def assignment(checkpoint: Path, token: str | None) -> Assignment:
    plan = Plan(id="p", epoch=5, mode=Mode.RUN, index=0, guarantee=Guarantee.AT_LEAST_ONCE)
    return Assignment(
        plan=plan,
        query="q",
        checkpoint=str(checkpoint),
        settings=SinkSettings(name="console", guarantee=Guarantee.AT_LEAST_ONCE),
        sink=find("onceonly.console")[1],
        token=token,
    )


@pytest.mark.parametrize(("epoch", "query"), [("", "q"), ("5", "another"), ("4", "another")])
def test_a_task_of_another_epoch_or_query_refuses_before_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epoch: str, query: str
) -> None:
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: Context(epoch, query))
    with pytest.raises(ProtocolError, match="it refused"):
        task.write_slot(assignment(tmp_path, None), [])


@pytest.mark.parametrize("epoch", ["4", "6"], ids=["gone on", "offsets taken away"])
def test_a_task_whose_offsets_another_driver_has_changed_refuses_and_a_restart_settles_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epoch: str
) -> None:
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: Context(epoch, "q"))
    with pytest.raises(CheckpointChangedError, match="another driver") as caught:
        task.write_slot(assignment(tmp_path, None), [])
    assert caught.value.restartable


@pytest.mark.parametrize("visible", Visible)
def test_a_sink_is_told_which_try_this_is_and_when_its_rows_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: Visible
) -> None:
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: Context("5", "q"))
    given = assignment(tmp_path, None)
    settings = replace(given.settings, guarantee=Guarantee.EXACTLY_ONCE, visible=visible)
    context = task._context(replace(given, plan=replace(given.plan, index=7), settings=settings))
    assert (context.index, context.early) == (7, visible is Visible.EARLY)


def test_an_executor_that_does_not_share_the_checkpoint_refuses_and_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: Context("5", "q"))
    open_log(str(tmp_path), query="q", create=True)
    with pytest.raises(ConfigurationError, match="does not share the checkpoint") as caught:
        task.write_slot(assignment(tmp_path, "the token that the driver sees"), [])
    assert str(tmp_path) in str(caught.value)

    vote = task.write_slot(assignment(tmp_path, identity_token(str(tmp_path))), []).vote
    assert (vote.slot, vote.attempt, vote.epoch, vote.rows) == (3, "17", 5, 0)


def test_a_task_of_a_batch_is_told_no_epoch_and_whatever_query_it_runs_beside_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_log(str(tmp_path), query="q", create=True)
    made = replace(assignment(tmp_path, identity_token(str(tmp_path))), streams=False, run="mine")
    for epoch, query in (("", ""), ("17", "another")):
        context = Context(epoch, query)
        monkeypatch.setattr("pyspark.TaskContext.get", lambda context=context: context)
        assert task.write_slot(made, []).vote.run == "mine"
