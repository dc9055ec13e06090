"""Makes recorded Kafka worlds: a checkpoint, and the data of the broker that its query wrote to, left by a version.

``python -m tests.integration.recorded_kafka FOLDER`` with the code that is to be recorded; see golden_kafka/README.md.
It runs with the code of 40b8f96, too.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tarfile
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.unit import disk_bench as bench

from onceonly.model import Handle
from onceonly.ports import WriteContext
from onceonly.sinks.kafka import KafkaSink

try:
    from onceonly.executor.slot import run_slot
    from onceonly_proof.embedded.kafka import EmbeddedKafka
except ImportError:  # where it was once
    from onceonly.embedded.kafka import EmbeddedKafka  # type: ignore[import-not-found, no-redef, unused-ignore]
    from onceonly.runtime.slot import run_slot  # type: ignore[import-not-found, no-redef, unused-ignore]

if TYPE_CHECKING:
    from onceonly.model import Plan, Vote

TOPIC = "out"
LAST = 24
LEFT_BY = {"decided": "link.after_put=raise@1", "claimed": "plan.after_claim=raise@1"}
"""How the epoch after the last one was left: decided, with one of two transactions committed; no more than claimed."""
_NEVER = str(2**31 - 1)
PROPERTIES = {
    # A recording is of any age when it is read: what would be dropped after days by then is kept.
    "offsets.retention.minutes": _NEVER,
    "log.retention.ms": "-1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    # Small files: one partition of each of Kafka's own topics, and no large indexes.
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.index.size.max.bytes": "4096",
}


@dataclass
class KafkaWorld(bench.World):
    """A world whose rows go to a broker, each slot's as one transaction."""

    name: str = "kafka"
    clock: Any = lambda: time
    servers: str = ""

    def sink(self) -> Any:  # noqa: ANN401  the sink of either version
        return KafkaSink({"kafka.bootstrap.servers": self.servers, "topic": TOPIC})

    def coordinator(self, sinks: dict[str, Any]) -> Any:  # noqa: ANN401  of either version
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bench, "COLUMNS", (("value", "string"),))
            return super().coordinator(sinks)

    def task(self, sink: Any, name: str, plan: Plan, slot: int, run: str) -> Vote:  # noqa: ANN401  of either version
        context = WriteContext(
            query=bench.QUERY, sink=name, run=run, epoch=plan.epoch, plan=plan.id, slot=slot, attempt="0",
            guarantee=plan.guarantee, mode=plan.mode, facts=plan.facts.get(name, {}),
        )  # fmt: skip
        rows = pa.record_batch({"value": [str(one) for one in self.ids(plan.epoch, slot)]})
        given: Any = run_slot(sink, plan, context, [rows])
        vote: Vote = getattr(given, "vote", given)
        return vote

    def rows(self) -> Counter[int]:
        """What a reader of committed rows sees."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(
            {
                "bootstrap.servers": self.servers, "group.id": "reader", "enable.partition.eof": True,
                "isolation.level": "read_committed", "enable.auto.commit": False,
            }
        )  # fmt: skip
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in (0, 1)])
        found: Counter[int] = Counter()
        ended, deadline = 0, time.monotonic() + 60
        while ended < 2 and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found[int(message.value() or b"")] += 1
            elif message is not None:
                ended += 1
        consumer.close()
        assert ended == 2, "the topic was not read to its end"
        return found


def make(folder: Path, how: str) -> None:
    """Live a while, die in the middle of the epoch after the last one, and keep checkpoint and broker."""
    with tempfile.TemporaryDirectory(prefix="recorded-") as place, contextlib.ExitStack() as stack:
        kafka = stack.enter_context(EmbeddedKafka(Path(place) / "kafka", properties=PROPERTIES))
        kafka.create_topic(TOPIC, partitions=2)
        world = KafkaWorld(Path(place) / "world", last=LAST, servers=kafka.bootstrap_servers)
        world.history()
        with bench.armed(LEFT_BY[how]):
            world.live(LAST + 1, run="run-4", graceful=False)
        if how == "decided":
            # One request of two has arrived.
            votes = world.chains()[LAST + 1][-1]["votes"]
            first = next(vote["handle"] for vote in votes if vote["slot"] == 0)
            world.sink().commit(Handle(transaction=first["transaction"], data=first["data"]))
        assert world.rows() == world.wanted(*range(world.first, LAST + 1)) + Counter(
            world.ids(LAST + 1, 0) if how == "decided" else []
        )
        (world.log / "alive").write_text("golden 1 driver\n", encoding="utf-8")
        kafka.stop()
        shutil.copytree(world.folder, folder)
        with tarfile.open(folder / "broker.tar.xz", "w:xz") as archive:
            archive.add(kafka.directory / "data", "data")


if __name__ == "__main__":
    for word in LEFT_BY:
        make(Path(sys.argv[1]) / word, word)
