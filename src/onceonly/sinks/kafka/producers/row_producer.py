"""A producer that is handed one Python object for each row, through confluent-kafka. Executor.

It is taken where record batches cannot be made here, and where ``onceonly.producer`` asks for librdkafka.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import time
import weakref
from typing import TYPE_CHECKING, Any

from onceonly import background
from onceonly.errors import ConfigurationError
from onceonly.sinks.kafka.producers.confluent import import_confluent
from onceonly.sinks.kafka.producers.failures import Failure, Failures
from onceonly.sinks.kafka.records import columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future

    import pyarrow as pa

    from onceonly.sinks.kafka.wire.tokens import Tokens

# Between two looks at a full buffer: librdkafka sends a megabyte in about as much, and wakes nobody after it.
_POLL_S = 0.005
# How many rows go out between two looks at the reports.
_POLL_EVERY = 1000


class RowProducer:
    """One client of librdkafka."""

    def __init__(self, config: Mapping[str, str], login: Tokens | None = None) -> None:
        kafka = import_confluent()
        self.failures = failures = Failures()
        more: dict[str, Any] = {} if login is None else {"oauth_cb": functools.partial(_token, login)}
        try:
            # Only failures are reported: a callback for each of a million rows would cost half the speed.
            self._producer = kafka.Producer(
                {
                    **config,
                    **more,
                    "delivery.report.only.error": True,
                    # Not of this object: the client would keep it alive.
                    "error_cb": lambda error: failures.hear(error.str()),
                }
            )
        except kafka.KafkaException as error:
            raise ConfigurationError(
                f"librdkafka refuses the configuration of the Kafka sink: {error.args[0].str()}.",
                next_step="change the kafka. option that it names",
            ) from None

        _clients.add(self)

    def connect(self, topic: str | None, timeout_s: float) -> None:
        """Ask for the topic's metadata, best effort."""
        with contextlib.suppress(import_confluent().KafkaException):
            self._producer.list_topics(topic, timeout=timeout_s)

    def init_transactions(self, timeout_s: float) -> None:
        """Take the transactional id. Raises ``KafkaException``."""
        self._producer.init_transactions(timeout_s)

    def begin_transaction(self, group: str) -> None:
        """Begin, locally; ``group`` is whose offset will be in it. Raises ``KafkaException``."""
        self._group = group
        self._producer.begin_transaction()

    def write(self, batch: pa.RecordBatch, topic: str | None, first: int, *, wait_s: float) -> None:
        """Buffer a batch, in its order; ends early with a ``failure``.

        Raises ``BufferError`` if the buffer stays full for ``wait_s``, ``RecordRefusedError`` for a malformed row,
        ``KafkaException`` where the client fails for good.
        """

        def report(error: Any, message: Any) -> None:  # noqa: ANN401  confluent-kafka has no types here
            if error is not None:
                size = len(message.value() or b"") + len(message.key() or b"")
                self.failures.note(Failure(error, size))

        for number, row in enumerate(columns.rows(batch, topic, first), 1):
            self._produce(row, report, wait_s)
            if not number % _POLL_EVERY:
                self._poll(0)
            if self.failures.first is not None:
                return

    def _produce(self, row: columns.Row, report: Callable[[Any, Any], None], wait_s: float) -> None:
        """Buffer a row; where the buffer is full, let it drain for a time, as Java's producer would."""
        topic, value, key, partition, headers = row
        deadline: float | None = None
        while self.failures.first is None:
            try:
                self._producer.produce(topic, value, key, partition, report, None, 0, headers)
            except BufferError as error:
                now = time.monotonic()
                deadline = deadline or now + wait_s
                if now >= deadline:
                    raise BufferError(self.failures.trouble()) from error
                self._poll(_POLL_S)
            except import_confluent().KafkaException as error:
                self.failures.note(Failure(error.args[0], columns.size(row)))
            else:
                return

    def flush(self, timeout_s: float) -> int:
        """Wait until every row is acknowledged or failed; return how many are neither.

        Raises ``KafkaException`` where the client fails for good.
        """
        with _serving():
            left: int = self._producer.flush(timeout_s)
        return left

    def begin_offset(self, topic: str, offset: int, metadata: str, timeout_s: float) -> Future[None]:
        """Begin to do what ``send_offset`` does, beside a flush."""
        return background.begin("onceonly-marker", self.send_offset, topic, offset, metadata, timeout_s)

    def send_offset(self, topic: str, offset: int, metadata: str, timeout_s: float) -> None:
        """Put an offset of partition 0 into the transaction. Raises ``KafkaException``."""
        place = import_confluent().TopicPartition(topic, 0, offset, metadata)
        self._producer.send_offsets_to_transaction([place], _group_metadata(self._group), timeout_s)

    def written(self) -> dict[tuple[str, int], int]:
        """Name no partitions: librdkafka chooses them, and the coordinator is asked for them where they are needed."""
        return {}

    def topic_ids(self) -> dict[str, str]:
        """Return none, as above."""
        return {}

    def again(self) -> None:
        """Do nothing: librdkafka goes on by itself."""

    def close(self) -> None:
        """Destroy the client, with what is still buffered; an open transaction stays open."""
        self._producer = None

    def _poll(self, seconds: float) -> None:
        with _serving():
            self._producer.poll(seconds)

    def _forked(self) -> None:
        """Keep the client for ever in a forked child, which has none of the threads that its end would wait for."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._producer))


_clients: weakref.WeakSet[RowProducer] = weakref.WeakSet()


def _leave_to_parent() -> None:
    for client in list(_clients):
        client._forked()  # noqa: SLF001  of this very module


os.register_at_fork(after_in_child=_leave_to_parent)


@contextlib.contextmanager
def _serving() -> Iterator[None]:
    """Raise the ``KafkaException`` by which confluent-kafka tells that a client has failed for good, and nothing else.

    The reports that it delivers in the same call fail then, in its own code, and hide the cause.
    """
    try:
        yield
    except SystemError as error:
        if isinstance(error.__cause__, import_confluent().KafkaException):
            raise error.__cause__ from None
        raise


@functools.lru_cache(maxsize=1024)
def _group_metadata(group: str) -> Any:  # noqa: ANN401  confluent-kafka has no types here
    """Return what ``send_offsets_to_transaction`` wants to know of a group without members."""
    # The only public maker of this value; without servers it connects to nothing.
    consumer = import_confluent().Consumer({"group.id": group})
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()


def _token(login: Tokens, _config: str) -> tuple[str, float, str, dict[str, str]]:
    """Return a token as confluent-kafka asks for it, in librdkafka's thread: text, expiry, principal, extensions."""
    token = login.get()
    return token.text, token.expires_s, "", dict(token.extensions)
