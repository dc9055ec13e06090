"""A stream as a consumer of AMQP 0.9.1 sees it: messages with their offsets, from a place on. Any process."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.families.backoff import Backoff
from onceonly.families.rabbitmq import Server, quietly, refuses, text_of
from onceonly.sources.rabbitmq_stream.options import NAME

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from onceonly.sources.rabbitmq_stream.options import SourceOptions

    Place = str | int | datetime
T = TypeVar("T")

FIRST, LAST = "first", "last"
"""The oldest message, and the first of the newest chunk, which is a handful."""
_OFFSET: Final = "x-stream-offset"
_MARK_BYTES: Final = 8
_BROKEN: Final = 541


class Message(NamedTuple):
    """A message as it stands in the stream: the same each time it is read."""

    offset: int
    value: bytes
    exchange: str
    routing_key: str
    headers: tuple[tuple[str, str], ...] = ()
    id: str | None = None
    timestamp: int | None = None

    @property
    def mark(self) -> str:
        """A hash of all that it holds."""
        digest = hashlib.blake2b(self.value, digest_size=_MARK_BYTES)
        rest = (self.exchange, self.routing_key, self.headers, self.id, self.timestamp)
        digest.update(repr(rest).encode(errors="surrogatepass"))
        return digest.hexdigest()


class Consumer:
    """Messages from a place on, as they come; at most ``window`` of them are on their way. One thread.

    With ``goes_on`` false it is given no more than those. Raises one of the connection's errors.
    """

    def __init__(
        self,
        connection: Any,  # noqa: ANN401  pika's
        stream: str,
        place: Place,
        window: int,
        *,
        goes_on: bool = True,
    ) -> None:
        self._connection, self._stream = connection, stream
        self._window, self._goes_on = window, goes_on
        self._found: deque[Message] = deque()
        self._unacknowledged = self._newest = 0
        self._is_cancelled = False
        self._channel = connection.channel()
        self._channel.basic_qos(prefetch_count=window)
        self._channel.add_on_cancel_callback(self._cancel)
        self._channel.basic_consume(stream, self._take, arguments={_OFFSET: place})

    @property
    def is_open(self) -> bool:
        """Whether more may come."""
        return bool(self._connection.is_open and self._channel.is_open)

    @property
    def is_full(self) -> bool:
        """Whether it has been given all that it may be."""
        return not self._goes_on and self._unacknowledged >= self._window and not self._found

    def next(self, wait_s: float) -> Message | None:
        """Return the next message; None where there is none in time."""
        deadline = time.monotonic() + wait_s
        while not self._found:
            left_s = deadline - time.monotonic()
            self._connection.process_data_events(time_limit=max(left_s, 0))
            if self._is_cancelled and not self._found:
                raise ConnectionError("it was deleted, or has moved to another node")
            if left_s <= 0:
                break
        return self._found.popleft() if self._found else None

    def close(self) -> None:
        """Let go of it. Idempotent."""
        if self.is_open:
            # Pika would reject what is on its way, and for that a server ends the connection of a stream's reader.
            quietly(self._channel._consumer_infos.clear)  # noqa: SLF001  it has no other way
            quietly(self._channel.close)

    def _cancel(self, _frame: object) -> None:
        self._is_cancelled = True

    def _take(self, _channel: object, method: Any, properties: Any, body: bytes) -> None:  # noqa: ANN401  pika's
        headers = properties.headers
        self._found.append(
            Message(
                offset=int(headers[_OFFSET]),
                value=body,
                exchange=method.exchange,
                routing_key=method.routing_key,
                headers=tuple((name, text_of(value)) for name, value in headers.items() if name != _OFFSET),
                id=properties.message_id,
                timestamp=properties.timestamp,
            )
        )
        self._newest = method.delivery_tag
        self._unacknowledged += 1
        if self._goes_on and self._unacknowledged * 2 >= self._window:
            self._channel.basic_ack(self._newest, multiple=True)
            self._unacknowledged = 0


class Stream:
    """One stream; connects when it is first asked, and again when the connection is lost. One thread at a time.

    ``is_known`` says that it was read before, so that a host without an address is one for now.
    """

    def __init__(self, options: SourceOptions, *, is_known: bool = False) -> None:
        self.options = options
        self.server = Server(options.uri, NAME)
        self.server.is_host_known = is_known
        self._connection: Any = None
        self._consumers: list[Consumer] = []

    @property
    def where(self) -> str:
        """The stream and its server, for people."""
        return f"{self.options.stream} of {self.server.where}"

    def consumer(self, place: Place, window: int, *, goes_on: bool = True) -> Consumer:
        """Begin to read. Raises one of the server's errors."""
        made = Consumer(self._connected(), self.options.stream, place, window, goes_on=goes_on)
        self._consumers = [*(each for each in self._consumers if each.is_open), made]
        return made

    def is_empty(self) -> bool:
        """Say whether the server counts no message in it, which no silence tells. Raises one of the server's errors.

        It counts every five seconds.
        """
        channel = self._connected().channel()
        told = channel.queue_declare(self.options.stream, passive=True)
        channel.close()
        return not told.method.message_count

    def _connected(self) -> Any:  # noqa: ANN401  pika's
        if self._connection is None or not self._connection.is_open:
            self._connection = self.server.connect()
        return self._connection

    def ask(self, work: Callable[[], T]) -> T:
        """Do what asks the server, and again while it may pass; return the answer. Raises a typed error."""
        wait = Backoff(time, self.options.timeout_s)
        while True:
            try:
                return work()
            except self.server.errors as error:
                self.failed(error, wait)

    def failed(self, error: Exception, wait: Backoff) -> None:
        """Wait before another try, on another connection. Raises a typed error where that would not help."""
        self.close()
        refusal = self.server.refusal(error, f"stream {self.options.stream}")
        if refuses(error, _OFFSET):
            refusal = ConfigurationError(
                f"{self.options.stream} of {self.server.where} is a queue, and no stream",
                next_step="read it with onceonly.rabbitmq, or name a stream",
            )
        if refusal is not None:
            raise refusal from error
        if not wait.again():
            raise self.unavailable(error) from error

    def unavailable(self, error: BaseException | str) -> UnavailableError:
        """Make the error of a stream that was asked for long enough."""
        text = error if isinstance(error, str) else self.server.why(error)
        hint = (
            ". Some servers say so where publishers put batches into one entry, which AMQP 0.9.1 cannot read"
            if getattr(error, "reply_code", 0) == _BROKEN
            else ""
        )
        return UnavailableError(
            f"the stream {self.where} had no answer for {self.options.timeout_s:g} s: {text}{hint}",
            next_step="nothing, where it comes back: the query starts again. If it never was there, see to the option "
            "uri",
        )

    def close(self) -> None:
        """Drop the connection. Idempotent."""
        for each in self._consumers:
            each.close()
        self._consumers = []
        connection, self._connection = self._connection, None
        if connection is not None and connection.is_open:
            quietly(connection.close)
