"""What the client of Spark Connect asks its server for beside a query, and how a query that is to end does."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from decided_query import DecidedQuery
from tests.unit.operator_bench import QueryCoordinator

from onceonly.errors import StoppedError
from onceonly.guards.lag import Keeper
from onceonly.log.opening import look
from onceonly.log.runs import Run, RunFiles
from onceonly.log.stops import Stop, StopFiles
from onceonly.model import Stamp
from onceonly.settings.query import QuerySettings, SinkSettings
from onceonly.sinks.files import FilesSink
from onceonly.spark import beside, beside_format, writer
from onceonly.stores.access import Hadoop

if TYPE_CHECKING:
    from pathlib import Path

BEGAN = Stamp(at="2026-11-30T10:00:00.000Z", host="client", pid=7)
RUN = Run(run="r", began=BEGAN, spark="4.2.0")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    query = QueryCoordinator(tmp_path / "cp")
    query.complete(0)
    return query.path


def asking(path: Path, run: str = "r", minute: int = 1) -> Stop:
    at = f"2026-11-30T10:{minute:02}:00.000Z"
    stop = Stop(run=run, began=BEGAN, who="ann", stamp=Stamp(at=at, host="desk"), because="an upgrade")
    StopFiles(path).put(stop)
    return stop


def question(path: Path, **more: str) -> dict[str, str]:
    run = msgspec.json.encode(RUN).decode()
    return {"checkpointlocation": str(path), "query": "q", "run": run, **more}


# --- the server's Python -----------------------------------------------------------------------------------


def test_the_server_tells_of_a_request_for_this_run_and_notes_that_it_was_seen(path: Path) -> None:
    asking(path, run="another")
    assert beside.answer(question(path))["asked"] == ""
    stop = asking(path)
    assert beside.answer(question(path))["asked"] == stop.sentence
    assert {each.run: bool(each.seen) for each in StopFiles(path).newest()} == {"another": False, "r": True}
    assert RunFiles(path).newest() == [], "it lives"
    beside.answer(question(path, over="1"))
    beside.answer(question(path, over="1"))
    [noted] = RunFiles(path).newest()
    assert (noted.run, noted.began, bool(noted.ended), noted.spark) == ("r", BEGAN, True, "4.2.0")


def test_the_answer_is_the_name_of_a_column_however_the_request_is_worded(path: Path) -> None:
    StopFiles(path).put(Stop(run="r", began=BEGAN, who="ann", stamp=BEGAN, because="`a` \"b\" 'c', d:\n"))
    [field] = beside_format.make_format(Hadoop())(question(path)).schema().fields
    assert "because" in json.loads(field.name)["asked"]


def test_nothing_is_made_where_no_epoch_has_begun(tmp_path: Path) -> None:
    assert beside.answer(question(tmp_path / "none", over="1"))["asked"] == ""
    assert not (tmp_path / "none").exists()


def test_the_group_is_kept_by_the_server_which_tells_what_is_wrong_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = DecidedQuery(tmp_path / "chk")
    query.decide(0, {"t": {0: 1}})
    ends: list[Keeper] = []
    close = Keeper.close

    def closed(self: Keeper) -> None:
        ends.append(self)
        close(self)

    monkeypatch.setattr(Keeper, "close", closed)
    asked = question(query.checkpoint, **{"onceonly.lag.group": "g"}) | {"query": query.id}
    beside.answer(asked)
    told = beside.answer({**asked, "over": "1"})
    assert len(ends) == 1
    assert "sources" in told["lag"]
    assert "onceonly.source.format" in told["next"]


# --- the planner -------------------------------------------------------------------------------------------


def test_a_planner_begins_no_epoch_of_a_run_that_was_asked_to_end(path: Path) -> None:
    asking(path)
    for before in (None, Run(run="another", began=BEGAN)):
        beside.refuse_if_asked(beside.requests(str(path)), str(path), 1, before)
    with pytest.raises(StoppedError, match=r"asked to end .* by ann on desk, because 'an upgrade', .* chk-1"):
        beside.refuse_if_asked(beside.requests(str(path)), str(path), 1, RUN)
    [stop], [run] = StopFiles(path).newest(), RunFiles(path).newest()
    assert (bool(stop.seen), run.run, bool(run.ended)) == (True, "r", True)
    beside.refuse_if_asked(beside.requests(str(path)), str(path), 1, RUN)  # the next start goes on


@pytest.mark.parametrize(("start", "is_refused"), [("", True), (".word", True), ("address.word", False)])
def test_only_where_the_driver_hears_of_nothing_its_planner_does(
    tmp_path: Path, start: str, *, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = DecidedQuery(tmp_path / "chk")
    query.decide(0, {"t": {0: 1}})
    log = look(str(query.checkpoint))[0]
    link = log.chain(0)[-1]
    StopFiles(query.checkpoint).put(Stop(run=link.run, began=BEGAN, who="ann", stamp=BEGAN))
    (query.checkpoint / "offsets/1").write_text('v1\n{}\n{"t":{"0":2}}')
    monkeypatch.setattr(writer, "freeze", lambda: None)
    sink = SinkSettings(name="files", options={"path": str(tmp_path / "out")})
    stream = writer.Stream(
        QuerySettings(checkpoint=str(query.checkpoint)), sink, FilesSink, link.application, None, start
    )
    if is_refused:
        with pytest.raises(StoppedError):
            writer.plan_epoch(stream, (("n", "bigint"),))
        assert log.chain(1) == ()
    else:
        writer.plan_epoch(stream, (("n", "bigint"),))


# --- the client --------------------------------------------------------------------------------------------


class Session:
    """Its reads are questions, which it answers as the server's Python does."""

    is_stopped = False
    version = "4.2.0"

    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        self.conf = SimpleNamespace(get=lambda _name, default: default)

    @property
    def read(self) -> Session:
        self.given = {}
        return self

    def format(self, name: str) -> Session:
        assert name == beside.FORMAT
        return self

    def options(self, **given: str) -> Session:
        self.given |= given
        return self

    def option(self, name: str, text: str) -> Session:
        return self.options(**{name: text})

    def load(self) -> Any:  # noqa: ANN401  as much of a frame as is asked for
        return SimpleNamespace(schema=beside_format.make_format(Hadoop())(self.given).schema())


