"""Further connections to a broker: which are used and begun, and what becomes of one that is refused. No broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from kafka.errors import NodeNotReadyError
from kafka.net.selector import NetworkSelector

from onceonly.sinks.kafka.wire import connections
from onceonly.sinks.kafka.wire.connections import CONNECTIONS_MAX, Connections
from onceonly.sinks.kafka.wire.manager import Manager as Ours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafka.net.connection import KafkaConnection

NODE = 7


class Manager(Ours):
    """Ours, whose connections come up, or are refused, when they are told to."""

    def __init__(self) -> None:
        super().__init__(
            NetworkSelector(), family=0, bootstrap_servers=["nowhere:9"], reconnect_backoff_ms=60_000
        )
        self.cluster._brokers[NODE] = SimpleNamespace(node_id=NODE, host="nowhere", port=9, rack=None)
        self.begun: list[KafkaConnection] = []
        self.refuses = False

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:  # noqa: ANN401
        if self.refuses:
            raise ConnectionRefusedError(node.node_id)
        return None

    async def _connect(self, node: Any, conn: KafkaConnection, **more: Any) -> None:  # noqa: ANN401
        self.begun.append(conn)
        if self.refuses:
            await super()._connect(node, conn, **more)
        else:
            conn.initializing, conn.transport = True, SimpleNamespace(host_port=str, last_activity=0.0)
            conn._init_complete()

    def turn(self) -> None:
        """Do what kafka-python's thread would do now."""
        self._net.drain()


@pytest.fixture
def manager() -> Iterator[Manager]:
    found = Manager()
    yield found
    found._net.close()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(connections, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return lambda seconds: setattr(clock, "now", clock.now + seconds)


def ready(manager: Manager, wanted: int) -> Connections:
    """Return connections of which so many are there."""
    found = Connections(manager)
    for _ in range(2):
        found._to(NODE, wanted)
        manager.turn()
    return found


def test_none_is_waited_for_and_each_is_used_once_it_is_there(manager: Manager) -> None:
    own, made = manager.get_connection(NODE), Connections(manager)
    assert made._to(NODE, 3) == [own]
    manager.turn()
    assert manager.begun == [own], "whether the broker is there is not known before"
    assert made._to(NODE, 3) == [own]
    assert made._to(NODE, 3) == [own], "they are being made"
    manager.turn()
    assert len(manager.begun) == 3
    assert [each for each in made._to(NODE, 3) if each is not own] == manager.begun[1:]
    assert made._to(NODE, 2) == [own, manager.begun[1]]
    assert made._to(NODE, 1) == [own]


def test_there_is_a_bound_for_them(manager: Manager) -> None:
    made = ready(manager, 1000)
    assert len(made._to(NODE, 1000)) == len(manager.begun) == CONNECTIONS_MAX


def test_one_that_is_held_back_by_the_broker_is_left_out(manager: Manager) -> None:
    made = ready(manager, 3)
    manager.begun[1].pause("throttle")
    assert made._to(NODE, 3) == [manager.begun[0], manager.begun[2]]


def test_one_that_was_closed_is_made_anew(manager: Manager) -> None:
    made = ready(manager, 2)
    manager.begun[1].connection_lost(None)
    assert made._to(NODE, 2) == [manager.begun[0]]
    manager.turn()
    assert made._to(NODE, 2) == [manager.begun[0], manager.begun[2]]


def test_a_broker_that_refuses_further_ones_is_left_alone_for_a_while_and_its_own_connection_is_used(
    manager: Manager, now: Callable[[float], None]
) -> None:
    made = ready(manager, 1)
    own = manager.get_connection(NODE)
    manager.refuses = True
    made._to(NODE, 3)
    manager.turn()
    assert len(manager.begun) == 3
    now(59.0)
    assert made._to(NODE, 3) == [own], "kafka-python did not take it for its own failure"
    manager.turn()
    assert len(manager.begun) == 3
    manager.refuses = False
    now(2.0)
    made._to(NODE, 3)
    manager.turn()
    assert len(made._to(NODE, 3)) == 3


def test_where_there_is_no_connection_of_its_own_kafka_python_says_why(manager: Manager) -> None:
    made = Connections(manager)
    manager.refuses = True
    manager.get_connection(NODE)
    manager.turn()
    with pytest.raises(NodeNotReadyError):
        made._to(NODE, 3)
    sent = made.send(NODE, {"a": object(), "b": object()})
    assert [(key, type(each.exception)) for key, each in sent.items()] == [
        ("a", NodeNotReadyError), ("b", NodeNotReadyError)
    ]  # fmt: skip
