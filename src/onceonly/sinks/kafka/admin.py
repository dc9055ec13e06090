"""A connection for administration, by kafka-python: whole requests, one on the wire each, no hidden retry.

librdkafka ends only transactions of its own producers; to end one from its durable name, the request
must be sent as it is. Used on the driver, and on executors for reading markers.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import operator
import os
import selectors
import struct
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from onceonly.errors import ConfigurationError, SetupError, UnavailableError
from onceonly.sinks.kafka.connections import Connections
from onceonly.sinks.kafka.security import security

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import ModuleType

    from onceonly.sinks.kafka.options import KafkaOptions

T = TypeVar("T")

GROUP = 0
TRANSACTION = 1
"""Kinds of coordinator, as in the protocol's FindCoordinator."""

# Error codes of the protocol: org.apache.kafka.common.protocol.Errors.
NONE = 0
UNKNOWN_TOPIC = 3
COORDINATOR_CODES = frozenset({14, 15, 16})  # loading, not available, not this one
NOT_YET_CODES = COORDINATOR_CODES | {7, 8, 13, 51, 56, 88}  # time-outs, 51 still ending, 88 unstable
_FORBIDDEN = {
    29: "WRITE and DESCRIBE on topic {}",
    30: "READ and DESCRIBE on group {}",
    31: "the cluster operation for {}",
    53: "WRITE and DESCRIBE on transactional id {}",
}

_CONNECT_TIMEOUT_MS = 10_000
_REQUEST_TIMEOUT_MS = 10_000
# To connect, to look somebody up, and to be answered.
_ANSWER_S = 40.0
_PAUSE_S = 0.02
# More than the threads that commit at a time have on the wire: beyond it kafka-python refuses to send.
_IN_FLIGHT_MAX = 2048


class NotAnsweredError(Exception):
    """No answer, or "not now": the request may or may not have been carried out."""


def import_kafka() -> ModuleType:
    """Import kafka-python, or say how to install it."""
    try:
        kafka = importlib.import_module("kafka")
    except ImportError as error:
        raise SetupError(
            "The Kafka sink needs kafka-python, which is not installed.",
            next_step="pip install 'onceonly[kafka]' on driver and executors",
        ) from error
    # At DEBUG it writes whole requests into the log, passwords among them.
    logger = logging.getLogger("kafka")
    if logger.level < logging.WARNING:
        logger.setLevel(logging.WARNING)
    return kafka


def refuse_forbidden(code: int, thing: str) -> None:
    """Raise ``ConfigurationError`` with the permission to grant, if that is what ``code`` says."""
    if code in _FORBIDDEN:
        raise ConfigurationError(
            f"Kafka refuses access to {thing} (error {code}).",
            next_step=f"grant the client's user {_FORBIDDEN[code].format(thing)}",
        )


@functools.lru_cache
def _powers(count: int) -> Sequence[int]:
    """Give what so many units of a text are multiplied by: powers of 31, modulo 2**32."""
    return [pow(31, exponent, 1 << 32) for exponent in reversed(range(count))]


def transaction_partition(transactional_id: str, partitions: int) -> int:
    """Give the partition of ``__transaction_state`` that holds an id, as Kafka's ``TransactionStateManager`` does."""
    text = transactional_id.encode("utf-16-be")
    units = struct.unpack(f">{len(text) // 2}H", text)
    code = sum(map(operator.mul, units, _powers(len(units)))) & 0xFFFFFFFF  # Java's String.hashCode
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return 0 if signed == -(1 << 31) else abs(signed) % partitions


