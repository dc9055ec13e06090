"""A consumer of one queue. What is not acknowledged, the server sends again, to whoever comes next.

A message is acknowledged when it is in the journal, and again when it comes twice. An acknowledgement may be lost with
its server, also one that was sent; so ids are remembered for a time and not until they are acknowledged.

A stream takes consumers of queues, too: it gives them what is published from then on, and whatever they acknowledge. So
the consumer asks for the usual priority by its name, which queues take and streams refuse.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from onceonly.errors import ConfigurationError, RecordRefusedError
from onceonly.families.rabbitmq import Server, is_deleted, quietly, refuses, text_of
from onceonly.model import Guarantee
from onceonly.sources.journal.feeds import Batch, FeedBrokenError, Gather, guarantee_of
from onceonly.sources.journal.segments import hash_of
from onceonly.sources.rabbitmq.options import DECLARED, Named

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from onceonly.options import Option
    from onceonly.sources.journal.options import Limits

_NAMELESS: Final = "none:"
_PRIORITY: Final = "x-priority"
_ANEW_S: Final = 60.0
"""After how long without a message the queue is asked anew."""


class RabbitFeed:
    """A queue by its options."""

    name: ClassVar[str] = "rabbitmq"
    open_ended: ClassVar[tuple[str, ...]] = ()
    columns: ClassVar[Mapping[str, str]] = {
        "value": "binary", "arrived": "timestamp", "id": "string", "exchange": "string", "routingKey": "string",
        "headers": "map", "redelivered": "boolean",
    }  # fmt: skip
    declared: ClassVar[tuple[Option, ...]] = DECLARED

    def __init__(self, options: Mapping[str, Any], limits: Limits) -> None:
        self._server = Server(str(options["uri"]), "onceonly.rabbitmq")
        self._queue: str = options["queue"]
        self._id = Named(options["id"])
        self.named = self._id.text
        self._all = options["deduplicate"] == "all"
        self._prefetch: int = options["prefetch"]
        self._limits = limits
        self._connection: Any = None
        self.is_host_known = False
        self.awaited = 0
        self.of = f"{self._server.virtual_host} {self._queue}"
        weaker = (Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE)
        self.guarantees: tuple[Guarantee, ...] = (Guarantee.EXACTLY_ONCE, *weaker) if self._id else weaker
        self.guarantee = guarantee_of(
            self,
            options,
            lacks="with id=none nobody can tell a message that comes again from another one like it",
            next_step="set id to what the publishers name messages by; or take at-least-once",
        )

    def receive(self, mark: str | None) -> Generator[Batch | None, None, None]:  # noqa: ARG002  the server keeps the place
        """Consume, and acknowledge what was given when it is asked for more."""
        try:
            yield from self._consume()
        except self._server.errors as error:
            refusal = self._server.refusal(error, f"queue {self._queue}")
            if refuses(error, _PRIORITY):
                refusal = ConfigurationError(
                    f"{self._queue} of {self._server.where} is a stream, and no queue: it does not keep its "
                    "readers' place",
                    next_step="read it with onceonly.rabbitmq.stream, or name a queue",
                )
            if refusal is not None:
                raise refusal from error
            raise FeedBrokenError(
                f"no connection to {self._server.where}: {self._server.why(error)}"
            ) from error
        finally:
            connection, self._connection = self._connection, None
            if connection is not None and connection.is_open:
                quietly(connection.close)

    def pause(self, seconds: float) -> None:
        """Wait, and answer the server's heartbeats."""
        try:
            if self._connection is not None:
                self._connection.sleep(seconds)
                return
        except self._server.errors:
            pass  # the next acknowledgement will find out
        time.sleep(seconds)

    def _consume(self) -> Generator[Batch | None, None, None]:
        self._server.is_host_known |= self.is_host_known
        self._connection = self._server.connect()
        given = _Given(self, Gather(self.columns, self._limits))
        channel = self._subscribe(given)
        early = self.guarantee is Guarantee.AT_MOST_ONCE
        while True:
            given.require_more(channel)
            self._await(given)
            if given.is_due(self._prefetch):
                tag, batch = given.newest, self._suspecting(given.gather.take())
                if early and channel.is_open:
                    channel.basic_ack(tag, multiple=True)
                yield batch
                if not early:
                    channel.basic_ack(tag, multiple=True)
            elif given.gather.is_idle:
                yield None
                if time.monotonic() - given.heard_at >= _ANEW_S:
                    # A quorum queue that is deleted and made anew at once keeps its consumer, and swallows what it
                    # gives it, to give it to the next one.
                    channel.close()
                    channel = self._subscribe(given)

    def _await(self, given: _Given) -> None:
        """Take what the server gives for a while. Raises one of its errors, unless all that it gave is here alone."""
        try:
            self._connection.process_data_events(time_limit=max(given.gather.wait_s, 1e-3))
        except self._server.errors as error:
            if not given.gather or not is_deleted(error):
                raise
            given.cancel(error)

    def _subscribe(self, given: _Given) -> Any:  # noqa: ANN401  pika's
        """Begin to consume, and return the channel on which that is."""
        channel = self._connection.channel()
        self.awaited = channel.queue_declare(self._queue, passive=True).method.message_count
        channel.basic_qos(prefetch_count=self._prefetch)
        given.heard_at = time.monotonic()
        channel.basic_consume(self._queue, given.take, arguments={_PRIORITY: 0})
        channel.add_on_cancel_callback(given.cancel)
        return channel

    def _suspecting(self, batch: Batch) -> Batch:
        """Say which messages may have been here before."""
        if self._all and self.guarantee is not Guarantee.AT_MOST_ONCE:
            return batch
        again = batch.rows.column("redelivered").to_pylist()
        if self._all:
            # Others like a message without an id are other ones, unless the server says that it comes again.
            ids = batch.rows.column("id").to_pylist()
            again = [sent or not each.startswith(_NAMELESS) for sent, each in zip(again, ids, strict=True)]
        return replace(batch, suspects=again)

    def _rest_of(self, method: Any, properties: Any, body: bytes) -> tuple[Any, ...]:  # noqa: ANN401  pika's
        found = self._id.of(properties.message_id, properties.headers)
        headers = [(text_of(name), text_of(value)) for name, value in (properties.headers or {}).items()]
        names = text_of(method.exchange), text_of(method.routing_key)
        if found is None and self.guarantee is Guarantee.AT_MOST_ONCE:
            # The server may forget that it was acknowledged: what it sends again is known by what it is.
            found = _NAMELESS + hash_of(f"{properties.message_id} {names} {headers}\n{body!r}").hex()
        if found is None and self.guarantee is Guarantee.EXACTLY_ONCE:
            raise RecordRefusedError(
                f"a message of the queue {self._queue} has no {self._id}, so it cannot be read exactly once; it stays "
                "in the queue",
                next_step="let its publisher set one; or set id, or onceonly.guarantee=at-least-once",
            )
        return (found, *names, headers, method.redelivered)


