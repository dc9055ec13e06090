"""Three real Kafka brokers on loopback, each of which can be killed while the others go on.

::

    with EmbeddedCluster() as cluster:
        cluster.create_topic("events", partitions=3)
        cluster.broker(1).kill()
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from confluent_kafka import ElectionType

from onceonly.errors import SetupError
from onceonly_proof.embedded import kafka_settings as settings
from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka.admin import AdminClient

_REPLICATED = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "min.insync.replicas": "2",
}
_NODES = (1, 2, 3)
_READY_TIMEOUT_S = 120.0
_REQUEST_TIMEOUT_S = 30.0
_POLL_S = 0.1


class EmbeddedCluster:
    """Three KRaft nodes, each broker and controller, in a temporary folder. Not thread-safe."""

    def __init__(
        self, *, properties: Mapping[str, str] | None = None, kind: type[EmbeddedKafka] = EmbeddedKafka
    ) -> None:
        self._properties = dict(properties or {})
        self._kind = kind
        self._nodes: dict[int, EmbeddedKafka] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as on_error:
            on_error.push(self._open)
            self._start()
            on_error.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def bootstrap_servers(self) -> str:
        """All three, separated by commas."""
        return ",".join(node.bootstrap_servers for node in self._nodes.values())

    def broker(self, node: int) -> EmbeddedKafka:
        """Return one node by its number: 1, 2 or 3."""
        return self._nodes[node]

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic with a replica on every node, and wait until every node that runs has it."""
        self._a_living_one().create_topic(name, partitions, replicas=len(_NODES))
        for node in self._nodes.values():
            if node.pid is not None:
                node.wait_for_topic(name, partitions)

    def _start(self) -> None:
        folder = self._open.enter_context(tempfile.TemporaryDirectory(prefix="onceonly-kafka-"))
        ports = {node: settings.free_ports() for node in _NODES}
        voters = ",".join(f"{node}@127.0.0.1:{controller}" for node, (_, controller) in ports.items())
        cluster_id = settings.new_cluster_id()
        for node in _NODES:
            own = {"node.id": str(node), "controller.quorum.voters": voters}
            broker = self._kind(
                Path(folder) / str(node),
                properties={**_REPLICATED, **self._properties, **own},
                ports=ports[node],
                cluster_id=cluster_id,
            )
            self._nodes[node] = broker
            self._open.callback(broker.kill)
            broker.launch()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until every node knows all that run. Raises ``SetupError`` after two minutes."""
        running = {number for number, node in self._nodes.items() if node.pid is not None}
        deadline = time.monotonic() + _READY_TIMEOUT_S
        for number in running:
            node = self._nodes[number]
            node.wait_ready()
            admin = node.admin()
            while set(admin.list_topics(timeout=_REQUEST_TIMEOUT_S).brokers) != running:
                if time.monotonic() > deadline:
                    raise SetupError(
                        f"Node {number} of the embedded Kafka cluster does not see the nodes {sorted(running)}.",
                        next_step=f"read {node.log_file}",
                    )
                time.sleep(_POLL_S)

    def spread_leaders(self) -> None:
        """Let each partition be led by the first of its replicas. Raises ``SetupError`` after two minutes.

        A broker that was slow to speak up is passed over in elections, and Kafka sets that right minutes later only.
        """
        admin = self._a_living_one().admin()
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while others := _led_by_others(admin):
            if time.monotonic() > deadline:
                raise SetupError(
                    f"The embedded Kafka cluster does not give {len(others)} partitions to their first replicas: "
                    f"{', '.join(others[:3])}.",
                    next_step=f"read {self._a_living_one().log_file}",
                )
            # With any time-out the client raises SystemError (confluent-kafka 2.16).
            admin.elect_leaders(ElectionType.PREFERRED).result(_REQUEST_TIMEOUT_S)
            time.sleep(_POLL_S)

    def _a_living_one(self) -> EmbeddedKafka:
        return next(node for node in self._nodes.values() if node.pid is not None)


def _led_by_others(admin: AdminClient) -> list[str]:
    """Name the partitions that are not led by the first of their replicas."""
    return [
        f"{name}-{number}"
        for name, topic in admin.list_topics(timeout=_REQUEST_TIMEOUT_S).topics.items()
        for number, partition in topic.partitions.items()
        if partition.leader != partition.replicas[0]
    ]
