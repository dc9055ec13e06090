"""A function for ``foreachBatch`` on Spark Connect: it knows for which query it is called, or it writes nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest
from pyspark.serializers import CloudPickleSerializer

import onceonly
from onceonly.errors import CheckpointChangedError, ConfigurationError, SetupError, StoppedError
from onceonly.executor.kept import Kept
from onceonly.log.runs import Run
from onceonly.log.stops import Stop
from onceonly.model import Stamp
from onceonly.spark import beside, called, connect, epoch, guarding, kept_back
from onceonly.stores.access import Hadoop

if TYPE_CHECKING:
    from pathlib import Path


def session(*runs: tuple[str, str]) -> Any:  # noqa: ANN401  it is none
    made = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    made.session_id = "s"
    made.conf = SimpleNamespace(get=lambda _name, default=None: default, getAll={})
    made.streams = SimpleNamespace(active=[SimpleNamespace(id=query, runId=run) for query, run in runs])
    return made


def frame(*runs: tuple[str, str]) -> Any:  # noqa: ANN401  stands for a DataFrame
    made = MagicMock()
    made.sparkSession = session(*runs)
    return made


def checkpoint(folder: Path, query: str = "q", newest: int = 0) -> str:
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": query}))
    for number in range(newest + 1):
        (folder / "offsets" / str(number)).write_text('v1\n{}\n{"t":{"0":1}}')
    return str(folder)


@dataclass
class Decided:
    """What came of an epoch that was carried out, without Spark."""

    coordinator: MagicMock
    assigned: list[Any]


@pytest.fixture(autouse=True)
def _nobody_was_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(called, "_now", None)
    monkeypatch.setattr(kept_back, "_failed", {})
    for name in ("_begun", "_carried_out"):
        monkeypatch.setattr(epoch, name, {})
    monkeypatch.setattr(epoch, "_coordinators", Kept(1))


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> Decided:
    found = Decided(MagicMock(), [])
    found.coordinator.plan.return_value.limit_s = 5.0

    def run_tasks(_df: object, assigned: object) -> list[object]:
        found.assigned.append(assigned)
        return []

    monkeypatch.setattr(epoch, "QueryCoordinator", lambda *_, **__: found.coordinator)
    monkeypatch.setattr(epoch, "replace", lambda own, **changed: (own, changed))
    monkeypatch.setattr(epoch, "run_tasks", run_tasks)
    monkeypatch.setattr(beside, "requests", lambda _checkpoint: [])
    return found


def travelled(function: Any, location: str, **more: Any) -> called.Carried:  # noqa: ANN401
    """Send a function as the client does."""
    sent = called.Carried(function, checkpoint=location, mode="append", **more)
    travel: Any = CloudPickleSerializer()
    found: called.Carried = travel.loads(travel.dumps(sent))
    return found


def test_it_writes_the_epoch_that_it_is_called_for(tmp_path: Path, decided: Decided) -> None:
    location = checkpoint(tmp_path / "a", newest=3)
    function = travelled(onceonly.sink("onceonly.console", checkpointLocation=location), location)
    function(frame(("other", "x"), ("q", "run-1")), 3)
    assert decided.coordinator.plan.call_args.args == (3,)
    assert decided.coordinator.plan.call_args.kwargs["run"] == "run-1", "as Spark names it"
    assert decided.coordinator.decide.call_count == 1
    [(_, changed)] = decided.assigned
    assert changed == {"streams": False}, "its tasks are told of no query"


def test_what_it_has_let_go_by_itself_is_not_taken_for_what_was_noted_before_its_start(
    tmp_path: Path, decided: Decided
) -> None:
    """With adopt, what Spark noted before this start is taken over, and not what this start has left out."""
    location = checkpoint(tmp_path / "a", newest=4)

    def late(df: Any, batch_id: int) -> None:  # noqa: ANN401
        if batch_id == 4:
            with onceonly.epoch(df, batch_id, log=location, adopt=True):
                pass

    function = travelled(late, location)
    function(frame(), 3)
    function(frame(), 4)
    assert decided.coordinator.plan.call_args.kwargs["since"] == 3


def test_its_run_has_a_name_where_the_server_does_not_say(tmp_path: Path, decided: Decided) -> None:
    location = checkpoint(tmp_path / "a")
    sink = onceonly.sink("onceonly.console", checkpointLocation=location)
    runs = set()
    for _ in range(2):
        travelled(sink, location)(frame(), 0)
        runs.add(decided.coordinator.plan.call_args.kwargs["run"])
        epoch._carried_out.clear()
    assert "" not in runs
    assert len(runs) == 2, "each start is a run of its own"


@pytest.mark.parametrize("named", ["b", "nowhere"])
def test_a_function_that_names_another_querys_checkpoint_is_refused(
    tmp_path: Path, decided: Decided, named: str
) -> None:
    """Both queries are at the same epoch: its rows would be written as those of the other one."""
    mine = checkpoint(tmp_path / "a", "mine")
    checkpoint(tmp_path / "b", "other")
    there = str(tmp_path / named)
    function = travelled(onceonly.sink("onceonly.console", checkpointLocation=there), mine)
    with pytest.raises(ConfigurationError, match=f"Spark keeps the query's at {mine}") as caught:
        function(frame(), 0)
    assert "same checkpointLocation" in caught.value.next_step
    assert not decided.coordinator.plan.called


def test_an_epoch_that_another_driver_has_gone_on_from_is_not_written(
    tmp_path: Path, decided: Decided
) -> None:
    location = checkpoint(tmp_path / "a", newest=5)
    function = travelled(onceonly.sink("onceonly.console", checkpointLocation=location), location)
    with pytest.raises(CheckpointChangedError, match="is at chk-5 by now"):
        function(frame(), 4)
    assert not decided.coordinator.plan.called


def test_what_is_not_called_by_a_query_that_was_told_of_is_refused_by_name(tmp_path: Path) -> None:
    location = checkpoint(tmp_path / "a")
    sink = onceonly.sink("onceonly.console", checkpointLocation=location)
    with pytest.raises(SetupError, match="nothing was told when it was started") as caught:
        sink(frame(), 0)
    assert "onceonly.register(spark) in the client" in caught.value.next_step
    with pytest.raises(SetupError, match="its writer names no checkpoint"):
        travelled(sink, "")(frame(), 0)


def test_an_error_that_a_function_keeps_back_is_raised_and_no_sink_is_left_alone(
    tmp_path: Path, decided: Decided
) -> None:
    location = checkpoint(tmp_path / "a")
    decided.coordinator.plan.side_effect = ConfigurationError("it cannot be planned", next_step="")

    def swallows(df: Any, number: int) -> None:  # noqa: ANN401
        try:
            with onceonly.epoch(df, number, log=location) as opened:
                opened.write(df, onceonly.sink("onceonly.console"))
        except ConfigurationError:
            pass

    def leaves_alone(df: Any, number: int) -> None:  # noqa: ANN401
        onceonly.sink("onceonly.console")

    df = frame()
    df.isEmpty.return_value = False
    with pytest.raises(ConfigurationError, match="it cannot be planned"):
        called.Carried(swallows, checkpoint=location, mode="append", guarded=guarding.guarded)(df, 0)
    with pytest.raises(ConfigurationError, match="gave it nothing to write"):
        called.Carried(leaves_alone, checkpoint=location, mode="append", guarded=guarding.guarded)(df, 0)


def test_a_query_that_was_asked_to_end_begins_no_further_epoch(
    tmp_path: Path, decided: Decided, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = checkpoint(tmp_path / "a")
    began = Stamp(at="2026-11-30T10:00:00.000Z", host="server", pid=7)
    asked = Stop(run="r", began=began, who="ann", stamp=began, because="an upgrade")
    monkeypatch.setattr(beside, "requests", lambda _checkpoint: [asked])
    decided.coordinator.settings.checkpoint = location
    function = travelled(onceonly.sink("onceonly.console", checkpointLocation=location), location)
    decided.coordinator.run_before.return_value = Run(run="r", began=began)
    with pytest.raises(StoppedError, match="an upgrade"):
        function(frame(), 0)
    assert not decided.coordinator.plan.called
    function(frame(), 0)
    assert decided.coordinator.decide.call_count == 1, "the run is over, and this is another"


def test_what_only_the_drivers_python_does_is_refused(tmp_path: Path, decided: Decided) -> None:
    location = checkpoint(tmp_path / "a")
    given = {"checkpointLocation": location, "onceonly.report": str(tmp_path / "report.html")}
    with pytest.raises(ConfigurationError, match=r"onceonly\.report"):
        travelled(onceonly.sink("onceonly.console", **given), location)(frame(), 0)
    assert not decided.coordinator.plan.called


def test_it_shows_no_secret_that_it_carries() -> None:
    hadoop = Hadoop({"fs.s3a.secret.key": "canary"})
    sink = onceonly.sink("onceonly.console", checkpointLocation="/c")
    assert "canary" not in repr(called.Carried(sink, checkpoint="/c", mode="append", hadoop=hadoop))


class Writer:
    """What is used of Spark Connect's."""

    def __init__(self, function: Any, **options: str) -> None:  # noqa: ANN401
        self._session = session()
        self._write_proto = SimpleNamespace(
            options=options, query_name="orders", output_mode="Update", HasField=lambda _name: True
        )
        self._onceonly_asked = {"foreachBatch": (function,)}


@pytest.mark.parametrize(
    ("options", "more", "told", "found"),
    [
        ({"checkpointLocation": "/a"}, {}, None, "/a"),
        ({}, {"checkpointLocation": "/b"}, None, "/b"),
        ({}, {}, "/all", "/all/orders"),
        ({}, {"queryName": "bills"}, "/all", "/all/bills"),
        ({}, {}, None, ""),
    ],
)
def test_the_client_tells_where_spark_keeps_the_checkpoint(
    options: dict[str, str], more: dict[str, str], told: str | None, found: str
) -> None:
    sent: list[called.Carried] = []
    start = connect._carrying(lambda *_, **__: "query", lambda _writer, carried: sent.append(carried))
    writer = Writer(print, **options)
    writer._session.conf.get = lambda _name, _default: told
    assert start(writer, **more) == start(writer, outputMode="Append", **more) == "query"
    assert [each.checkpoint for each in sent] == [found, found]
    assert [each.function for each in sent] == [print, print], (
        "as the user gave it, however often it is started"
    )
    assert [each.mode for each in sent] == ["update", "append"]
    assert sent[0].run != sent[1].run
