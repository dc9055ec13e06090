"""Decisions as the Kafka sink makes them, without a broker: all names and numbers as long as real ones."""

from __future__ import annotations

import json
import uuid
from functools import cache

from onceonly.model import Handle, Link, LinkKind, SinkUse, Vote
from onceonly.sinks.kafka.prepared import Prepared

QUERY = "6f3c1c2e-3f4b-4c8e-9a55-0d6c3c1f7a10"
RUN = "0b8f8a7e-51c2-4d5e-8a8f-2f1f0c9b6d33"
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
TASKS_A_WORKER = 4
PARTITIONS = 8


def sink_name(number: int) -> str:
    """Name a sink."""
    return f"kafka-{number:02d}"


@cache
def handle(sink: str, slot: int, epoch: int) -> Handle:
    """Return the handle of one slot's transaction."""
    worker = f"{slot // TASKS_A_WORKER:012x}"
    prefix = f"onceonly.{QUERY}.{sink}"
    return Prepared(
        cluster_id=CLUSTER,
        transactional_id=f"{prefix}.{RUN}.{worker}.{slot % TASKS_A_WORKER}",
        producer_id=1_000_000 + slot,
        producer_epoch=epoch % 30_000,
        end_txn_version=5,
        group=f"{prefix}.{slot}",
        marker_topic="results",
        token=f"{epoch}:{uuid.UUID(int=slot + (epoch << 64)).hex}",
        predecessor=f"{max(epoch - 1, 0)}:{uuid.UUID(int=slot).hex}",
    ).handle()


def votes(epoch: int, *, sinks: int, slots: int, plan: str, run: str = RUN) -> list[Vote]:
    """Return the votes of an epoch: one of each slot of each sink, each with a transaction."""
    return [
        Vote(
            sink=name,
            epoch=epoch,
            slot=slot,
            plan=plan,
            run=run,
            attempt=f"{100 * epoch + slot}",
            rows=1_000 + slot,
            checksum=f"{slot:016x}",
            # One epoch's are as long as another's, and made once.
            handle=handle(name, slot, 1_000),
        )
        for name in map(sink_name, range(sinks))
        for slot in range(slots)
    ]


def barrier(epoch: int) -> str:
    """Return the end offsets of one topic, as Spark writes them."""
    return json.dumps(
        {"events": {str(partition): 1_000 * epoch + partition for partition in range(PARTITIONS)}}
    )


def link(epoch: int, *, sinks: int, slots: int) -> Link:
    """Return the decision of an epoch."""
    plan = uuid.UUID(int=epoch).hex
    names = [sink_name(number) for number in range(sinks)]
    target = {
        "cluster": CLUSTER,
        "topic": "results",
        "topic_id": CLUSTER,
        "prefix": "onceonly",
        "marker_topic": "",
    }
    options = {"kafka.bootstrap.servers": "broker-1:9092,broker-2:9092,broker-3:9092", "topic": "results"}
    return Link(
        epoch=epoch,
        index=0,
        kind=LinkKind.COMMIT,
        plan=plan,
        run=RUN,
        votes=tuple(votes(epoch, sinks=sinks, slots=slots, plan=plan)),
        barrier=(barrier(epoch),),
        settings=dict.fromkeys(names, target),
        uses={name: SinkUse(sink="kafka", options=options) for name in names},
    )
