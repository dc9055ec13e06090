"""Peers that take a connection and fall silent, in any state of it: each client is soon replaced by one that works."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka_proxy import KafkaProxy
from kafka_query import PROPERTIES, Query, wait_for
from tests.unit.certificates import certificate

from onceonly.model import AlreadyCommitted, Committed, RetryLater
from onceonly.sinks.kafka.options import KafkaOptions
from onceonly.sinks.kafka.wire import names
from onceonly.sinks.kafka.wire.admin import TRANSACTION, Admin
from onceonly.sinks.kafka.wire.answers import NotAnsweredError
from onceonly.sinks.kafka.wire.client import Client
from onceonly.sinks.kafka.wire.plain_client import PlainClient
from onceonly_proof.embedded.kafka import EmbeddedKafka
from onceonly_proof.embedded.kafka_cluster import EmbeddedCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.integration,
    # kafka-python 3.0 reads its schemas by a function that importlib has deprecated.
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]
World = Callable[[Path], AbstractContextManager[tuple[KafkaProxy, EmbeddedKafka, dict[str, str]]]]
REPLACED_S = 15.0
"""A client that is stuck is replaced within so long."""
WAYS = {"quick": Client, "plain": PlainClient}
ENDED = {Committed(), AlreadyCommitted()}
CANARY = "canary-password-91d2"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@contextlib.contextmanager
def plain(_folder: Path) -> Iterator[tuple[KafkaProxy, EmbeddedKafka, dict[str, str]]]:
    with KafkaProxy() as proxy:
        kafka = EmbeddedKafka(properties={**PROPERTIES, **proxy.properties})
        proxy.forward_to(kafka)
        with kafka:
            yield proxy, kafka, {}


@contextlib.contextmanager
def by_login(_folder: Path) -> Iterator[tuple[KafkaProxy, EmbeddedKafka, dict[str, str]]]:
    jaas = f'{LOGIN} required username="admin" password="{CANARY}" user_admin="{CANARY}";'
    client = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    client |= {"sasl.username": "admin", "sasl.password": CANARY}
    with KafkaProxy() as proxy:
        kafka = EmbeddedKafka(
            properties={
                **PROPERTIES,
                **proxy.properties,
                "listener.security.protocol.map": "BROKER:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "listener.name.broker.plain.sasl.jaas.config": jaas,
            },
            client_properties=client,
        )
        proxy.forward_to(kafka)
        with kafka:
            yield proxy, kafka, client


@contextlib.contextmanager
def by_tls(folder: Path) -> Iterator[tuple[KafkaProxy, EmbeddedKafka, dict[str, str]]]:
    made, key = certificate(folder, names="IP:127.0.0.1,DNS:localhost")
    both = folder / "both.pem"
    both.write_text(key.read_text() + made.read_text())
    client = {"security.protocol": "SSL", "ssl.ca.location": str(made)}
    with KafkaProxy(is_opaque=True) as proxy:
        kafka = EmbeddedKafka(
            properties={
                **PROPERTIES,
                **proxy.properties,
                "listener.security.protocol.map": "BROKER:SSL,CONTROLLER:PLAINTEXT",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(both),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(made),
            },
            client_properties=client,
        )
        proxy.forward_to(kafka)
        with kafka:
            yield proxy, kafka, client


@pytest.fixture(scope="module", params=[plain, by_login, by_tls])
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[KafkaProxy, EmbeddedKafka, dict[str, str]]]:
    world: World = request.param
    with world(tmp_path_factory.mktemp("world")) as opened:
        yield opened


@pytest.fixture(params=["quick", "plain"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which client is taken: the one by kafka-python's public names only, where it is the plain way."""
    found: str = request.param
    if found == "plain":
        monkeypatch.setattr(names, "missing", lambda: ("a name",))
    return found


@pytest.mark.parametrize(
    ("after", "way"),
    [
        pytest.param(0, "quick", id="taken and silent"),
        pytest.param(1, "quick", id="one byte"),
        pytest.param(400, "quick", id="half way"),
        pytest.param(0, "plain", id="taken and silent, plain", marks=pytest.mark.long),
        pytest.param(1, "plain", id="one byte, plain", marks=pytest.mark.long),
        pytest.param(400, "plain", id="half way, plain", marks=pytest.mark.long),
    ],
    indirect=["way"],
)
def test_a_client_that_is_stuck_in_any_state_is_replaced(
    shared: tuple[KafkaProxy, EmbeddedKafka, dict[str, str]], after: int, way: str
) -> None:
    proxy, kafka, client = shared
    options = {
        "kafka.bootstrap.servers": proxy.address,
        **{f"kafka.{key}": each for key, each in client.items()},
    }
    query = Query(kafka, **options)
    assert isinstance(query.sink._admin.client(), WAYS[way])
    handles = [query.prepare("a", slot=slot) for slot in range(2)]
    proxy.silence(after)
    try:
        proxy.cut_all()
        began = time.monotonic()
        outcomes: list[object] = []
        # Several at a time, as the runtime asks; none waits for the ends of all the others.
        asking = [
            threading.Thread(target=lambda: outcomes.append(query.sink.commit(handles[0]))) for _ in range(4)
        ]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join(REPLACED_S + 5)
        assert len(outcomes) == 4, "each attempt ends in time, however many wait"
        assert time.monotonic() - began < REPLACED_S
        assert {type(each) for each in outcomes} == {RetryLater}
    finally:
        proxy.speak()
    spoken = time.monotonic()
    for number, handle in enumerate(handles):
        assert query.commit(handle) in ENDED, number
    assert time.monotonic() - spoken < REPLACED_S
    assert query.commit(query.prepare("b", epoch=1)) in ENDED


