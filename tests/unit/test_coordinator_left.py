"""What a sink left open that the query has no more is ended at the start that leaves it out."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest
from tests.unit.test_coordinator_query import barrier

from onceonly.coordinator import left
from onceonly.coordinator.query import QueryCoordinator
from onceonly.model import Guarantee, Mode
from onceonly.ports import WriteContext
from onceonly.settings.query import QuerySettings, SinkSettings
from onceonly.settings.registry import BUILT_IN, remember
from onceonly.sinks.files import FilesSink
from onceonly_proof.memory_sink import MemorySink

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from onceonly.ports import Leftover, QueryContext
    from onceonly.settings.registry import SinkClass


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    MemorySink.stores.clear()
    remember(MemorySink)
    made = tmp_path / "checkpoint"
    for folder in ("offsets", "commits"):
        (made / folder).mkdir(parents=True)
    (made / "metadata").write_text(json.dumps({"id": "q"}))
    barrier(made, 0)
    return made


def started(checkpoint: Path, name: str, sink: SinkClass = MemorySink, **options: str) -> QueryCoordinator:
    made = QueryCoordinator(QuerySettings(checkpoint=str(checkpoint)), actor="driver", application="app")
    made.enlist(SinkSettings(name=name, options=options), sink, (("id", "bigint"),))
    return made


def context(coordinator: QueryCoordinator, sink: str) -> WriteContext:
    """An attempt that the process does not live to prepare."""
    plan = coordinator.plan(0, run="dead")
    return WriteContext(
        query="q", sink=sink, run="dead", epoch=0, plan=plan.id, slot=0, attempt="0",
        guarantee=Guarantee.EXACTLY_ONCE, mode=Mode.RUN, facts=plan.facts[sink],
    )  # fmt: skip


def test_a_sink_with_another_name_ends_what_it_left_under_the_former(checkpoint: Path) -> None:
    sink = MemorySink({"store": "s"})
    sink.begin_transaction(context(started(checkpoint, "former", store="s"), "former"))
    assert sink.store.pending()

    assert started(checkpoint, "renamed", store="s").plan(0, run="r").mode is Mode.RUN
    assert sink.store.pending() == []


def test_of_another_target_and_of_a_class_that_only_the_log_names_nothing_is_touched(
    checkpoint: Path,
) -> None:
    sink = MemorySink({"store": "s"})
    sink.begin_transaction(context(started(checkpoint, "former", store="s"), "former"))

    started(checkpoint, "other", store="another").plan(0, run="r")
    assert len(sink.store.pending()) == 1


def test_a_sink_of_ours_that_is_left_out_leaves_no_temporary_files(checkpoint: Path, tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "out"), "format": "json"}
    attempt = context(started(checkpoint, "former", BUILT_IN["files"], **options), "former")
    staged = FilesSink(options).begin_transaction(attempt).folder
    assert staged.is_dir()

    started(checkpoint, "memory", store="s").plan(0, run="r")
    assert not staged.exists()


def test_a_target_that_is_gone_keeps_no_query_from_its_start(
    checkpoint: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"path": str(tmp_path / "out"), "format": "json"}
    started(checkpoint, "former", BUILT_IN["files"], **options).plan(0, run="dead")
    monkeypatch.setitem(BUILT_IN, "files", "onceonly.sinks.nowhere:Sink")

    assert started(checkpoint, "memory", store="s").plan(0, run="r").mode is Mode.RUN
    assert "begins without its sink former" in caplog.text


def test_a_target_that_answers_late_is_let_go_by_then(
    checkpoint: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    MemorySink({"store": "s"}).begin_transaction(context(started(checkpoint, "former", store="s"), "former"))
    asked, answers, closed = MemorySink.recover, threading.Event(), threading.Event()

    def late(sink: MemorySink, about: QueryContext) -> Iterable[Leftover]:
        if about.sink == "former":
            answers.wait(30)
            monkeypatch.setattr(sink, "close", closed.set, raising=False)
        return asked(sink, about)

    monkeypatch.setattr(MemorySink, "recover", late)
    monkeypatch.setattr(left, "_WAIT_S", 0.05)
    assert started(checkpoint, "renamed", store="s").plan(0, run="r").mode is Mode.RUN
    assert "no answer within" in caplog.text
    answers.set()
    assert closed.wait(5)
