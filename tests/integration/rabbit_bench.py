"""A queue of a real RabbitMQ, and a receiver of it, as tests use them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pika

from onceonly.sources.asked import ask
from onceonly.sources.journal import Journal
from onceonly.sources.journal.receiver import Receiver
from onceonly.sources.journal.segments import SEGMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from onceonly_proof.embedded.rabbitmq import EmbeddedRabbit

QUORUM = {"x-queue-type": "quorum"}


def publish(
    rabbit: EmbeddedRabbit,
    queue: str,
    ids: Iterable[str | None],
    *,
    uri: str = "",
    **declared: Any,  # noqa: ANN401  as pika's
) -> None:
    """Declare a queue, and publish messages that its server has confirmed."""
    with pika.BlockingConnection(pika.URLParameters(uri or rabbit.uri)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True, **declared)
        channel.confirm_delivery()
        for each in ids:
            properties = pika.BasicProperties(message_id=each, delivery_mode=2, headers={"key": f"k{each}"})
            channel.basic_publish("", queue, f"row {each}".encode(), properties)


def left(rabbit: EmbeddedRabbit, queue: str, *, uri: str = "") -> int:
    """Say how many messages wait in a queue, and were given to nobody."""
    with pika.BlockingConnection(pika.URLParameters(uri or rabbit.uri)) as connection:
        count: int = connection.channel().queue_declare(queue, passive=True).method.message_count
        return count


def receiver(rabbit: EmbeddedRabbit, folder: Path, queue: str, **options: str) -> Receiver:
    given = {"uri": rabbit.uri, "queue": queue, "journal": str(folder / "journal"), "linger": "5 ms"}
    asked = ask("rabbitmq", {**given, **{name.replace("_", "."): text for name, text in options.items()}})
    made = Receiver(asked.feed, asked.journal, asked.limits, wait_s=0)
    made.start()
    return made


def rows(folder: Path) -> list[dict[str, Any]]:
    journal = Journal.at(str(folder / "journal"))
    identity = journal.identity()
    if identity is None:
        return []
    return [
        row for n in journal.numbers(SEGMENTS) for row in journal.read(n, identity.journal)[1].to_pylist()
    ]


def until(holds: Callable[[], bool], within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
