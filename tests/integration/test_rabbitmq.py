"""A queue of a real RabbitMQ into a journal, while receiver and server are killed; and what is refused."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pika
import pytest
from rabbit_bench import QUORUM, left, publish, receiver, rows, until

from onceonly.errors import ConfigurationError, RecordRefusedError
from onceonly_proof.embedded.rabbitmq import EmbeddedRabbit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]  # a further server


@pytest.fixture(scope="module")
def rabbit() -> Iterator[EmbeddedRabbit]:
    with EmbeddedRabbit() as server:
        yield server


@pytest.mark.parametrize("arguments", [None, QUORUM], ids=["classic", "quorum"])
def test_messages_are_rows_and_are_acknowledged(
    rabbit: EmbeddedRabbit, tmp_path: Path, arguments: dict[str, str] | None
) -> None:
    queue = f"plain-{arguments is None}"
    publish(rabbit, queue, ["1", "2", "1", "3"], arguments=arguments)
    life = receiver(rabbit, tmp_path, queue)
    until(lambda: len(rows(tmp_path)) >= 3)
    life.rest(10)
    assert life._feed.awaited == 0
    life.stop()
    life.require_alive()
    assert [row["id"] for row in rows(tmp_path)] == ["1", "2", "3"]
    first = rows(tmp_path)[0]
    assert (first["value"], first["routingKey"], first["exchange"]) == (b"row 1", queue, "")
    assert (dict(first["headers"]), first["redelivered"]) == ({"key": "k1"}, False)
    assert left(rabbit, queue) == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"queue": "no-such-queue"}, "there is no queue no-such-queue"),
        ({"queue": "q" * 256}, "is longer than the 255 bytes"),
        ({"uri": "amqp://guest:wrong@127.0.0.1:{port}/%2F"}, "does not take the user or the password"),
        (
            {"uri": "amqp://guest:guest@127.0.0.1:{port}/nowhere"},
            "there is no virtual host nowhere at 127.0.0.1:",
        ),
    ],
)
def test_what_will_not_change_ends_the_query(
    rabbit: EmbeddedRabbit, tmp_path: Path, options: dict[str, str], says: str
) -> None:
    given = {"queue": "q", **{name: text.format(port=rabbit.port) for name, text in options.items()}}
    queue = given.pop("queue")
    life = receiver(rabbit, tmp_path, queue, **given)
    until(lambda: life.error is not None)
    assert isinstance(life.error, ConfigurationError)
    assert says in str(life.error)
    assert "wrong" not in str(life.error)


def test_a_stream_is_refused_before_its_first_record(rabbit: EmbeddedRabbit, tmp_path: Path) -> None:
    """It would give what is published from now on, and nothing of the time between two receivers."""
    publish(rabbit, "a-stream", ["1"], arguments={"x-queue-type": "stream"})
    life = receiver(rabbit, tmp_path, "a-stream")
    until(lambda: life.error is not None)
    publish(rabbit, "a-stream", ["2"], arguments={"x-queue-type": "stream"})
    assert isinstance(life.error, ConfigurationError)
    assert "a-stream of 127.0.0.1" in life.error.what
    assert "is a stream, and no queue" in life.error.what
    assert "onceonly.rabbitmq.stream" in life.error.next_step
    life.stop()
    assert rows(tmp_path) == []


def test_a_message_without_an_id_stays_in_the_queue(rabbit: EmbeddedRabbit, tmp_path: Path) -> None:
    publish(rabbit, "nameless", [None])
    life = receiver(rabbit, tmp_path, "nameless")
    until(lambda: life.error is not None)
    assert isinstance(life.error, RecordRefusedError)
    assert left(rabbit, "nameless") == 1
    life = receiver(rabbit, tmp_path, "nameless", onceonly_guarantee="at-least-once")
    until(lambda: len(rows(tmp_path)) == 1)
    life.stop()


def test_a_queue_that_is_deleted_is_told(rabbit: EmbeddedRabbit, tmp_path: Path) -> None:
    publish(rabbit, "short-lived", ["1"])
    life = receiver(rabbit, tmp_path, "short-lived")
    until(lambda: len(rows(tmp_path)) == 1)
    with pika.BlockingConnection(pika.URLParameters(rabbit.uri)) as connection:
        connection.channel().queue_delete("short-lived")
    until(lambda: life.error is not None)
    assert "there is no queue short-lived" in str(life.error)


def test_what_came_when_the_journal_was_durable_and_nobody_was_told_comes_once(
    rabbit: EmbeddedRabbit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(rabbit, "again", ["1", "2"])
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", "journal.after_put=raise")
    life = receiver(rabbit, tmp_path, "again")
    until(lambda: life.error is not None)
    monkeypatch.delenv("ONCEONLY_FAILPOINTS")
    until(lambda: left(rabbit, "again") == 2)
    for deduplicate in ("redelivered", "all"):
        publish(rabbit, "again", ["3"] if deduplicate == "redelivered" else ["4"])
        life = receiver(rabbit, tmp_path, "again", deduplicate=deduplicate)
        until(lambda: len(rows(tmp_path)) >= (3 if deduplicate == "redelivered" else 4))  # noqa: B023  it is called here
        life.stop()
    assert [row["id"] for row in rows(tmp_path)] == ["1", "2", "3", "4"]
    assert left(rabbit, "again") == 0


def test_no_message_without_an_id_comes_twice_at_most_once_though_its_server_is_killed(
    tmp_path: Path,
) -> None:
    """A classic queue forgets acknowledgements when it is killed behind them."""
    with EmbeddedRabbit() as rabbit:
        publish(rabbit, "forgets", [str(n) for n in range(2000)])
        life = receiver(
            rabbit, tmp_path, "forgets", id="none", onceonly_guarantee="at-most-once", prefetch="200"
        )
        until(lambda: len(rows(tmp_path)) >= 1800)
        rabbit.kill()
        life.stop()
        rabbit.start()
        life = receiver(rabbit, tmp_path, "forgets", id="none", onceonly_guarantee="at-most-once")
        until(lambda: left(rabbit, "forgets") == 0)
        life.rest(10)
        life.stop()
        found = Counter(row["value"] for row in rows(tmp_path))
        assert life.doubled > 0
        assert [each for each, times in found.items() if times > 1] == []


def test_what_a_queue_had_is_all_read_however_long_that_takes(rabbit: EmbeddedRabbit, tmp_path: Path) -> None:
    publish(rabbit, "long", [str(n) for n in range(3000)])
    life = receiver(rabbit, tmp_path, "long", prefetch="10", segmentBytes="100")
    life.rest(1)
    life.stop()
    assert len(rows(tmp_path)) == 3000


@pytest.mark.parametrize("arguments", [None, QUORUM], ids=["classic", "quorum"])
def test_no_message_is_lost_or_doubled_while_receiver_and_server_are_killed(
    tmp_path: Path, arguments: dict[str, str] | None
) -> None:
    draw, total = random.Random(5), 6000
    with EmbeddedRabbit() as rabbit:
        command = [sys.executable, "-m", "onceonly", "journal", "run", "rabbitmq"]
        for option in (
            f"uri={rabbit.uri}",
            "queue=kills",
            f"journal={tmp_path / 'journal'}",
            "linger=5 ms",
            "prefetch=50",
        ):
            command += ["-o", option]
        publish(rabbit, "kills", [str(n) for n in range(total)], arguments=arguments)
        for life in range(12):
            armed = draw.choice(["journal.before_put=kill@", "journal.after_put=kill@"]) + str(
                draw.randint(1, 9)
            )
            process = subprocess.Popen(command, env={**os.environ, "ONCEONLY_FAILPOINTS": armed})
            if life % 3 == 2:
                rabbit.kill()
                rabbit.start()
            assert process.wait(60) == -signal.SIGKILL
        process = subprocess.Popen(command)
        try:
            until(lambda: len({row["id"] for row in rows(tmp_path)}) == total, 120)
        finally:
            process.terminate()
            assert process.wait(30) == 0
        found = Counter(row["id"] for row in rows(tmp_path))
        assert [each for each, times in found.items() if times > 1] == []
        assert left(rabbit, "kills") == 0
