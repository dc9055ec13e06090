"""What a round reads and writes: made on the servers of its campaign before its first life."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from onceonly.errors import UnavailableError
from onceonly_proof.campaign import queries
from onceonly_proof.campaign.sources import Place
from onceonly_proof.campaign.sources.kafka import Topic
from onceonly_proof.campaign.targets import WITH_KEYS, by_sink, keyed
from onceonly_proof.campaign.task import Task
from onceonly_proof.campaign.way import format_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from onceonly.model import Guarantee
    from onceonly_proof.campaign.plan import Plan
    from onceonly_proof.campaign.scene import Arena
    from onceonly_proof.campaign.sources import Flow, Source
    from onceonly_proof.embedded.kafka import EmbeddedKafka

_CREATE_ATTEMPTS_MAX = 3


def make_task(arena: Arena, plan: Plan, guarantee: Guarantee, name: str, folder: Path) -> tuple[Task, Flow]:
    """Make the places that a round reads and writes; return what its job is told, and its input.

    Raises ``UnavailableError`` and ``SetupError`` where a server does not let it.
    """
    kafka, source = arena.kafka, arena.source
    # A round that was interrupted is run again from its beginning, on topics of its own.
    own = f"{name}-{os.getpid()}"
    if source is None:
        create(kafka, f"in-{own}", plan.workload.partitions, {})
        flow: Flow = Topic(kafka.bootstrap_servers, f"in-{own}", plan.workload)
    else:
        place = Place(folder, arena.points.env, arena.journals, arena.store)
        flow = source.flow(f"in-{own}", plan.workload, place)
    create(kafka, f"out-{own}", plan.workload.targets, queries.topic_configs(plan.query))
    return Task(
        servers=kafka.bootstrap_servers,
        source=f"in-{own}",
        format="" if source is None else format_of(arena.source_kind),
        read=flow.options(),
        key="" if source is None else _key(source, plan.connector),
        target=f"out-{own}",
        files=str(folder / "files"),
        checkpoint=arena.store.address(folder),
        copy=str(folder / "checkpoint"),
        connector=plan.connector,
        guarantee=guarantee.value,
        visible=arena.visible,
        per_epoch=plan.workload.per_epoch,
        limit_s=plan.limit_s,
        query=plan.query,
        sink_servers=kafka.sink_servers,
        sink_options=kafka.sink_options,
        tables={
            sink: target.options(f"out-{own}")
            for sink, target in by_sink(plan.connector, arena.targets).items()
        },
    ), flow


def _key(source: Source, connector: str) -> str:
    return keyed.NUMBERED if WITH_KEYS.intersection(connector.split("+")) else source.key


def create(kafka: EmbeddedKafka, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
    """Create a topic on a broker that may have been killed a moment ago. Raises ``UnavailableError``."""
    from confluent_kafka import KafkaError, KafkaException

    kafka.start()
    problem: KafkaException | None = None
    for _ in range(_CREATE_ATTEMPTS_MAX):
        try:
            kafka.create_topic(topic, partitions=partitions, configs=configs)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return  # the answer to an attempt before this one was late
            problem = error
        else:
            return
    raise UnavailableError(
        f"topic {topic} could not be created: {problem}",
        next_step="see whether the machine is too busy for a broker, then run the same command again",
    )
