"""Deadlines of connections, without a broker: silent peers, black holes, names that move, and clients that are lost."""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from kafka.errors import (
    CoordinatorNotAvailableError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    RequestTimedOutError,
    UnknownBrokerIdError,
)
from kafka.future import Future
from kafka.net.selector import NetworkSelector

from onceonly import background
from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.sinks.kafka.options import KafkaOptions
from onceonly.sinks.kafka.wire import admin as admins
from onceonly.sinks.kafka.wire import client as clients
from onceonly.sinks.kafka.wire import coordinators
from onceonly.sinks.kafka.wire import plain_client as plain_clients
from onceonly.sinks.kafka.wire import settings as kafka_settings
from onceonly.sinks.kafka.wire.admin import Admin
from onceonly.sinks.kafka.wire.answers import NotAnsweredError, PutOffError
from onceonly.sinks.kafka.wire.client import Client
from onceonly.sinks.kafka.wire.manager import Manager
from onceonly.sinks.kafka.wire.plain_client import PlainClient
from onceonly.sinks.kafka.wire.settings import limits

if TYPE_CHECKING:
    from collections.abc import Iterator

SETUP_S = 0.4
LONG_S = 2.0
"""So long that a busy machine is told from a share of it."""
OPTIONS = KafkaOptions.parse({"kafka.bootstrap.servers": "nowhere:9", "topic": "t"})