class Admin:
    """One connection, made when first needed. Thread-safe; made anew in a forked process."""

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._client: Any = None
        self._pid = 0

    @property
    def cluster_id(self) -> str:
        """Name the cluster that answers. Raises ``NotAnsweredError``."""
        return str(self.client().cluster_id())

    def client(self) -> _Client:
        """Give the connection. Raises ``NotAnsweredError`` within bounded time, ``ConfigurationError``."""
        with self._lock:
            if self._client is None or self._pid != os.getpid() or self._client.has_ended():
                self._client = _Client(self._options)
                self._pid = os.getpid()
            client: _Client = self._client
            return client

    def send(self, request: Any, node: int | None = None) -> Any:  # noqa: ANN401  kafka-python is untyped
        """Send one request to a broker and give its response."""
        return self.client().send(request, node)

    def post(self, request: Any, node: int, timeout_ms: int) -> Future[Any]:  # noqa: ANN401
        """Send one request to a broker; its response, or ``NotAnsweredError``, comes later. Raises the latter, too."""
        return self.client().post(request, node, timeout_ms)

    def to_coordinator(self, kind: int, key: str, request: Any) -> Any:  # noqa: ANN401
        """Send one request to the coordinator of a group or transactional id and give its response."""
        client = self.client()
        try:
            return client.send(request, client.coordinator(kind, key))
        except NotAnsweredError:
            client.forget(kind, key)
            raise

    def to_coordinators(self, kind: int, requests: Mapping[str, Any]) -> dict[str, Any | NotAnsweredError]:
        """Send many requests, each to the coordinator of its key, and only then wait; give the answers by key.

        Raises ``NotAnsweredError`` where there is no connection.
        """
        client = self.client()
        answers = client.send_all(kind, requests)
        for key, answer in answers.items():
            if isinstance(answer, NotAnsweredError):
                # A broker that is down still looks like a leader; from now on coordinators are asked for.
                client.forget(kind, key)
                client.leaders = []
        return answers

    def forget(self, kind: int, key: str) -> None:
        """Look the coordinator up again next time, and guess none until leaders are learnt anew. Sends nothing."""
        client = self._client  # a new one, which may not come up, has nothing to forget
        if client is not None:
            client.forget(kind, key)
            client.leaders = []

    def learn_leaders(self, leaders: Sequence[int]) -> None:
        """Take in who leads each partition of ``__transaction_state``: each coordinates the ids of its partition."""
        self.client().leaders = list(leaders)

    def guess_coordinators(self, keys: Iterable[str]) -> None:
        """Take the leaders that were learnt for the coordinators of transactional ids, to save the look-ups.

        A look-up costs the broker half as much as a commit (measured). One that is no coordinator any more says so,
        and does nothing.
        """
        client = self.client()
        leaders = client.leaders  # another thread may empty it
        for key in keys if leaders else ():
            client.remember(TRANSACTION, key, leaders[transaction_partition(key, len(leaders))])

    def remember(self, kind: int, key: str, node: int) -> None:
        """Take a broker for the coordinator of a key, until it says that it is not."""
        self.client().remember(kind, key, node)

    def patiently(self, seconds: float, thing: str, attempt: Callable[[], T]) -> T:
        """Repeat ``attempt`` while it raises ``NotAnsweredError``, at most for ``seconds``.

        Raises ``UnavailableError`` then.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                return attempt()
            except NotAnsweredError as error:
                if time.monotonic() >= deadline:
                    raise UnavailableError(
                        f"Kafka at {self._options.servers} did not answer for {seconds:g} s: {thing}: {error}.",
                        next_step="see that the brokers run and are reached from here; the query may be restarted",
                    ) from error
            time.sleep(_PAUSE_S)

    def close(self) -> None:
        """Close the connection; a later call makes a new one. Idempotent."""
        with self._lock:
            if self._client is not None and self._pid == os.getpid():
                self._client.close()
            self._client = None


class _Selector(selectors.DefaultSelector):
    """One that says briefly what it does not have.

    kafka-python asks before each wait, mostly for a socket that is not registered, and drops the error; spelling the
    socket for it took two system calls.
    """

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:  # noqa: ANN401  as in the class before
        """Give what is registered for a socket; raises ``KeyError``."""
        fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        # Of a socket that is closed, only a search tells whether it was registered.
        return super().get_key(fileobj if fd < 0 else fd)


class _Client:
    """What is used of kafka-python, and the place that knows its insides, beside requests that spell themselves."""

    def __init__(self, options: KafkaOptions) -> None:
        import_kafka()
        from kafka import KafkaAdminClient
        from kafka.errors import KafkaError
        from kafka.net.compat import KafkaNetClient

        self.leaders: list[int] = []
        made: list[Any] = []

        def kept(**configs: Any) -> Any:  # noqa: ANN401  kafka-python is untyped
            # Its metrics, which nobody reads, took a seventh of its thread's time.
            made.append(KafkaNetClient(**configs | {"metrics": None, "selector": _Selector}))
            return made[0]

        settings = _settings(options)
        try:
            self.kafka = KafkaAdminClient(kafka_client=kept, **settings)
        except (KafkaError, OSError) as error:
            # It leaves its thread and sockets behind when it cannot connect.
            for client in made:
                client.close()
                client._manager._net.stop()  # noqa: SLF001
            reason = _reason(error)
            if settings["security_protocol"].startswith("SASL"):
                # kafka-python often sees the closed connection before the refusal that came with it.
                reason += (
                    " (brokers also hang up on a user that they refuse: check kafka.sasl.username, "
                    "kafka.sasl.password and kafka.sasl.mechanism)"
                )
            raise NotAnsweredError(reason) from error
        self._connections = Connections(self.kafka._manager)  # noqa: SLF001  no public name

    def _begin(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:  # noqa: ANN401
        """Begin a call in the thread of kafka-python. What it gives or ``NotAnsweredError`` comes later."""
        from kafka.errors import KafkaError

        answer: Future[Any] = Future()

        def failed(error: BaseException) -> None:
            wrapped = error
            # The last two: it was closed meanwhile.
            if isinstance(error, (KafkaError, OSError, RuntimeError, GeneratorExit)):
                wrapped = _judged(error)
                wrapped.__cause__ = error
            answer.set_exception(wrapped)

        try:
            begun = self.kafka._manager.call_soon(call, *arguments)  # noqa: SLF001  as above
        except Exception as error:  # noqa: BLE001  whatever has ended the thread; a new client is made then
            answer.set_exception(NotAnsweredError(_reason(error)))
        else:
            begun.add_callback(answer.set_result)
            begun.add_errback(failed)
        return answer

    def has_ended(self) -> bool:
        """Say whether kafka-python's thread is gone, after which nothing is answered any more."""
        net = self.kafka._manager._net  # noqa: SLF001  no public name
        return bool(net._closed or net._exception)  # noqa: SLF001

    def cluster_id(self) -> str | None:
        found: str | None = self.kafka._manager.cluster.cluster_id  # noqa: SLF001  no public name
        return found

    def send(self, request: Any, node: int | None) -> Any:  # noqa: ANN401
        manager = self.kafka._manager  # noqa: SLF001  the way to send one request, as its mixins do
        return self._in_its_thread(manager.send, request, node)

    def post(self, request: Any, node: int, timeout_ms: int = _REQUEST_TIMEOUT_MS) -> Future[Any]:  # noqa: ANN401
        manager = self.kafka._manager  # noqa: SLF001  as above

        async def send() -> Any:  # noqa: ANN401
            if manager.cluster.broker_metadata(node) is None:
                # A leader that kafka-python has not met yet; this request fails, and a later one finds it.
                manager.cluster.request_update()
            return await manager.send(request, node, request_timeout_ms=timeout_ms)

        return self._begin(send)

    def send_all(self, kind: int, requests: Mapping[str, Any]) -> dict[str, Any | NotAnsweredError]:
        from kafka.errors import KafkaError
        from kafka.protocol.metadata import CoordinatorType

        find, manager = self.kafka._find_coordinator_ids, self.kafka._manager  # noqa: SLF001  no public names

        async def one(key: str, request: Any) -> Any:  # noqa: ANN401
            nodes = await find([key], CoordinatorType(kind))
            return await manager.send(request, nodes[key])

        async def send() -> dict[str, Any | NotAnsweredError]:
            # One request for all, whose answers are kept. Who is not among them is looked up alone, and tells why.
            with contextlib.suppress(KafkaError, OSError):
                await find(list(requests), CoordinatorType(kind))
            sent: dict[str, Any] = {}
            by_node: dict[int, dict[str, Any]] = {}
            for key, request in requests.items():
                node = manager.cluster.get_coordinator(key, CoordinatorType(kind))
                if node is None:
                    # A task of its own only for who has to look: it costs as much as the request.
                    sent[key] = manager.call_soon(one, key, request)
                else:
                    by_node.setdefault(node, {})[key] = request
            for node, share in by_node.items():
                sent.update(self._connections.send(node, share))
            answers: dict[str, Any | NotAnsweredError] = {}
            # A connection is answered in order: when its last answer is there, none of the others is waited for.
            for key, waiting in reversed(sent.items()):
                try:
                    answers[key] = await waiting
                except (KafkaError, OSError) as error:
                    answers[key] = NotAnsweredError(_reason(error))
                    answers[key].__cause__ = error
            return answers

        answers: dict[str, Any | NotAnsweredError] = self._in_its_thread(send)
        return answers

    def coordinator(self, kind: int, key: str) -> int:
        from kafka.protocol.metadata import CoordinatorType

        known: int | None = self.kafka._manager.cluster.get_coordinator(key, CoordinatorType(kind))  # noqa: SLF001
        # The way through its thread was two fifths of a request's time in its caller (py-spy).
        if known is not None:
            return known
        find = self.kafka._find_coordinator_id  # noqa: SLF001  no public name
        try:
            node: int = self._in_its_thread(find, key, CoordinatorType(kind))
        except NotAnsweredError as error:
            refuse_forbidden(getattr(error.__cause__, "errno", 0) or 0, key)
            raise
        return node

    def remember(self, kind: int, key: str, node: int) -> None:
        from kafka.protocol.metadata import CoordinatorType

        self.kafka._manager.cluster._coordinators[CoordinatorType(kind), key] = node  # noqa: SLF001

    def forget(self, kind: int, key: str) -> None:
        from kafka.protocol.metadata import CoordinatorType

        self.kafka._manager.cluster._coordinators.pop((CoordinatorType(kind), key), None)  # noqa: SLF001

    def run(self, call: Callable[[], T]) -> T:
        """Do a call of kafka-python's own that waits for its answer. Raises ``NotAnsweredError``."""
        from kafka.errors import KafkaError

        try:
            return call()
        except (KafkaError, OSError) as error:
            raise _judged(error) from error

    def _in_its_thread(self, call: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401
        """Do a call in the thread of kafka-python, and wait. Raises ``NotAnsweredError`` within bounded time."""
        try:
            return self._begin(call, *arguments).result(_ANSWER_S)
        except TimeoutError as error:
            # Its own time-outs are shorter, but a handshake of TLS has none.
            raise NotAnsweredError(f"no answer within {_ANSWER_S:g} s") from error

    def close(self) -> None:
        self.kafka.close()


def _judged(error: BaseException) -> NotAnsweredError | ConfigurationError:
    from kafka.errors import IncompatibleBrokerVersion

    if isinstance(error, IncompatibleBrokerVersion):
        return ConfigurationError(
            f"The Kafka brokers are too old: {error}.", next_step="use brokers of version 3.0 or newer"
        )
    return NotAnsweredError(_reason(error))


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _settings(options: KafkaOptions) -> dict[str, Any]:
    return {
        "bootstrap_servers": options.servers.split(","),
        "client_id": options.client.get("client.id", "onceonly"),
        "bootstrap_timeout_ms": _CONNECT_TIMEOUT_MS,
        "request_timeout_ms": _REQUEST_TIMEOUT_MS,
        "reconnect_backoff_max_ms": 1000,
        "max_in_flight_requests_per_connection": _IN_FLIGHT_MAX,
        **security(options),
    }
