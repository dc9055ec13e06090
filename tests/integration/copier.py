"""A contender of the benchmark without an engine: copies records, and loses or doubles some where it is told to.

``python copier.py FOLDER``, with the mode in ``session.json``.
"""

from __future__ import annotations

import json
import sys
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.jobs.orders import serve
from onceonly_proof.parent import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY = 100
TIMES = {"whole": 1, "lost": 0, "doubled": 2}
"""How often each hundredth record is written."""


class Job:
    """What the orders act on."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._stop = threading.Event()
        self._thread = threading.Thread()

    def handlers(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        return {"start": self.start, "check": self.check, "stop": self.stop}

    def start(self, order: dict[str, Any]) -> dict[str, Any]:
        if self._mode == "broken" and not order["source"].startswith("input-warm"):
            raise RuntimeError("does not start")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._copy, args=(order,), daemon=True)
        self._thread.start()
        return {}

    def check(self, _order: dict[str, Any]) -> dict[str, Any]:
        return {}

    def stop(self, _order: dict[str, Any]) -> dict[str, Any]:
        self._stop.set()
        self._thread.join()
        return {"epochs": []}

    def _copy(self, order: dict[str, Any]) -> None:
        client = {"bootstrap.servers": order["servers"]}
        consumer: Consumer = Consumer({**client, "group.id": uuid.uuid4().hex, "fetch.wait.max.ms": 20})
        producer: Producer = Producer({**client, "linger.ms": 2})
        partitions = consumer.list_topics(order["source"], 30).topics[order["source"]].partitions
        consumer.assign([TopicPartition(order["source"], each, 0) for each in partitions])
        # The warm-up is no run: whoever loses rows there would never be ready.
        odd = 1 if order["source"].startswith("input-warm") else TIMES.get(self._mode, 1)
        count = 0
        while not self._stop.is_set():
            for message in consumer.consume(1_000, 0.02):
                count += 1
                for _ in range(1 if count % EVERY else odd):
                    producer.produce(
                        order["target"], message.value(), message.key(), partition=message.partition() or 0
                    )
            producer.poll(0)
        producer.flush(30)
        consumer.close()


def main() -> None:
    die_with_parent()
    folder = Path(sys.argv[1])
    serve(folder, Job(json.loads((folder / "session.json").read_text())["mode"]).handlers())


if __name__ == "__main__":
    main()
