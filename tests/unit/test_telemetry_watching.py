"""What the driver tells of its queries: one endpoint, one file, no trouble to a query."""

from __future__ import annotations

import builtins
import importlib
import os
import re
import socket
import time
import urllib.request
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.operator_bench import QueryCoordinator

from onceonly import events
from onceonly.errors import ConfigurationError, SetupError, UnavailableError
from onceonly.model import Receipt, Stamp
from onceonly.savepoints import place as places
from onceonly.savepoints.manifest import Savepoint
from onceonly.settings.query import QuerySettings, parse
from onceonly.settings.savepoints import Keeping
from onceonly.settings.telemetry import TelemetrySettings
from onceonly.stores.opened import address_of
from onceonly.telemetry import watching
from onceonly.telemetry.following import Follower
from onceonly.telemetry.otlp import Tracer, tracer

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.telemetry.spans import Span

REPORT: dict[str, Any] = {
    "timestamp": "2026-03-01T12:00:00.000Z",
    "sources": [
        {
            "description": "KafkaV2[Subscribe[t]]",
            "endOffset": {"t": {"0": 5}},
            "latestOffset": {"t": {"0": 9}},
        }
    ],
    "durationMs": {"triggerExecution": 190, "of another version": 1},
    "stateOperators": [{"numRowsTotal": 7, "memoryUsedBytes": 3336}],
}


@pytest.fixture(autouse=True)
def _own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_watching", watching._Watching())


def settings(path: Path, **asked: Any) -> QuerySettings:  # noqa: ANN401  a field's
    return QuerySettings(checkpoint=str(path), telemetry=TelemetrySettings(**asked))


def scrape() -> str:
    with urllib.request.urlopen(watching.served_at(), timeout=20) as answer:  # noqa: S310  our own
        text: str = answer.read().decode()
    return text


def value(text: str, name: str, **labels: str) -> float | None:
    """Give the one sample of this name with these labels, None where there is none."""
    for line in text.splitlines():
        found = re.fullmatch(r"(\w+)\{(.*)\} (\S+)", line)
        if (
            found
            and found[1] == name
            and labels.items() <= dict(re.findall(r'(\w+)="([^"]*)"', found[2])).items()
        ):
            return float(found[3])
    return None


def test_queries_of_a_process_share_one_endpoint_and_each_is_told_by_its_name(tmp_path: Path) -> None:
    for name in ("orders", "clicks", "quiet"):
        query = QueryCoordinator(tmp_path / name)
        query.complete(0, 1)
        watching.ask(settings(query.path, port=None if name == "quiet" else 0))
        watching.began(str(query.path), "id", name)
        watching.reported(str(query.path), REPORT)
    text = scrape()
    for name in ("orders", "clicks"):
        assert value(text, "onceonly_epochs_total", query=name, outcome="committed") == 2
        assert value(text, "onceonly_lag_rows", query=name, source="0") == 4
        assert value(text, "onceonly_state_rows", query=name, operator="0") == 7
        assert value(text, "onceonly_running", query=name) == 1
        assert value(text, "onceonly_spark_phase_seconds", query=name, phase="triggerExecution") == 0.19
    assert "of another version" not in text
    assert "quiet" not in text
    watching.ended(str(tmp_path / "orders"))
    assert value(scrape(), "onceonly_running", query="orders") == 0


def test_a_run_that_follows_another_goes_on_counting(tmp_path: Path) -> None:
    query = QueryCoordinator(tmp_path / "cp")
    watching.ask(settings(query.path, port=0))
    for number, restarts in enumerate((0, 1, 2)):
        watching.began(str(query.path), "id", "orders")
        query.complete(number)
        text = scrape()
        assert value(text, "onceonly_rows_total", query="orders") == 6 * (number + 1)
        assert value(text, "onceonly_restarts_total", query="orders") == restarts
        watching.ended(str(query.path))