@contextlib.contextmanager
def silent(host: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """A peer that takes connections and says nothing."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server((host, port), backlog=16))
        yield int(server.getsockname()[1])


@contextlib.contextmanager
def black_hole(host: str, port: int) -> Iterator[None]:
    """An address that drops what comes: nobody is taken, and the queue is full."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((host, port))
        server.listen(0)
        for _ in range(4):
            filling = stack.enter_context(socket.socket())
            filling.settimeout(0)
            filling.connect_ex((host, port))
        yield


@contextlib.contextmanager
def managed(servers: str, **more: Any) -> Iterator[Manager]:  # noqa: ANN401  kafka-python is untyped
    configs = {
        "selector": selectors.DefaultSelector, "socket_connection_setup_timeout_ms": SETUP_S * 1000,
        "socket_connection_setup_timeout_max_ms": SETUP_S * 1000, **more,
    }  # fmt: skip
    net = NetworkSelector(**configs)
    manager = Manager(net, family=more.pop("family", 0), bootstrap_servers=servers.split(","), **configs)
    net.start()
    try:
        yield manager
    finally:
        manager.close()
        net.close()


def fate(manager: Manager, connection: Any, seconds: float = 5.0) -> BaseException | None:  # noqa: ANN401
    """Wait until it is known whether a connection comes up; give why not."""
    known = threading.Event()
    connection.init_future.add_both(lambda _: known.set())
    assert known.wait(seconds), "still in the making"
    found: BaseException | None = connection.init_future.exception
    return found


def begun(manager: Manager, node: str = "bootstrap-0") -> Any:  # noqa: ANN401
    return manager._net.run(_get, manager, node)


def _get(manager: Manager, node: str) -> Any:  # noqa: ANN401
    return SimpleNamespace(connection=manager.get_connection(node))


@pytest.mark.parametrize("protocol", ["SSL", "PLAINTEXT"])
def test_a_peer_that_takes_the_connection_and_is_silent_is_given_up_in_time(protocol: str) -> None:
    with (
        silent() as port,
        managed(
            f"127.0.0.1:{port}", security_protocol=protocol, ssl_context=ssl.create_default_context()
        ) as manager,
    ):
        began = time.monotonic()
        assert fate(manager, begun(manager).connection) is not None
        assert time.monotonic() - began < SETUP_S + 2
        assert manager.connection_delay("bootstrap-0") >= 0


def test_a_handshake_that_is_not_answered_ends_by_its_own_deadline() -> None:
    with (
        silent() as port,
        managed(
            f"127.0.0.1:{port}", security_protocol="SSL", ssl_context=ssl.create_default_context()
        ) as manager,
    ):
        error = fate(manager, begun(manager).connection)
        assert "127.0.0.1" in str(error), "not only closed from outside: nothing waits for it any more"


def test_behind_a_black_hole_the_next_address_is_tried_and_next_time_it_comes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = socket.getaddrinfo
    with silent() as port, black_hole("127.0.0.9", port):

        def found(host: str, wanted: int, *more: int) -> list[Any]:
            if host != "broker.example":
                return asked(host, wanted, *more)
            if socket.AI_NUMERICHOST in more[3:]:
                raise socket.gaierror(socket.EAI_NONAME, "it is a name")
            hosts = ("127.0.0.9", "127.0.0.1")
            return [each for name in hosts for each in asked(name, port, 0, socket.SOCK_STREAM)]

        monkeypatch.setattr(socket, "getaddrinfo", found)
        with managed(f"broker.example:{port}") as manager:
            node = SimpleNamespace(node_id=1, host="broker.example", port=port)
            # Each address has its share of the time: half of it for the first of two, which answers nobody.
            for share in (1 / 2, 1 / 8):
                began = time.monotonic()
                transport = manager._net.run(manager._build_transport, node, began + LONG_S)
                assert time.monotonic() - began < (share + 1 / 4) * LONG_S
                assert transport.getPeer()[0] == "127.0.0.1"
                manager._net.run(transport.abort)


def test_a_name_that_is_slow_to_be_found_holds_back_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, free = socket.getaddrinfo, threading.Event()

    def found(host: str, wanted: int, *more: int) -> list[Any]:
        if host != "broker.example":
            return asked(host, wanted, *more)
        if socket.AI_NUMERICHOST in more[3:]:
            raise socket.gaierror(socket.EAI_NONAME, "it is a name")
        free.wait(10)
        return asked("127.0.0.1", wanted, *more)

    monkeypatch.setattr(socket, "getaddrinfo", found)
    with managed("broker.example:9") as manager:
        connection = begun(manager).connection
        began = time.monotonic()
        manager._net.run(lambda: None)
        assert time.monotonic() - began < SETUP_S
        assert fate(manager, connection) is not None
        free.set()


def test_a_name_that_nobody_could_look_up_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread could be had; who came later waited for it until the process ended."""
    begin, refused = background.begin, [RuntimeError("can't start new thread")]

    def begun(*arguments: Any) -> Any:  # noqa: ANN401  as what it stands for
        if refused:
            raise refused.pop()
        return begin(*arguments)

    monkeypatch.setattr(background, "begin", begun)
    with silent() as port, managed(f"localhost:{port}") as manager:
        node = SimpleNamespace(node_id=1, host="localhost", port=port)
        with pytest.raises(RuntimeError, match="new thread"):
            manager._net.run(manager._build_transport, node, time.monotonic() + LONG_S)
        transport = manager._net.run(manager._build_transport, node, time.monotonic() + LONG_S)
        manager._net.run(transport.abort)


def test_servers_that_were_not_tried_come_before_those_that_were_in_vain() -> None:
    with managed("127.0.0.1:1,127.0.0.2:1,127.0.0.3:1") as manager:
        manager.update_backoff("bootstrap-0")
        manager.update_backoff("bootstrap-2")
        assert [each.node_id for each in manager.cluster.bootstrap_brokers()] == ["bootstrap-1"]
        manager.update_backoff("bootstrap-1")
        assert len(manager.cluster.bootstrap_brokers()) == 3


def test_a_client_that_does_not_come_up_says_what_befell_its_last_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kafka-python says only that it could not bootstrap."""
    monkeypatch.setattr(kafka_settings, "CONNECT_S", 0.3)
    with pytest.raises(NotAnsweredError, match=r"Unable to bootstrap .*127\.0\.0\.1:1: .*ECONNREFUSED"):
        Client(KafkaOptions.parse({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}))


# --- one client gives way to another -----------------------------------------------------------------------------


def _by(monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace) -> None:
    """Have both clients go by a clock."""
    for module in (clients, plain_clients, coordinators):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))