class _Given:
    """What the server has given and nobody has taken yet, and why it gives no more. One thread."""

    def __init__(self, feed: RabbitFeed, gather: Gather) -> None:
        self._feed = feed
        self.gather = gather
        self.newest = 0
        """The tag of the newest message."""
        self.heard_at = time.monotonic()
        self._refusal: RecordRefusedError | None = None
        self._is_cancelled = False

    def take(self, _channel: object, method: Any, properties: Any, body: bytes) -> None:  # noqa: ANN401  pika's
        """Take a message, unless it or one before it is refused."""
        self.heard_at = time.monotonic()
        self._feed.awaited -= self._feed.awaited > 0
        if self._refusal is not None:
            return
        try:
            rest = self._feed._rest_of(method, properties, body)  # noqa: SLF001  they are of one module
        except RecordRefusedError as error:
            self._refusal = error
            return
        self.newest = method.delivery_tag
        self.gather.add(body, *rest)

    def cancel(self, _frame: object) -> None:
        """Note that the server has cancelled the consumer."""
        self._is_cancelled = True

    def is_due(self, prefetch: int) -> bool:
        """Say whether there are messages that should wait no longer.

        What a deleted queue has given, it gives no more; of one that has moved it comes again, and is known. What came
        before a message that is refused would be delivered once more at each start, and a queue may count that.
        """
        is_over = self._is_cancelled or self._refusal is not None
        return bool(self.gather) and (is_over or self.gather.is_due or len(self.gather) >= prefetch)

    def require_more(self, channel: Any) -> None:  # noqa: ANN401  pika's
        """Raise why no more comes, once all that came is taken."""
        if self.gather:
            return
        if self._refusal is not None:
            raise self._refusal
        if self._is_cancelled or not channel.is_open:
            raise FeedBrokenError("the server has cancelled the consumer: the queue was deleted or has moved")