def test_one_silent_broker_holds_back_no_commit_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is silent is the way to it: the brokers see each other, or none could write its transactions down."""
    with EmbeddedCluster(properties=PROPERTIES) as cluster, socket.create_server(("127.0.0.1", 0)) as server:
        query = Query(cluster)
        handles = [query.prepare("a", slot=slot) for slot in range(24)]
        admin = query.admin()
        at = {each.transaction: admin.client().coordinator(TRANSACTION, each.transaction) for each in handles}
        admin.close()
        assert len(set(at.values())) > 1, "their coordinators are several"
        assert set(query.sink.commit_many([query.prepare("z", slot=24)])) <= ENDED
        # As right before a decision; what is tried later is asked of the leaders of its partitions first.
        assert query.sink.expiring(handles, query.facts, 0.0) == ""
        silent = at[handles[0].transaction]
        theirs = int(cluster.broker(silent).bootstrap_servers.rpartition(":")[2])
        detours = {theirs: int(server.getsockname()[1])}
        client = query.sink._admin.client()
        assert isinstance(client, Client)
        manager = client._manager
        addresses = manager._addresses

        async def detour(host: str, port: int, timeout_at: float) -> Any:  # noqa: ANN401  kafka-python is untyped
            return await addresses(host, detours.get(port, port), timeout_at)

        monkeypatch.setattr(manager, "_addresses", detour)
        for node, connection in list(manager._conns.items()):
            if str(node).partition("/")[0] == str(silent):
                manager._net.run(connection.close)
        began = time.monotonic()
        found = query.sink.commit_many(handles)
        assert time.monotonic() - began < REPLACED_S
        outcomes = dict(zip((each.transaction for each in handles), found, strict=True))
        others = [outcomes[name] for name, node in at.items() if node != silent]
        assert set(others) <= ENDED
        assert {type(outcomes[name]) for name, node in at.items() if node == silent} == {RetryLater}
        detours.clear()
        began = time.monotonic()
        wait_for(lambda: set(query.sink.commit_many(handles)) <= ENDED, "all of them")
        assert time.monotonic() - began < REPLACED_S


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("way", ["quick", pytest.param("plain", marks=pytest.mark.long)], indirect=True)
def test_where_all_addresses_have_moved_the_bootstrap_names_lead_on() -> None:
    """The names of the start stay, behind them is another address: the broker's old one takes nobody any more."""
    with KafkaProxy() as names, KafkaProxy() as old, KafkaProxy() as new:
        kafka = EmbeddedKafka(properties={**PROPERTIES, **old.properties})
        for each in (names, old, new):
            each.forward_to(kafka)
        with kafka:
            query = Query(kafka, **{"kafka.bootstrap.servers": names.address})
            handle = query.prepare("a")
            kafka.stop()
            kafka._properties.update(new.properties)
            kafka._is_formatted = False  # its settings are written anew, its data stay
            old.silence()  # before anybody can learn by it where the new one is
            kafka.start()
            old.cut_all()
            began = time.monotonic()
            assert query.commit(handle) in ENDED
            assert time.monotonic() - began < REPLACED_S


def resolve(monkeypatch: pytest.MonkeyPatch, name: str, *hosts: str) -> None:
    asked = socket.getaddrinfo

    def found(host: str, port: int, *more: int, **others: int) -> list[Any]:
        if host != name:
            return asked(host, port, *more, **others)
        family = more[0] if more else others.get("family", 0)
        if socket.AI_NUMERICHOST in (*more[3:], others.get("flags")):
            raise socket.gaierror(socket.EAI_NONAME, "it is a name")
        answers = [each for host in hosts for each in asked(host, port, 0, socket.SOCK_STREAM)]
        return [each for each in answers if family in {0, each[0]}]

    monkeypatch.setattr(socket, "getaddrinfo", found)


@contextlib.contextmanager
def black_hole(host: str, port: int) -> Iterator[None]:
    """An address that drops what comes: its listener takes nobody, and its queue is full."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        server.bind((host, port))
        server.listen(0)
        for _ in range(4):
            filling = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            filling.settimeout(0)
            filling.connect_ex((host, port))
        yield


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("hole", ["127.0.0.9", "::1"])
def test_behind_an_address_that_is_a_black_hole_the_next_one_is_tried(
    hole: str, kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(kafka.bootstrap_servers.rpartition(":")[2])
    resolve(monkeypatch, "broker.example", hole, "127.0.0.1")
    admin = Admin(KafkaOptions.parse({"kafka.bootstrap.servers": f"broker.example:{port}", "topic": "t"}))
    with black_hole(hole, port):
        began = time.monotonic()
        while True:
            try:
                assert admin.cluster_id
                break
            except NotAnsweredError:
                assert time.monotonic() - began < REPLACED_S
        assert time.monotonic() - began < REPLACED_S
    admin.close()


def test_only_addresses_of_the_family_that_is_wanted_are_tried(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(kafka.bootstrap_servers.rpartition(":")[2])
    resolve(monkeypatch, "broker.example", "::1", "127.0.0.1")
    options = {
        "kafka.bootstrap.servers": f"broker.example:{port}", "topic": "t",
        "kafka.broker.address.family": "v4", "kafka.socket.connection.setup.timeout.ms": "1000",
    }  # fmt: skip
    with black_hole("::1", port):
        admin = Admin(KafkaOptions.parse(options))
        began = time.monotonic()
        assert admin.cluster_id
        assert time.monotonic() - began < 1.0, "the other address was not tried"
        admin.close()
