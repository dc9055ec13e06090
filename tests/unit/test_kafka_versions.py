"""Requests that are sent again speak the version of the broker that gets them: brokers are upgraded one by one."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.net.compat import KafkaNetClient
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.producer.transaction import EndTxnRequest

from onceonly.sinks.kafka.options import KafkaOptions
from onceonly.sinks.kafka.producers.transaction import init_request
from onceonly.sinks.kafka.wire.client import Client
from onceonly.sinks.kafka.wire.plain_client import PlainClient
from onceonly.sinks.kafka.wire.settings import settings

INIT_PRODUCER_ID, END_TXN = 22, 26
NEW, OLD = 1, 2
SPEAKS = {
    NEW: BrokerVersionData((4, 0), {INIT_PRODUCER_ID: (0, 5), END_TXN: (0, 5)}),
    OLD: BrokerVersionData((3, 3), {INIT_PRODUCER_ID: (0, 4), END_TXN: (0, 3)}),
}


class Connection:
    """Writes the version into a request as kafka-python does, and answers with it."""

    connected = True
    paused: frozenset[str] = frozenset()

    def __init__(self, node: int) -> None:
        self._node = node

    async def send_request(self, request: Any, request_timeout_ms: float) -> int:  # noqa: ANN401
        if request.API_VERSION is None:
            request.API_VERSION = SPEAKS[self._node].api_version(request)
        return int(request.API_VERSION)


def test_both_clients_take_answers_as_long_as_a_large_brokers_lists() -> None:
    """The plain one stopped at 1 MB: some 20,000 groups, which are listed at each start."""
    options = KafkaOptions.parse({"kafka.bootstrap.servers": "nowhere:9", "topic": "t"})
    plain_one = KafkaNetClient(**settings(options))
    try:
        assert plain_one._manager.config["receive_message_max_bytes"] >= 100_000_000
    finally:
        plain_one.close()


def quick(request: Any, node: int) -> Any:  # noqa: ANN401  kafka-python is untyped
    client = Client.__new__(Client)
    known = SimpleNamespace(broker_metadata=SPEAKS.get)
    client._manager = SimpleNamespace(get_connection=Connection, cluster=known)
    client._patience = {}
    asking = client._ask(request, node, 5.0)
    try:
        asking.send(None)
    except StopIteration as answered:
        return answered.value
    raise AssertionError("it waits")


def plain(request: Any, node: int) -> Any:  # noqa: ANN401  kafka-python is untyped
    def send_and_receive(node: int, request: Any, timeout_ms: int) -> int:  # noqa: ANN401
        if request.API_VERSION is None:
            request.API_VERSION = SPEAKS[node].api_version(request)
        return int(request.API_VERSION)

    client = PlainClient.__new__(PlainClient)
    client._lock = threading.Lock()
    client._silent_since, client._setup_s = None, 4.0
    client._kafka = SimpleNamespace(
        cluster=SimpleNamespace(broker_metadata=SPEAKS.get),
        await_ready=lambda *_, **_more: None,
        send_and_receive=send_and_receive,
    )
    return client._ask(request, node, 5.0)


@pytest.mark.parametrize("ask", [quick, plain])
def test_a_request_that_is_sent_again_speaks_the_version_of_the_broker_that_gets_it(ask: Any) -> None:  # noqa: ANN401
    request = init_request("id", 1000)
    assert [ask(request, node) for node in (NEW, OLD, NEW)] == [5, 4, 5]


@pytest.mark.parametrize("ask", [quick, plain])
def test_the_version_that_a_handle_names_stays_with_any_broker(ask: Any) -> None:  # noqa: ANN401
    request = EndTxnRequest(
        transactional_id="id", producer_id=1, producer_epoch=2, committed=True, min_version=3, max_version=3
    )
    assert [ask(request, node) for node in (NEW, OLD)] == [3, 3]
