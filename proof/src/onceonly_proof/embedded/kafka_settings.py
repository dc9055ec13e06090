"""What a small, single Kafka broker is told: settings, ports and cluster id. No broker is touched."""

from __future__ import annotations

import base64
import uuid
from typing import TYPE_CHECKING

from onceonly_proof.embedded import ports

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# One node is all three: controller, broker, and the only replica of Kafka's own topics. Few
# partitions of those, and a small cleaner, keep it at about 300 MB.
_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "BROKER",
    "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # After a SIGKILL the controller waits for the old session to end before it takes the broker
    # back: 9 s by default. Shorter than 3 s, a busy machine would lose the session by mistake.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "num.network.threads": "2",
    "num.io.threads": "4",
}

FEEDER = {
    "enable.idempotence": True,
    # With more, rows that come while a new topic's leader begins can be lost: ADR 9.
    "max.in.flight": 1,
}
"""Of a librdkafka producer that feeds a topic: each row once and in order, whatever is retried."""


def server_properties(port: int, controller_port: int, data: Path, overrides: Mapping[str, str]) -> str:
    """Return the text of ``server.properties``. Pure; ``overrides`` go before all else."""
    own = {
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"BROKER://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"BROKER://127.0.0.1:{port}",
        "log.dirs": str(data),
    }
    return "".join(f"{name}={value}\n" for name, value in {**_PROPERTIES, **own, **overrides}.items())


def cluster_id_in(data: Path) -> str | None:
    """Return the cluster id of a data folder that is formatted, else None."""
    written = data / "meta.properties"
    lines = written.read_text().splitlines() if written.exists() else []
    values = (line.removeprefix("cluster.id=") for line in lines if line.startswith("cluster.id="))
    return next(values, None)


def new_cluster_id() -> str:
    """Return a random cluster id."""
    # Kafka's form of a UUID. One that begins with a dash would be taken for an option.
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def free_ports() -> tuple[int, int]:
    """Return two loopback ports that are free now: of clients and of the controller."""
    clients, controller = ports.free_ports(2)
    return clients, controller