def _unconnected() -> Client:
    client = Client.__new__(Client)
    client._net = SimpleNamespace(_closed=False, _exception=None)
    client._silent_since, client._heard = None, 0.0
    return client


def test_a_client_that_nobody_has_answered_for_a_while_is_not_used_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(now=1000.0)
    _by(monkeypatch, clock)
    client = _unconnected()
    clock.now += 3600
    assert client.is_usable(), "nobody was asked"
    client._note(clock.now, is_answered=False)
    clock.now += 4
    client._note(clock.now, is_answered=False)
    assert client.is_usable()
    clock.now += 2
    assert not client.is_usable()
    client._note(clock.now, is_answered=True)
    assert client.is_usable(), "somebody has answered"


@pytest.mark.parametrize("vain_s", [0.0, 0.1, 4.5, 4.9])
def test_a_client_that_falls_silent_in_one_state_after_another_is_given_up_as_soon_as_in_one(
    vain_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that does not come up, then one that does and is silent: each alone may take its whole time."""
    clock = SimpleNamespace(now=1000.0)
    _by(monkeypatch, clock)
    client = _unconnected()

    class Never:
        def result(self, wait_s: float) -> None:
            clock.now += wait_s
            raise TimeoutError

    monkeypatch.setattr(client, "_begin", lambda *_: Never())
    began = clock.now
    if vain_s:
        clock.now += vain_s
        client._note(began, is_answered=False)
        assert client.is_usable()
    with pytest.raises(NotAnsweredError):
        client._in_its_thread(lambda: None)
    assert not client.is_usable()
    assert clock.now - began == pytest.approx(10.5)
    assert clock.now - began + kafka_settings.SETUP_S < 15, "one address in vain, and another client is there"


def test_one_broker_that_was_silent_for_long_does_not_hide_that_others_have_answered_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(now=1000.0)
    _by(monkeypatch, clock)
    client = _unconnected()
    began = clock.now
    clock.now += 9.9
    client._note(clock.now, is_answered=True)
    clock.now += 0.1
    client._note(began, is_answered=False)
    assert client.is_usable(), "its connections to the others would be closed with all that is on them"
    clock.now += 5
    assert not client.is_usable()


def test_who_waits_for_his_turn_at_a_plain_client_was_not_left_without_an_answer_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(now=1000.0)
    _by(monkeypatch, clock)

    class Turn:
        def acquire(self, timeout: float) -> bool:
            clock.now += 9
            return timeout > 9

        def release(self) -> None:
            pass

    def refused(*_: object, **_more: object) -> None:
        raise KafkaConnectionError("refused")

    client = PlainClient.__new__(PlainClient)
    client._lock, client._silent_since, client._is_closed = cast("Any", Turn()), None, False
    client._setup_s = 4.0
    client._kafka = SimpleNamespace(
        cluster=SimpleNamespace(broker_metadata=str), await_ready=refused, close=lambda _node: None
    )
    with pytest.raises(NotAnsweredError, match="refused"):
        client.send("request", 1)
    assert client.is_usable()


def test_who_waits_for_others_at_a_plain_client_that_is_silent_does_not_wait_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(now=1000.0)
    _by(monkeypatch, clock)
    client = PlainClient.__new__(PlainClient)
    client._silent_since, client._is_closed = clock.now - 8, False
    assert not client.is_usable()
    waited: list[float] = []

    class Taken:
        def acquire(self, timeout: float) -> bool:
            waited.append(timeout)
            return False

    client._lock = cast("Any", Taken())
    with pytest.raises(NotAnsweredError, match="others wait"):
        client.send("request", 1)
    clock.now += 100
    with pytest.raises(NotAnsweredError, match="others wait"):
        client.send("request", 1)
    assert waited == [2.5, 1.0]


def test_a_plain_client_learns_of_a_broker_that_has_joined_since_its_start() -> None:
    known = {1: "one"}
    asked: list[tuple[int, str]] = []

    def answer(node: int, request: str, timeout_ms: float) -> str:
        assert timeout_ms > 0
        asked.append((node, request))
        return request.upper()

    client = PlainClient.__new__(PlainClient)
    client._lock, client._silent_since, client._setup_s = threading.Lock(), None, 4.0
    client._kafka = SimpleNamespace(
        cluster=SimpleNamespace(
            broker_metadata=known.get,
            metadata_request=lambda: "metadata",
            update_metadata=lambda found: known.setdefault(2, found),
        ),
        await_ready=lambda _node, timeout_ms: timeout_ms,
        least_loaded_node=lambda bootstrap_fallback: 1 if bootstrap_fallback else None,
        send_and_receive=answer,
    )
    assert [client.send("commit", node) for node in (2, 2, None)] == ["COMMIT"] * 3
    assert asked == [(1, "metadata"), (2, "commit"), (2, "commit"), (1, "commit")]


def test_a_plain_client_gives_up_a_connection_that_does_not_come_up() -> None:
    client = PlainClient.__new__(PlainClient)
    client._lock, client._silent_since, client._setup_s = threading.Lock(), None, 4.0
    closed: list[int] = []

    def not_ready(node: int, timeout_ms: int) -> None:
        raise KafkaConnectionError(f"node {node} is not ready after {timeout_ms} ms")

    client._kafka = SimpleNamespace(
        cluster=SimpleNamespace(broker_metadata=str), await_ready=not_ready, close=closed.append
    )
    with pytest.raises(NotAnsweredError, match=r"node 7 is not ready after (3999|4000) ms"):
        client.send("request", 7)
    assert closed == [7], "the next request would wait for it again"


def test_a_client_whose_brokers_answer_with_an_error_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """So they do while the topic of transactions is made; its other connections would be closed each time."""
    clock = SimpleNamespace(now=1000.0)
    _by(monkeypatch, clock)
    client = _unconnected()
    client._coordinators = {}
    failure: list[Exception] = [CoordinatorNotAvailableError("not yet")]
    client._manager = SimpleNamespace(call_soon=lambda *_: Future().failure(failure[0]))
    for _ in range(7):
        with pytest.raises(PutOffError, match=r"error 15 \(CoordinatorNotAvailableError\) of not yet"):
            client.coordinator(1, "id")
        clock.now += 1
    assert client.is_usable()
    failure[0] = RequestTimedOutError("Request timed out after 10000 ms")
    for _ in range(7):
        with pytest.raises(NotAnsweredError) as caught:
            client.coordinator(1, "id")
        assert not isinstance(caught.value, PutOffError)
        clock.now += 1
    assert not client.is_usable()


@pytest.mark.parametrize(
    ("error", "said", "next_step"),
    [
        (NotAnsweredError("refused"), "did not answer for 0 s: it: refused.", "see that the brokers run"),
        (
            PutOffError(3, "topic t"),
            r"has put us off for 0 s: it: error 3 \(Unknown.*\) of topic t.",
            "create it",
        ),
        (PutOffError(15), r"has put us off for 0 s: it: error 15 \(Coord.*\).", "in the brokers' logs"),
    ],
)
def test_silence_is_said_to_be_one_and_an_answer_is_told(
    error: NotAnsweredError, said: str, next_step: str
) -> None:
    def attempt() -> None:
        raise error

    with pytest.raises(UnavailableError, match=said) as caught:
        Admin(OPTIONS).patiently(0, "it", attempt)
    assert next_step in caught.value.next_step


def test_an_answer_that_is_none_ends_the_wait_for_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was taken for one, and failed where its code was read."""
    client = _unconnected()

    def fails(_call: object, _kind: int, _requests: object, sent: dict[str, Future]) -> None:
        sent["a"] = Future().success("answer")
        sent["b"] = Future().failure(IncompatibleBrokerVersion("EndTxn 5"))

    monkeypatch.setattr(client, "_in_its_thread", fails)
    with pytest.raises(ConfigurationError, match=r"too old: .*EndTxn 5"):
        client.send_all(1, {"a": "request", "b": "request"})


def test_one_that_is_lost_gives_way_to_a_new_one_and_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = threading.Event()
    old = SimpleNamespace(is_usable=lambda: False, close=closed.set)
    new = SimpleNamespace(is_usable=lambda: True, close=lambda: None)
    made = iter([old, new])
    monkeypatch.setattr(clients, "Client", lambda _options: next(made))
    admin = Admin(OPTIONS)
    given: list[Any] = [admin.client() for _ in range(3)]
    assert given == [old, new, new]
    assert closed.wait(10)


def test_who_comes_while_a_client_is_made_waits_for_that_one_and_not_for_his_own_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []

    def never(_options: KafkaOptions) -> Client:
        made.append(1)
        time.sleep(0.3)
        raise NotAnsweredError("nobody")

    monkeypatch.setattr(clients, "Client", never)
    admin, failed = Admin(OPTIONS), []

    def ask() -> None:
        with contextlib.suppress(NotAnsweredError):
            admin.client()
        failed.append(1)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(failed) == 8
    assert len(made) <= 2
    assert time.monotonic() - began < 1.5


def test_a_client_that_comes_up_when_nobody_waits_for_it_any_more_is_closed_and_takes_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its bootstrap server has answered at last, when another one had been found."""
    free, closed = threading.Event(), threading.Event()
    late = SimpleNamespace(is_usable=lambda: True, close=closed.set)
    used = SimpleNamespace(is_usable=lambda: True, close=lambda: None)
    made = iter([late, used])

    def client(_options: KafkaOptions) -> Any:  # noqa: ANN401  a stand-in
        found = next(made)
        if found is late:
            free.wait(10)
        return found

    monkeypatch.setattr(clients, "Client", client)
    monkeypatch.setattr(admins, "_NEW_S", 0.1)
    admin = Admin(OPTIONS)
    with pytest.raises(NotAnsweredError, match=r"no connection within 0\.1 s"):
        admin.client()
    given: list[Any] = [admin.client()]
    free.set()
    assert closed.wait(10)
    given.append(admin.client())
    assert given == [used, used]


def test_limits_of_connections_are_passed_on() -> None:
    options = KafkaOptions.parse(
        {
            "kafka.bootstrap.servers": "h:1", "topic": "t", "kafka.connections.max.idle.ms": "-1",
            "kafka.socket.connection.setup.timeout.ms": "2500", "kafka.socket.keepalive.enable": "false",
            "kafka.send.buffer.bytes": "65536",
        }
    )  # fmt: skip
    found = limits(options)
    assert (
        found["socket_connection_setup_timeout_ms"] == found["socket_connection_setup_timeout_max_ms"] == 2500
    )
    assert found["connections_max_idle_ms"] > 10**9
    assert (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1) not in found["socket_options"]
    assert (socket.SOL_SOCKET, socket.SO_SNDBUF, 65536) in found["socket_options"]


def test_a_broker_that_kafka_python_does_not_know_is_asked_for_and_found_by_a_later_request() -> None:
    """It was down when kafka-python last asked who there is, and would next ask in five minutes."""
    asked, brokers = list[str](), dict[int, object]()

    class Answering:
        connected, paused = True, frozenset[str]()

        async def send_request(self, request: object, **_more: float) -> object:
            return request

    def connection(node: int) -> Answering:
        if node not in brokers:
            raise UnknownBrokerIdError(node)
        return Answering()

    client = Client.__new__(Client)
    client._patience = {}
    client._manager = SimpleNamespace(
        get_connection=connection,
        cluster=SimpleNamespace(broker_metadata=brokers.get, request_update=lambda: asked.append("update")),
    )
    with pytest.raises(UnknownBrokerIdError):
        client._ask("request", 7, 5.0).send(None)
    assert asked == ["update"]
    brokers[7] = "there"
    with pytest.raises(StopIteration):
        client._ask("request", 7, 5.0).send(None)
    assert asked == ["update"]
