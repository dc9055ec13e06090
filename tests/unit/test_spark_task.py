"""What a task sees to before it writes a row: its epoch, its query, and the shared checkpoint."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from onceonly.coordinator.query import Assignment
from onceonly.errors import (
    CheckpointChangedError,
    ConfigurationError,
    LogError,
    OnceonlyError,
    ProtocolError,
    SupersededError,
)
from onceonly.log import identity_token, open_log
from onceonly.model import Guarantee, Link, LinkKind, Mode, Plan, Receipt, Visible
from onceonly.settings.query import SinkSettings
from onceonly.settings.registry import find
from onceonly.spark import task
from onceonly.stores import opened
from onceonly.stores.access import Hadoop

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


def test_a_worker_that_serves_two_sessions_in_turn_reaches_stores_as_each_of_them_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: Context("5", "q"))
    monkeypatch.setattr(opened, "_told", Hadoop())
    made = {}
    for name in ("one", "two"):
        open_log(str(tmp_path / name), query="q", create=True)
        own = assignment(tmp_path / name, identity_token(str(tmp_path / name)))
        made[name] = replace(own, hadoop=Hadoop({"fs.s3a.access.key": name}))
    for name in ("one", "two", "one"):
        task.write_slot(made[name], [])
        assert opened.told().get("fs.s3a.access.key") == name


def test_a_task_of_a_batch_is_told_no_epoch_and_whatever_query_it_runs_beside_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_log(str(tmp_path), query="q", create=True)
    made = replace(assignment(tmp_path, identity_token(str(tmp_path))), streams=False, run="mine")
    for epoch, query in (("", ""), ("17", "another")):
        context = Context(epoch, query)
        monkeypatch.setattr("pyspark.TaskContext.get", lambda context=context: context)
        assert task.write_slot(made, []).vote.run == "mine"


@pytest.mark.parametrize(
    ("put_by", "kind"),
    [
        ((), LogError),
        ((("mine", 5, 0),), LogError),
        ((("other", 4, 0), ("mine", 5, 0)), LogError),
        ((("mine", 4, 0), ("other", 5, 0)), SupersededError),
        ((("other", 5, 0), ("other", 6, 0)), SupersededError),
        ((("operator-x", 5, 0),), SupersededError),
    ],
    ids=["an older checkpoint", "our own", "before us", "took this one", "went on", "an operator"],
)
def test_a_target_that_is_ahead_is_told_from_a_newer_run_by_the_log(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    put_by: tuple[tuple[str, int, int], ...],
    kind: type[OnceonlyError],
) -> None:
    """The sink sees only that its target has a later epoch, and a restored checkpoint would look the same to it."""
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: Context("5", "q"))
    log = open_log(str(tmp_path), query="q", create=True)
    for application, epoch, index in put_by:
        log.put_link(
            Link(
                epoch=epoch,
                index=index,
                kind=LinkKind.COMMIT,
                plan=f"{application}.1",
                run="r",
                guarantee=Guarantee.AT_LEAST_ONCE,
                barrier=(),
            )
        )
        log.put_receipt(Receipt(epoch=epoch, index=index, plan=f"{application}.1"))

    def ahead(*_: object) -> None:
        raise LogError("the target has a later epoch", next_step="restore the newest checkpoint")

    monkeypatch.setattr(task, "in_time", ahead)
    made = assignment(tmp_path, identity_token(str(tmp_path)))
    with pytest.raises(kind) as caught:
        task.write_slot(replace(made, plan=replace(made.plan, id="mine.7")), [])
    assert type(caught.value) is kind
    if kind is SupersededError:
        assert "has taken the checkpoint over" in caught.value.what
        assert ("operator" in caught.value.what) is (put_by[0][0] == "operator-x")
