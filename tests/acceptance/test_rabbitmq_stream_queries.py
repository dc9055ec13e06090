"""A stream of RabbitMQ under real Spark: read by offset while drivers, workers and the server die."""

from __future__ import annotations

import json
import random
import threading
from typing import TYPE_CHECKING

import feed_job
import harness
import pika
import pytest
from pyspark.errors.exceptions.base import PySparkException

from onceonly_proof.embedded.rabbitmq import EmbeddedRabbit
from onceonly_proof.handover import until
from ways import spark  # noqa: F401  a fixture

if TYPE_CHECKING:
    from pathlib import Path

    from harness import Run
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.acceptance, pytest.mark.long, pytest.mark.timeout(2400)]  # a further server

KILLS = 9
"""Of drivers. A third of the lives lose a worker, and a third the server, before."""
POINTS = ("link.before_put", "link.after_put", "slot.during_write", "slot.after_prepare")
WAIT_S = 240


class Publisher:
    """A thread that publishes numbered messages, and waits out a dead server."""

    def __init__(self, rabbit: EmbeddedRabbit, stream: str) -> None:
        self._rabbit, self._stream = rabbit, stream
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._ended.is_set():
            try:
                with pika.BlockingConnection(pika.URLParameters(self._rabbit.uri)) as connection:
                    channel = connection.channel()
                    while not self._ended.wait(0.05):
                        number += 1
                        channel.basic_publish("", self._stream, str(number).encode())
            except (pika.exceptions.AMQPError, OSError):
                self._ended.wait(0.2)


def make(rabbit: EmbeddedRabbit, stream: str, *values: str) -> None:
    rabbit.declare(stream, "stream")
    with pika.BlockingConnection(pika.URLParameters(rabbit.uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for value in values:
            channel.basic_publish("", stream, value.encode())


def rows(folder: Path) -> list[str]:
    """Return the values that a reader sees."""
    return [
        json.loads(line)["value"] for path in feed_job.visible(folder) for line in path.open(encoding="utf-8")
    ]


def start(folder: Path, options: dict[str, str], armed: str = "") -> Run:
    told = ["rabbitmq.stream", str(folder), str(10**9), json.dumps(options), "{}"]
    return harness.start(feed_job.__file__, folder, *told, failpoints=armed)


def test_every_message_is_there_once_whatever_dies(tmp_path: Path) -> None:
    draw = random.Random(7)
    with EmbeddedRabbit() as rabbit:
        make(rabbit, "rows")
        options = {"uri": rabbit.uri, "stream": "rows", "tasks": "2", "timeout": "60 seconds"}
        publisher = Publisher(rabbit, "rows")
        for life in range(KILLS):
            point = draw.choice(POINTS)
            how = "kill" if life % 3 == 1 and point.startswith("slot") else "pause"
            run = start(
                tmp_path, {**options, "maxRowsPerTrigger": "40"}, f"{point}={how}@{draw.randint(2, 5)}"
            )
            try:
                run.wait_for(point)
                if life % 3 == 2:
                    rabbit.kill()
                    rabbit.start()
            finally:
                run.kill_tree()
        publisher.stop()
        kept = [body.decode() for _, _, body in rabbit.content("rows")]
        run = start(tmp_path, options)
        try:
            assert until(lambda: len(rows(tmp_path)) >= len(kept), WAIT_S, poll_s=0.5), run.tail()
            (tmp_path / "stop").touch()
            assert run.wait() == 0, run.tail()
        finally:
            run.kill_tree()
        assert sorted(rows(tmp_path)) == sorted(kept)
        assert len(set(kept)) == len(kept) > 100


def test_a_query_that_begins_at_the_newest_message_reads_all_that_follow_it_once(tmp_path: Path) -> None:
    """Others come all the time, and the driver dies in its first epoch: by the next start, another is the newest."""
    with EmbeddedRabbit() as rabbit:
        make(rabbit, "rows", *map(str, range(-30, 1)))
        publisher = Publisher(rabbit, "rows")
        options = {"uri": rabbit.uri, "stream": "rows", "startingOffsets": "latest", "timeout": "60 seconds"}
        run = start(tmp_path, options, "link.before_put=pause@1")
        try:
            run.wait_for("link.before_put")
        finally:
            run.kill_tree()
        run = start(tmp_path, options)
        try:
            assert until(lambda: len(rows(tmp_path)) > 60, WAIT_S, poll_s=0.5), run.tail()
            publisher.stop()
            (tmp_path / "stop").touch()
            assert run.wait() == 0, run.tail()
        finally:
            run.kill_tree()
        found = sorted(map(int, rows(tmp_path)))
        assert found[0] > 0
        assert found == list(range(found[0], found[0] + len(found)))


def test_a_query_reads_what_is_there_and_stops_where_the_stream_was_made_anew(
    spark: SparkSession,  # noqa: F811  a fixture
    tmp_path: Path,
) -> None:
    with EmbeddedRabbit() as rabbit:
        make(rabbit, "orders", *map(str, range(30)))

        def run() -> None:
            query = (
                spark.readStream.format("onceonly.rabbitmq.stream")
                .options(uri=rabbit.uri, stream="orders")
                .load()
                .selectExpr("CAST(value AS STRING) AS value", "offset", "routingKey", "headers", "timestamp")
                .writeStream.format("onceonly.files")
                .options(format="json", path=str(tmp_path / "out"))
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()

        for _ in range(2):  # nothing is new at the second time
            run()
            assert sorted(map(int, rows(tmp_path))) == list(range(30))
        with pika.BlockingConnection(pika.URLParameters(rabbit.uri)) as connection:
            connection.channel().queue_delete("orders")
        make(rabbit, "orders", *(f"new {n}" for n in range(40)))
        with pytest.raises(PySparkException, match="was deleted and made anew"):
            run()
        assert len(rows(tmp_path)) == 30