def test_a_name_that_a_living_query_has_is_not_given_twice(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        QueryCoordinator(tmp_path / folder).complete(0)
        watching.ask(settings(tmp_path / folder, port=0))
        watching.began(str(tmp_path / folder), f"id-{folder}", "orders")
    text = scrape()
    assert value(text, "onceonly_epoch", query="orders") == value(text, "onceonly_epoch", query="id-two") == 0


def test_the_newest_savepoint_of_the_query_itself_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(query: str, second: int) -> places.Standing:
        savepoint = Savepoint(
            name="s",
            query=query,
            log="l",
            home="h",
            epoch=1,
            made=Stamp(at=f"2026-03-01T12:00:{second:02d}.000Z"),
        )
        return places.Standing(address=address_of("/place/s"), query=query, savepoint=savepoint)

    def standing(place: str) -> list[places.Standing]:
        begun = places.Standing(address=address_of("/place/s"), query="id", savepoint=None)
        return [made("id", 5), made("id", 9), made("other", 30), begun] if place == "/place" else []

    query = QueryCoordinator(tmp_path / "cp")
    monkeypatch.setattr(places, "standing", standing)
    keeping = Keeping(every_s=3600.0, place="/place", keep=3)
    watching.ask(replace(settings(query.path, port=0), savepoints=keeping))
    watching.began(str(query.path), "id", "orders")
    text = scrape()
    assert value(text, "onceonly_savepoint_timestamp_seconds", query="orders") == 1_772_366_409.0
    assert value(text, "onceonly_savepoint_interval_seconds", query="orders") == 3600.0


def test_a_log_that_cannot_be_read_is_told_and_what_was_known_stays(tmp_path: Path) -> None:
    query = QueryCoordinator(tmp_path / "cp")
    watching.ask(settings(query.path, port=0))
    watching.began(str(query.path), "id", "orders")
    query.complete(0)
    assert value(scrape(), "onceonly_log_readable", query="orders") == 1
    query.complete(1)
    for receipt in query.path.glob("onceonly/receipts/*"):
        receipt.write_bytes(b"torn")
    text = scrape()
    assert value(text, "onceonly_log_readable", query="orders") == 0
    assert value(text, "onceonly_epochs_total", query="orders", outcome="committed") == 1


def test_a_store_that_hangs_holds_up_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = QueryCoordinator(tmp_path / "cp")
    watching.ask(settings(query.path, port=0))
    watching.began(str(query.path), "id", "orders")
    monkeypatch.setattr(watching, "_LOOK_S", 0.1)
    hangs = importlib.import_module("threading").Event()
    monkeypatch.setattr(Follower, "look", lambda _self: hangs.wait(30))
    try:
        assert value(scrape(), "onceonly_log_readable", query="orders") == 0
    finally:
        hangs.set()


def test_of_five_stores_that_hang_the_answer_waits_as_long_as_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prometheus waits ten seconds for an answer."""
    for number in range(5):
        query = QueryCoordinator(tmp_path / f"cp{number}")
        watching.ask(settings(query.path, port=0))
        watching.began(str(query.path), f"id{number}", f"q{number}")
    monkeypatch.setattr(watching, "_LOOK_S", 2.0)
    hangs = importlib.import_module("threading").Event()
    monkeypatch.setattr(Follower, "look", lambda _self: hangs.wait(60))
    try:
        began = time.monotonic()
        text = scrape()
        took = time.monotonic() - began
    finally:
        hangs.set()
    assert [value(text, "onceonly_log_readable", query=f"q{number}") for number in range(5)] == [0] * 5
    assert took < 8


def test_beside_a_store_that_hangs_another_one_is_looked_at_once_and_told_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("hangs", "orders"):
        query = QueryCoordinator(tmp_path / name)
        query.complete(0)
        watching.ask(settings(query.path, port=0))
        watching.began(str(query.path), name, name)
    monkeypatch.setattr(watching, "_LOOK_S", 2.0)
    hangs, look, looked = importlib.import_module("threading").Event(), Follower.look, list[str]()

    def slow(follower: Follower) -> None:
        looked.append(follower._location)
        if follower._location.endswith("hangs"):
            hangs.wait(60)
        look(follower)

    monkeypatch.setattr(Follower, "look", slow)
    try:
        text = scrape()
    finally:
        hangs.set()
    assert value(text, "onceonly_log_readable", query="hangs") == 0
    assert value(text, "onceonly_log_readable", query="orders") == 1
    assert len(looked) == 2


def test_a_port_of_another_and_another_port_are_refused_by_name(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"cannot be served at 127.0.0.1:{port}"):
            watching.ask(settings(tmp_path, port=port))
    watching.ask(settings(tmp_path, port=0))
    watching.ask(settings(tmp_path, port=0))
    with pytest.raises(ConfigurationError, match="this process serves them at"):
        watching.ask(settings(tmp_path, port=1))


def test_a_file_is_written_whole_at_the_end_of_a_run_and_of_the_process(tmp_path: Path) -> None:
    query = QueryCoordinator(tmp_path / "cp")
    file = tmp_path / "node" / "orders.prom"
    file.parent.mkdir()
    watching.ask(settings(query.path, file=str(file)))
    watching.began(str(query.path), "id", "orders")
    query.complete(0)
    watching.ended(str(query.path))
    query.complete(1)
    watching._watching.end()
    assert value(file.read_text(), "onceonly_epochs_total", query="orders", outcome="committed") == 2
    assert [path.name for path in file.parent.iterdir()] == ["orders.prom"]


def test_prometheus_own_parser_reads_the_file_and_so_may_another_user(tmp_path: Path) -> None:
    query = QueryCoordinator(tmp_path / "cp")
    file = tmp_path / "orders.prom"
    watching.ask(settings(query.path, file=str(file)))
    watching.began(str(query.path), "id", 'a "name"\\ of\ntwo lines')
    query.complete(0)
    watching.ended(str(query.path))
    watching._watching.end()
    families = {each.name: each for each in text_string_to_metric_families(file.read_text(encoding="utf-8"))}
    (epochs,) = (
        each for each in families["onceonly_epochs"].samples if each.labels["outcome"] == "committed"
    )
    assert (epochs.name, epochs.value, epochs.timestamp) == ("onceonly_epochs_total", 1, None)
    assert epochs.labels["query"] == 'a "name"\\ of\ntwo lines'
    assert families["onceonly_log_readable"].type == "gauge"
    # The collector runs as a user of its own, and takes no file with times in it.
    assert all(sample.timestamp is None for each in families.values() for sample in each.samples)
    umask = os.umask(0o022)
    os.umask(umask)
    assert file.stat().st_mode & 0o777 == 0o666 & ~umask


def test_the_end_of_a_run_is_in_the_file_however_short_ago_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[object] = []
    monkeypatch.setattr("onceonly.background.begin", lambda _name, work: begun.append(work))
    file = watching.MetricsFile(str(tmp_path / "orders.prom"), list)
    for every_s in (60, 60, 0):
        file.write(every_s=every_s)
    assert len(begun) == 2


def test_a_file_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    watching.ask(settings(tmp_path, file=str(tmp_path / "file" / "no.prom")))
    watching._watching.end()
    assert "could not be put" in caplog.text


@pytest.mark.parametrize(
    ("package", "asked", "extra"),
    [
        ("prometheus_client", {"port": 0}, "metrics"),
        ("prometheus_client", {"file": "/x.prom"}, "metrics"),
        ("opentelemetry.exporter.otlp.proto.http.trace_exporter", {"traces": "otlp"}, "traces"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    package: str, asked: dict[str, Any], extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.import_module

    def import_module(name: str, *more: Any) -> Any:  # noqa: ANN401  a module
        if name == package:
            raise builtins.ModuleNotFoundError(name)
        return real(name, *more)

    monkeypatch.setattr(importlib, "import_module", import_module)
    tracer.cache_clear()
    with pytest.raises(SetupError) as raised:
        watching.ask(settings(tmp_path, **asked))
    assert f"onceonly[{extra}]" in raised.value.next_step
    tracer.cache_clear()


# --------------------------------------------------------------------------------------------- options
def test_every_option_is_read() -> None:
    options = {
        "checkpointLocation": "/c", "onceonly.metrics.port": "9464", "onceonly.metrics.host": "192.0.2.7",
        "onceonly.metrics.file": "/m/orders.prom", "onceonly.traces": "OTLP",
    }  # fmt: skip
    found = parse(options, default_name="files").query
    assert found is not None
    assert found.telemetry == TelemetrySettings(
        port=9464, host="192.0.2.7", file="/m/orders.prom", traces="otlp"
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("onceonly.metrics.port", "http"),
        ("onceonly.metrics.port", "70000"),
        ("onceonly.metrics.host", "192.0.2.7"),
        ("onceonly.metrics.file", "/m/orders.txt"),
        ("onceonly.traces", "jaeger"),
    ],
)
def test_an_option_that_means_nothing_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(name)):
        parse({"checkpointLocation": "/c", name: text}, default_name="files")


# ---------------------------------------------------------------------------------------------- traces
@pytest.mark.parametrize("hangs", [False, True])
def test_a_collector_that_is_down_fails_nothing_and_holds_nothing_up(
    hangs: bool,  # noqa: FBT001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        if not hangs:
            server.close()
        made = Tracer()
        given: list[Span] = []
        real = made.export

        def export(spans: list[Span]) -> None:
            given.extend(spans)
            real(spans)

        monkeypatch.setattr(made, "export", export)
        monkeypatch.setattr(watching, "tracer", lambda: made)
        query = QueryCoordinator(tmp_path / "cp")
        watching.ask(settings(query.path, traces="otlp"))
        watching.began(str(query.path), "id", "orders")
        waited_s = 0.0
        for epoch in range(20):
            stamp = events.stamp()
            query.log.put_link(replace(query.link(epoch), planned=stamp, stamp=stamp))
            query.log.put_receipt(Receipt(epoch=epoch, index=0, plan="p", stamp=stamp))
            began = time.monotonic()
            watching.reported(str(query.path), REPORT)
            waited_s += time.monotonic() - began
        assert waited_s < 3
        began = time.monotonic()
        watching.ended(str(query.path))
        assert time.monotonic() - began < 9  # the library waits for ten
        assert len({span.trace for span in given}) == 20


def test_no_error_of_a_store_reaches_the_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_self: object) -> None:
        raise UnavailableError("gone", next_step="wait")

    query = QueryCoordinator(tmp_path / "cp")
    watching.ask(settings(query.path, port=0))
    watching.began(str(query.path), "id", "orders")
    monkeypatch.setattr(Follower, "look", fails)
    watching.reported(str(query.path), REPORT)
    watching.ended(str(query.path))
    assert value(scrape(), "onceonly_log_readable", query="orders") == 0
