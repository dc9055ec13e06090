"""A connection to a cluster, by kafka-python: whole requests, as they are, without a hidden retry.

librdkafka ends only transactions of its own producers; to end one from its durable name, the request must be sent as it
is. On the driver, commits, sweeps and checks go through one. A worker has two (``Reach``), as a broker carries out the
requests of one connection in their order: all rows of ``direct_producer`` go through the second.
"""

from __future__ import annotations

import functools
import importlib
import logging
import operator
import os
import random
import struct
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

from onceonly import background
from onceonly.errors import UnavailableError, required
from onceonly.sinks.kafka.wire import names
from onceonly.sinks.kafka.wire.answers import (
    UNKNOWN_TOPIC,
    Meaning,
    NotAnsweredError,
    PutOffError,
    ThrottledError,
    meaning,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Future
    from types import ModuleType

    from onceonly.sinks.kafka.options import KafkaOptions
    from onceonly.sinks.kafka.wire.client import Client
    from onceonly.sinks.kafka.wire.plain_client import PlainClient

T = TypeVar("T")

GROUP = 0
TRANSACTION = 1
"""Kinds of coordinator, as in the protocol's FindCoordinator."""

# Pauses between attempts that are not answered.
_PAUSE_S = 0.02
_PAUSE_S_MAX = 0.25
# A new client is waited for so long: it looks for a broker, and may have to ask that one.
_NEW_S = 12.0


def import_kafka() -> ModuleType:
    """Import kafka-python, or say how to install it."""
    with required("asking Kafka needs the package kafka-python", extra="kafka"):
        kafka = importlib.import_module("kafka")
    # At DEBUG it writes whole requests into the log, passwords among them.
    logger = logging.getLogger("kafka")
    if logger.level < logging.WARNING:
        logger.setLevel(logging.WARNING)
    return kafka


@functools.lru_cache
def _powers(count: int) -> Sequence[int]:
    """Return what so many units of a text are multiplied by: powers of 31, modulo 2**32."""
    return [pow(31, exponent, 1 << 32) for exponent in reversed(range(count))]


def transaction_partition(transactional_id: str, partitions: int) -> int:
    """Return the partition of ``__transaction_state`` that holds an id, as Kafka's ``TransactionStateManager`` does."""
    text = transactional_id.encode("utf-16-be")
    units = struct.unpack(f">{len(text) // 2}H", text)
    code = sum(map(operator.mul, units, _powers(len(units)))) & 0xFFFFFFFF  # Java's String.hashCode
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return 0 if signed == -(1 << 31) else abs(signed) % partitions


class Admin:
    """One connection, for requests of any kind; made when first needed. Thread-safe; made anew in a forked process."""

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._client: Any = None
        self._making: Future[Client | PlainClient] | None = None
        self._pid = 0

    @property
    def cluster_id(self) -> str:
        """Name the cluster that answers. Raises ``NotAnsweredError``."""
        return str(self.client().cluster_id())

    def client(self) -> Client | PlainClient:
        """Return the connection. Raises ``NotAnsweredError`` within bounded time, ``ConfigurationError``.

        One that nobody has answered for a while is replaced: all addresses that it knows may be those of long ago.
        """
        with self._lock:
            if self._pid != os.getpid():  # threads do not survive a fork
                self._client, self._making, self._pid = None, None, os.getpid()
            known: Client | PlainClient | None = self._client
            if known is not None:
                if known.is_usable():
                    return known
                self._client = None
                background.begin("onceonly-close", known.close)
            # Who comes meanwhile waits for the same one, and not for his own after it.
            if self._making is None:
                import_kafka()
                self._making = background.begin("onceonly-connect", self._make)
            making: Future[Client | PlainClient] = self._making
        try:
            made = making.result(_NEW_S)
        except BaseException as error:  # an interrupt, too
            if self._take(None, making):
                # It may come up yet, when another one is used.
                making.add_done_callback(_close)
            if isinstance(error, TimeoutError):
                raise NotAnsweredError(f"no connection within {_NEW_S:g} s") from error
            raise
        self._take(made, making)
        return made

    def _take(self, made: Client | PlainClient | None, making: Future[Client | PlainClient]) -> bool:
        """End the making of a connection: keep what was made, or None. Return whether it was still to be ended.

        Several threads wait for one connection, and ``close`` may have given it up: only one of them ends it.
        """
        with self._lock:
            is_waited_for = self._making is making
            if is_waited_for:
                self._client, self._making = made, None
            return is_waited_for

    def _make(self) -> Client | PlainClient:
        from onceonly.sinks.kafka.wire.client import Client
        from onceonly.sinks.kafka.wire.plain_client import PlainClient

        return PlainClient(self._options) if names.missing() else Client(self._options)

    def send(self, request: Any, node: int | None = None) -> Any:  # noqa: ANN401  kafka-python is untyped
        """Send one request to a broker, any where none is named, and return its response.

        Where none is named, a second one may be asked before the first answers: only for what may be repeated.
        """
        return self.client().send(request, node)

    def post(self, request: Any, node: int, timeout_ms: int) -> Future[Any]:  # noqa: ANN401
        """Send one request to a broker; the future gives its response, or raises ``NotAnsweredError``.

        Raises ``NotAnsweredError`` itself where there is no connection to send it by.
        """
        return self.client().post(request, node, timeout_ms)

    def to_coordinator(self, kind: int, key: str, request: Any) -> Any:  # noqa: ANN401
        """Send one request to the coordinator of a group or transactional id and return its response."""
        client = self.client()
        try:
            return client.send(request, client.coordinator(kind, key))
        except ThrottledError:
            raise
        except NotAnsweredError:
            client.forget(kind, key)
            raise

    def to_coordinators(self, kind: int, requests: Mapping[str, Any]) -> dict[str, Any | NotAnsweredError]:
        """Send many requests, each to the coordinator of its key, and only then wait; return the answers by key.

        Raises ``NotAnsweredError`` where there is no connection.
        """
        client = self.client()
        answers = client.send_all(kind, requests)
        for key, answer in answers.items():
            if isinstance(answer, NotAnsweredError) and not isinstance(answer, ThrottledError):
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

        Raises ``UnavailableError`` then, ``SetupError`` where kafka-python is missing: requests are made of it.
        """
        import_kafka()
        deadline = time.monotonic() + seconds
        pause_s = _PAUSE_S
        while True:
            try:
                return attempt()
            except NotAnsweredError as error:
                if time.monotonic() >= deadline:
                    raise self._unavailable(seconds, thing, error) from error
            time.sleep(pause_s * random.uniform(0.5, 1))  # noqa: S311  to spread load
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    def _unavailable(self, seconds: float, thing: str, error: NotAnsweredError) -> UnavailableError:
        """Say what was waited for in vain: brokers that are silent, or what they have answered last."""
        servers = self._options.servers
        if not isinstance(error, PutOffError):
            return UnavailableError(
                f"Kafka at {servers} did not answer for {seconds:g} s: {thing}: {error}.",
                next_step="see that the brokers run and are reached from here; the query may be restarted",
            )
        look = "look for that error in the brokers' logs"
        if error.code == UNKNOWN_TOPIC:
            look = "see that the topic is there, or create it"
        return UnavailableError(
            f"Kafka at {servers} has put us off for {seconds:g} s: {thing}: {error}.",
            next_step=f"{look}; the query may be restarted",
        )

    def close(self) -> None:
        """Close the connection; a later call makes a new one. Idempotent."""
        with self._lock:
            client, self._client = self._client, None
            making, self._making = self._making, None
            is_ours = self._pid == os.getpid()
        if not is_ours:
            return
        if client is not None:
            client.close()
        if making is not None:
            making.add_done_callback(_close)


def _close(made: Future[Client | PlainClient]) -> None:
    if made.exception() is None:
        made.result().close()


def says_later(admin: Admin, kind: int, key: str, code: int) -> bool:
    """Say whether a coordinator's code is "not now"; it is looked up anew where it may be another one by now."""
    found = meaning(code)
    if found is Meaning.ELSEWHERE:
        admin.forget(kind, key)
    return found in {Meaning.LATER, Meaning.ELSEWHERE}
