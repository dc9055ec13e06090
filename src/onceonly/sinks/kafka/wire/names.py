"""Whether this kafka-python is one that commits can stand on: its private names, and how it spells. Any process, once.

The quick way (``client``, ``manager``, ``connections``, ``end_txn``, ``produce``) uses names that kafka-python does not
promise. Where one is missing, the plain way (``plain_client``) commits by what it does promise, more slowly.
"""

from __future__ import annotations

import functools
import inspect
import logging
from typing import TYPE_CHECKING, Any

from onceonly.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Iterator

OLDEST, NEWEST, NEXT_MAJOR = "3.0.8", "3.0.12", "3.1"
"""The versions that the tests of the wire were run with, and the first that may be another one."""

log = logging.getLogger("onceonly")

# Of an object that is made without a network: its names, private or not, on which the quick way stands.
_OF_MANAGER = (
    "_build_transport", "_connect", "_conns", "_net", "broker_version_data", "call_soon", "cluster", "config",
    "connection_delay", "get_connection", "least_loaded_node", "reset_backoff", "send", "ssl_enabled", "update_backoff",
    "wait_for",
)  # fmt: skip
_OF_CLUSTER = (
    "add_coordinator", "bootstrap_brokers", "broker_metadata", "brokers", "cluster_id", "request_update",
)  # fmt: skip
_OF_LOOP = (
    "_closed", "_exception", "call_at", "call_later", "call_soon", "call_soon_threadsafe", "cancel", "close", "sleep",
    "start", "stop", "wait_read", "wait_write",
)  # fmt: skip
_OF_CONNECTION = (
    "close", "close_future", "connected", "init_future", "initializing", "paused", "send_request", "transport",
)  # fmt: skip
_OF_TRANSPORT = ("_net", "_sock", "_write_buffer", "abort", "host_port")
_OF_ADMIN = ("close",)
# Of a function: the names of what it takes.
_TAKES = {
    ("kafka.net.manager", "KafkaConnectionManager.get_connection"): ("node_id", "timeout_ms"),
    ("kafka.net.manager", "KafkaConnectionManager._connect"): ("node", "conn", "timeout_at"),
    ("kafka.net.manager", "KafkaConnectionManager._build_transport"): ("node", "timeout_at"),
    ("kafka.net.connection", "KafkaConnection.send_request"): ("request", "request_timeout_ms"),
    ("kafka.net.selector", "NetworkSelector.wait_read"): ("fileobj", "timeout_at"),
    ("kafka.net.selector", "NetworkSelector.wait_write"): ("fileobj", "timeout_at"),
    ("kafka.net.transport", "KafkaTCPTransport.__init__"): ("net", "sock", "host"),
    ("kafka.net.transport", "KafkaSSLTransport.__init__"): ("net", "sock", "host", "configs"),
    ("kafka.net.compat", "KafkaNetClient.__init__"): ("net", "manager"),
    ("kafka.cluster", "ClusterMetadata.add_coordinator"): (
        "response",
        "key_type",
        "key",
        "synthesize_node_id",
    ),
}


@functools.cache
def missing() -> tuple[str, ...]:
    """Name what this kafka-python lacks of what the quick way stands on; empty where it may be taken. Logged once."""
    try:
        found = tuple(_missing())
    except Exception as error:  # noqa: BLE001  a version that nobody knows may raise anything
        found = (f"{type(error).__name__}: {error}",)
    if found:
        told = unfit(found)
        log.warning(
            "%s Commits go the plain way meanwhile, which is slower. Next: %s", told.what, told.next_step
        )
    return found


def unfit(found: tuple[str, ...]) -> SetupError:
    """Say which version lacks what, and which to take."""
    import kafka

    return SetupError(
        f"kafka-python {getattr(kafka, '__version__', '?')} is not one that the Kafka sink knows: it lacks "
        f"{', '.join(found[:3])}{' and more' if len(found) > 3 else ''}.",  # noqa: PLR2004  as many as are named
        next_step=f"pip install 'kafka-python>={OLDEST},<{NEXT_MAJOR}' on driver and executors",
    )


def _missing() -> Iterator[str]:
    import importlib

    from kafka import KafkaAdminClient
    from kafka.net.connection import KafkaConnection
    from kafka.net.selector import NetworkSelector
    from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

    for (module, path), takes in _TAKES.items():
        function: Any = importlib.import_module(module)
        for name in path.split("."):
            function = getattr(function, name, None)
        known = inspect.signature(function).parameters if function is not None else {}
        yield from (f"{path}({name})" for name in takes if name not in known)
    yield from _lacks(KafkaAdminClient, _OF_ADMIN)
    if "kafka_client" not in KafkaAdminClient.DEFAULT_CONFIG:
        yield "KafkaAdminClient(kafka_client)"
    from onceonly.sinks.kafka.wire.manager import Manager

    net = NetworkSelector()
    try:
        manager = Manager(net, family=0, bootstrap_servers=["nowhere:9"])
        yield from _lacks(net, _OF_LOOP)
        yield from _lacks(manager, _OF_MANAGER)
        yield from _lacks(manager.cluster, _OF_CLUSTER)
        yield from _lacks(KafkaConnection(net, node_id=0), _OF_CONNECTION)
        yield from _lacks(KafkaTCPTransport(net, None), _OF_TRANSPORT)
        yield from _lacks(KafkaSSLTransport, ("abort",))
    finally:
        net.close()
    yield from _misspells()


def _lacks(thing: Any, names: tuple[str, ...]) -> Iterator[str]:  # noqa: ANN401  kafka-python is untyped
    kind = thing if isinstance(thing, type) else type(thing)
    yield from (f"{kind.__name__}.{name}" for name in names if not hasattr(thing, name))


def _misspells() -> Iterator[str]:
    """See that a commit that we spell ourselves goes out as kafka-python spells it, and that its answer is read."""
    from kafka.protocol.parser import KafkaProtocol
    from kafka.protocol.producer.transaction import EndTxnRequest

    from onceonly.sinks.kafka.wire.end_txn import EndTxn

    ours, theirs = KafkaProtocol(client_id="c"), KafkaProtocol(client_id="c")
    ours.send_request(EndTxn("id", producer_id=5, producer_epoch=2, version=3))
    request = EndTxnRequest(
        transactional_id="id", producer_id=5, producer_epoch=2, committed=True, min_version=3, max_version=3
    )
    request.API_VERSION = 3
    theirs.send_request(request)
    sent = ours.send_bytes()
    if sent != theirs.send_bytes():
        yield "EndTxnRequest as it was"
    correlation_id = sent[8:12]
    body = correlation_id + b"\0" + b"\0\0\0\0" + b"\0\x07" + b"\0"
    answers = ours.receive_bytes(len(body).to_bytes(4, "big") + body)
    if [getattr(answer, "error_code", None) for _, answer in answers] != [7]:
        yield "EndTxnResponse as it was"
