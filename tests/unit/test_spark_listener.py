"""What is kept of Spark's reports: what an operator needs, and nothing of options or paths."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from onceonly import events
from onceonly.checkpoint.files import CheckpointFiles
from onceonly.errors import UnavailableError
from onceonly.log import heartbeat
from onceonly.log.presence import present
from onceonly.log.progress import OperatorReport, ProgressFiles, SourceReport
from onceonly.log.runs import Run, RunFiles
from onceonly.log.stored_progress import StoredProgress
from onceonly.model import Stamp
from onceonly.spark import listener as listener_module
from onceonly.spark import reporting, spans, stopping
from onceonly.spark.listener import _Listener, _Proxy, install, parse
from onceonly.telemetry import watching
from onceonly_proof.stores.memory import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

# Cut from a report of Spark 4.2.0.
REPORT: dict[str, Any] = {
    "id": "11111111-2222-3333-4444-555555555555",
    "runId": "851a9301-92a9-4197-aec1-b2485ed893c3",
    "timestamp": "2026-11-21T15:53:23.042Z",
    "batchId": 41,
    "numInputRows": 20,
    "durationMs": {"addBatch": 152, "triggerExecution": 190, "walCommit": 20},
    "stateOperators": [
        {
            "operatorName": "stateStoreSave", "numRowsTotal": 7, "numRowsUpdated": 6, "memoryUsedBytes": 3336,
            "customMetrics": {"stateOnCurrentVersionSizeBytes": 1712},
        }
    ],
    "sources": [
        {
            "description": "KafkaV2[Subscribe[secret-topic]]",
            "startOffset": {"t": {"0": 1}}, "endOffset": {"t": {"0": 21}}, "latestOffset": {"t": {"0": 30}},
            "numInputRows": 20,
        },
        {"description": "org.apache.spark.Files[file:/secret/path?password=hunter2]", "endOffset": "17"},
        {"description": None, "startOffset": None, "endOffset": None},
    ],
    "sink": {"description": "ForeachBatchSink"},
}  # fmt: skip


def test_a_report_is_kept_without_options_and_paths() -> None:
    found = parse(REPORT)
    assert (found.epoch, found.rows, found.duration_ms) == (41, 20, REPORT["durationMs"])
    assert found.sources == (
        SourceReport(
            name="KafkaV2", start='{"t":{"0":1}}', end='{"t":{"0":21}}', rows=20, latest='{"t":{"0":30}}'
        ),
        SourceReport(name="Files", end="17"),
        SourceReport(name="?"),
    )
    assert found.operators == (
        OperatorReport(
            name="stateStoreSave", rows_total=7, rows_updated=6, memory_bytes=3336,
            custom={"stateOnCurrentVersionSizeBytes": 1712},
        ),
    )  # fmt: skip
    assert "secret" not in repr(found)
    assert "hunter2" not in repr(found)


def test_what_a_report_lacks_is_left_out() -> None:
    assert parse({"batchId": 0, "stateOperators": None}).sources == ()


class Java:
    """Stands in for a JVM: any call gives itself, but for what is said otherwise."""

    def __init__(self, **said: Any) -> None:  # noqa: ANN401
        self._said = said

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return lambda *_: self._said.get(name, self)

    def toString(self) -> str:  # noqa: N802
        return str(REPORT["runId"])


class Session:
    """Stands in for a session whose query has its checkpoint at a place."""

    def __init__(self, location: str) -> None:
        self._jsparkSession = Java(resolvedCheckpointRoot=location, version="4.1.1")


def proxy(session: Session) -> _Proxy:
    return _Proxy(_Listener(session))  # type: ignore[arg-type]


def progress() -> Java:
    return Java(progress=Java(json=json.dumps(REPORT)), runId=Java())


def test_a_report_goes_into_a_checkpoint_that_has_our_log_only(tmp_path: Path) -> None:
    session = Session(f"file:{tmp_path}")
    spark = proxy(session)
    spark.onQueryStarted(Java())
    spark.onQueryProgress(progress())
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "onceonly").mkdir()
    (tmp_path / "onceonly/identity.json").touch()
    spark.onQueryProgress(progress())
    assert ProgressFiles(tmp_path).get(41) == parse(REPORT)
    spark.onQueryTerminated(Java(runId=Java()))


def test_a_run_is_noted_with_its_time_and_place_once_there_is_a_log(tmp_path: Path) -> None:
    session = Session(f"file:{tmp_path}")
    spark = proxy(session)
    before = datetime.now(UTC).replace(microsecond=0)
    spark.onQueryStarted(Java(name="orders"))
    (tmp_path / "onceonly").mkdir()
    (tmp_path / "onceonly/identity.json").touch()
    spark.onQueryProgress(progress())
    (run,) = RunFiles(tmp_path).newest()
    assert (run.run, run.began.host, run.began.pid, run.ended, run.name, run.spark) == (
        REPORT["runId"], socket.gethostname(), os.getpid(), "", "orders", "4.1.1",
    )  # fmt: skip
    assert before <= datetime.fromisoformat(run.began.at) <= datetime.now(UTC)
    spark.onQueryTerminated(Java(runId=Java()))
    (ended,) = RunFiles(tmp_path).newest()
    assert (ended.began, ended.ended >= run.began.at, ended.name) == (run.began, True, "orders")


def test_a_run_is_alive_in_its_first_epoch_once_its_log_is_asked_about(tmp_path: Path) -> None:
    session = Session(f"file:{tmp_path}")
    listener = _Listener(session)  # type: ignore[arg-type]
    _Proxy(listener).onQueryStarted(Java())
    spans.asked.append(listener.asked)
    try:
        (tmp_path / "onceonly").mkdir()
        (tmp_path / "onceonly/identity.json").touch()
        assert present(str(tmp_path)) is None
        spans.read("another query")
        assert present(str(tmp_path)) is None
        spans.read(REPORT["runId"])  # this JVM gives one name to all
        assert present(str(tmp_path)) == f"host {socket.gethostname()}, process {os.getpid()} (driver)"
    finally:
        spans.asked.remove(listener.asked)
    _Proxy(listener).onQueryTerminated(Java(runId=Java()))
    assert present(str(tmp_path)) is None


def test_on_a_store_reports_and_runs_are_kept_too_and_nobody_waits_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    for module in (listener_module, heartbeat):
        monkeypatch.setattr(module, "log_store", lambda _location: store)
    monkeypatch.setattr(listener_module, "files_of", lambda _location: CheckpointFiles(Above(store)))
    monkeypatch.setattr(heartbeat, "_hearts", {})
    session = Session("s3a://bucket/chk")
    spark = proxy(session)
    spark.onQueryStarted(Java())
    spark.onQueryProgress(progress())
    assert store.files == {}  # no log of ours
    store.files["identity.json"] = b""
    held = threading.Event()

    in_time: list[bool] = []

    def hold(operation: str, name: str) -> None:
        if operation == "replace":
            in_time.append(held.wait(10))

    store.hook = hold
    spark.onQueryProgress(progress())  # comes back, though no put does
    held.set()
    spark.onQueryTerminated(Java(runId=Java()))
    assert all(in_time)
    assert StoredProgress(store).get(41) == parse(REPORT)
    (run,) = RunFiles(store).newest()
    assert (run.run, run.ended >= run.began.at) == (REPORT["runId"], True)


class Above(MemoryStore):
    """A checkpoint whose log is in a store of its own."""

    def __init__(self, log: MemoryStore) -> None:
        super().__init__()
        self.log = log

    def get(self, name: str) -> bytes | None:
        return self.log.get(name.removeprefix("onceonly/"))


def test_a_store_that_is_away_fails_nobody_who_asks_about_a_query(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(operation: str, name: str) -> None:
        raise UnavailableError("gone", next_step="wait")

    store = MemoryStore(hook=away)
    monkeypatch.setattr(listener_module, "log_store", lambda _location: store)
    monkeypatch.setattr(listener_module, "files_of", lambda _location: CheckpointFiles(store))
    session = Session("s3a://bucket/chk")
    listener = _Listener(session)  # type: ignore[arg-type]
    _Proxy(listener).onQueryStarted(Java())
    listener.asked(str(REPORT["runId"]), deciding=False)


def test_a_run_is_marked_as_ended_before_a_decision_and_at_no_other_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(stopping, "deciding", told.append)
    session = Session(f"file:{tmp_path}")
    listener = _Listener(session)  # type: ignore[arg-type]
    _Proxy(listener).onQueryStarted(Java())
    for deciding in (False, False, True):
        assert told == []
        listener.asked(str(REPORT["runId"]), deciding=deciding)
    assert told == [REPORT["runId"]]


def test_a_disk_that_takes_no_more_takes_neither_metrics_nor_the_end_of_a_run_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    for module, name in (
        (watching, "reported"), (reporting, "ended"), (watching, "ended"), (stopping, "told")
    ):  # fmt: skip
        monkeypatch.setattr(module, name, lambda *_, name=name: told.append(name))
    session = Session(f"file:{tmp_path}")
    listener = _Listener(session)  # type: ignore[arg-type]
    spark = _Proxy(listener)
    spark.onQueryStarted(Java())
    (tmp_path / "onceonly").mkdir()
    (tmp_path / "onceonly/identity.json").touch()
    (tmp_path / "onceonly/progress").touch()  # nothing can be written into it
    spark.onQueryProgress(progress())
    assert told == ["reported"]

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    (watched,) = listener._runs.values()
    monkeypatch.setattr(type(watched), "is_ours", full)
    listener.asked(watched.query, deciding=True)
    spark.onQueryTerminated(Java(runId=Java()))
    assert told == ["reported", "ended", "ended", "told"]


def test_the_newest_hundred_runs_are_kept_and_a_damaged_report_is_for_nobody(tmp_path: Path) -> None:
    (tmp_path / "onceonly").mkdir()
    files = RunFiles(tmp_path)
    for number in range(103):
        files.put(Run(run=f"run-{number}", began=Stamp(at=f"2026-11-26T20:00:00.{number:03}Z")))
    folder = tmp_path / "onceonly/runs"
    assert len(list(folder.iterdir())) == 100
    max(folder.iterdir()).write_bytes(b"torn")
    assert [run.run for run in files.newest(3)] == ["run-101", "run-100"]


def test_a_report_is_in_the_event_log_with_the_time_that_spark_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONCEONLY_EVENTS", str(tmp_path / "events"))
    monkeypatch.setattr(events, "_writer", None)
    (tmp_path / "onceonly").mkdir()
    (tmp_path / "onceonly/identity.json").touch()
    session = Session(f"file:{tmp_path}")
    spark = proxy(session)
    spark.onQueryStarted(Java())
    spark.onQueryProgress(progress())
    spark.onQueryTerminated(Java(runId=Java()))

    (line,) = events.read(tmp_path / "events")
    assert (line["kind"], line["query"], line["epoch"]) == ("epoch.reported", REPORT["id"], 41)
    assert line["began"] == datetime.fromisoformat(str(REPORT["timestamp"])).timestamp()
    assert line["took_ms"] == REPORT["durationMs"]["triggerExecution"]


def test_no_failure_reaches_the_query(tmp_path: Path) -> None:
    session = Session("dbfs:/not-on-this-disk/checkpoint")
    spark = proxy(session)
    spark.onQueryStarted(Java())
    spark.onQueryProgress(progress())
    spark.onQueryProgress(Java(progress=Java(json="{")))
    spark.onQueryTerminated(Java(runId=Java()))
    install(object())  # type: ignore[arg-type]  # no session at all