class Query:
    """A query on a server; ``busy`` is how many more looks find an epoch in flight."""

    id, name = "q", None
    runId = "r"  # noqa: N815  PySpark's

    def __init__(self, busy: int) -> None:
        self.busy, self.over = busy, False
        self._session = Session()

    @property
    def status(self) -> dict[str, bool]:
        self.busy -= 1
        return {"isTriggerActive": self.busy >= 0}

    def stop(self) -> None:
        assert self.busy < 0, "the epoch in flight was broken off"
        self.over = True


def test_the_client_stops_a_query_that_is_idle_and_has_its_end_written_down(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waits: list[float] = []

    def awaited(query: Query, seconds: float) -> bool:
        waits.append(seconds)
        return query.over

    monkeypatch.setattr(beside, "_await", awaited, raising=False)
    monkeypatch.setattr(beside, "_is_active", lambda query: not query.over, raising=False)
    query = Query(busy=3)
    asking(path)
    beside.watch(query, {"checkpointLocation": str(path), "topic": "t", "kafka.sasl.password": "sssh"})
    beside._watches["r"].result(20)
    assert query.over
    assert waits.count(beside.EVERY_S) == 2, "asked once, and then not before it was over"
    [run] = RunFiles(path).newest()
    assert (run.run, bool(run.ended)) == ("r", True)
    assert "topic" not in query._session.given
    assert "sssh" not in str(query._session.given)
    assert beside.told_to_end(query) == StopFiles(path).newest()[0].sentence
    assert "it ends after the epoch in flight" in caplog.text


def test_the_client_says_once_what_is_wrong_with_the_group(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told = iter(["Kafka is silent.", "Kafka is silent.", ""])
    monkeypatch.setattr(
        beside_format, "answer", lambda _given: {"asked": "", "lag": next(told), "next": "see to it"}
    )
    caplog.set_level(logging.INFO, "onceonly")
    watch = beside._Watch(Query(busy=0), {"onceonly.lag.group": "g"})
    for _ in range(3):
        watch._ask()
    assert caplog.text.count("the group g does not show its lag: Kafka is silent. Next: see to it.") == 1
    assert "the group g shows its lag again" in caplog.text
