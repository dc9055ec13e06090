"""Jobs that are clients of a Spark Connect server: the formats work there as on any driver."""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING

import pytest
from audits import assert_clean
from harness import HERE, TEXTS, python_path, start
from test_guards import made_anew
from test_lag import Watch

from onceonly.jars.locked import spark_jars
from onceonly_proof.embedded.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Bench, Run

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(480)]

ROWS = [(f"k{number % 3}", str(number)) for number in range(300)]


@pytest.mark.parametrize(
    "point", ["link.after_put", pytest.param("slot.after_prepare", marks=pytest.mark.long)]
)
def test_a_server_that_dies_with_its_client_is_gone_on_after(bench: Bench, point: str) -> None:
    bench.args = ["--connect", "--per-epoch", "50"]
    bench.feed(ROWS)
    bench.run_and_kill_at(point, nth=2)
    bench.run()
    assert_clean(bench)


@pytest.mark.long
@pytest.mark.parametrize("way", ["foreachBatch", "epoch"])
def test_a_function_goes_on_after_its_server_and_client_died_at_each_step(bench: Bench, way: str) -> None:
    """Alone, and with three sinks under one decision. Each life is a server, a client and a Python of the function."""
    sinks = ("kafka", "files", "results") if way == "epoch" else ("kafka",)
    bench.args = ["--connect", "--way", way, "--per-epoch", "50"]
    bench.args += bench.with_all_sinks() if way == "epoch" else []
    bench.feed(ROWS)
    for point in ("slot.after_prepare", "link.before_put", "link.after_put", "receipt.before_put"):
        bench.run_and_kill_at(point, 2)
    bench.run()
    bench.assert_exactly_once(ROWS, *sinks)
    bench.assert_nothing_left_open(*sinks)
    assert {event["actor"] for event in bench.seen_events("link.persisted")} == {"driver"}


@pytest.fixture
def server(bench: Bench) -> Iterator[Callable[[str], Run]]:
    """Start a server that lives longer than its clients; give what starts it, with crash points armed in it."""
    started: list[Run] = []
    [port] = free_ports(1)
    bench.args = ["--connect", "--master", f"sc://127.0.0.1:{port}"]

    def begin(failpoints: str) -> Run:
        given = {
            "spark.jars": spark_jars(), "spark.ui.enabled": "false", "spark.driver.memory": "700m",
            "spark.sql.shuffle.partitions": "2", "spark.connect.grpc.binding.port": str(port),
        }  # fmt: skip
        told = [part for name, value in given.items() for part in ("--conf", f"{name}={value}")]
        main = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        env = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": python_path(bench.folder)}
        command = ["--master", "local[2]", *told, *main]
        started.append(start(str(HERE / "submit.py"), bench.folder, *command, failpoints=failpoints, env=env))
        started[-1].until(lambda: can_connect(port), "the server to listen")
        return started[-1]

    yield begin
    for each in started:
        each.kill_tree()


def can_connect(port: int) -> bool:
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.long
@pytest.mark.parametrize("way", ["foreachBatch", "format"])
def test_a_client_that_dies_alone_is_followed_by_another_while_its_query_runs_on(
    bench: Bench, server: Callable[[str], Run], way: str
) -> None:
    """The first query stands before its decision, in the server, when the second one of its checkpoint starts."""
    bench.args += ["--way", way, "--per-epoch", "50"]
    bench.feed(ROWS)
    serving = server("link.before_put=pause@2")
    first = bench.start()
    try:
        serving.wait_for("link.before_put")
    finally:
        first.kill_tree()
    second = bench.start()
    try:
        serving.until(
            lambda: b"Stopping existing streaming query" in serving.log.read_bytes(), "a second start"
        )
        # Whatever is left of the first one wakes up; what decides for a format, Spark waits for.
        (serving.fired / "resume").touch()
        assert second.wait() == 0, second.tail()
    finally:
        second.kill_tree()
    bench.assert_exactly_once(ROWS)
    bench.run()
    bench.assert_exactly_once(ROWS)
    bench.assert_nothing_left_open()
    assert_clean(bench)


@pytest.mark.long
def test_a_functions_python_that_dies_is_followed_by_another_of_the_same_client(bench: Bench) -> None:
    """The server lives on; what the function has decided stands, and what it has not is written again."""
    bench.args = ["--connect", "--way", "foreachBatch", "--sink", "files", "--files", str(bench.files)]
    bench.args += ["--restart", "8", "--per-epoch", "60", *TEXTS]
    bench.feed(ROWS)
    run = bench.run(failpoints="link.after_put=kill@2")
    assert "link.after_put" in run.points_fired()
    assert_clean(bench, "files")


@pytest.mark.long
def test_a_query_that_is_drained_shows_no_lag_in_its_group(bench: Bench) -> None:
    group = f"lag-{bench.name}"
    told = {"lag.group": group, "source.format": "kafka"}
    told["source.option.kafka.bootstrap.servers"] = bench.kafka.bootstrap_servers
    bench.args = ["--connect", "--per-epoch", "100"]
    for name, text in told.items():
        bench.args += ["--option", f"onceonly.{name}={text}"]
    bench.feed(ROWS)
    bench.run()
    watch = Watch(bench, group)
    assert watch.offsets() == watch.committed() != {}


@pytest.mark.long
def test_a_query_that_fails_on_the_server_is_started_again_by_its_client(bench: Bench) -> None:
    bench.args = [
        "--connect",
        "--restart",
        "5",
        "--per-epoch",
        "50",
        "--sink",
        "files",
        "--files",
        str(bench.files),
    ]
    bench.args += TEXTS
    bench.feed(ROWS)
    bench.run(failpoints="commit.after_handle=raise@2,receipt.before_put=raise@2")
    assert_clean(bench, "files")


@pytest.mark.long
def test_a_users_mistake_is_told_to_the_client_without_a_stack_trace(bench: Bench) -> None:
    bench.args = [
        "--connect",
        "--sink",
        "files",
        "--files",
        str(bench.files),
        "--option",
        "format=xml",
        *TEXTS,
    ]
    bench.feed(ROWS[:3])
    message = bench.run_to_an_error()
    assert "xml" in message
    assert "Traceback" not in message


@pytest.mark.long
def test_a_topic_that_was_made_anew_stops_a_query_that_tells_how_its_source_is_reached(bench: Bench) -> None:
    """The server has no Python of ours that knows its plan. Spark alone would skip the first rows in silence."""
    told = {"format": "kafka", "option.kafka.bootstrap.servers": bench.kafka.bootstrap_servers}
    bench.args = ["--connect"]
    for name, text in told.items():
        bench.args += ["--option", f"onceonly.source.{name}={text}"]
    bench.feed(ROWS[:10])
    bench.run()
    made_anew(bench.kafka, bench.source, partitions=bench.partitions)
    bench.feed(ROWS[10:])
    assert f"The topic {bench.source} of the Kafka source is another one" in bench.run_to_an_error()
    bench.assert_exactly_once(ROWS[:10])
