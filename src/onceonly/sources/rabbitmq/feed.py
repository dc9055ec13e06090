"""A consumer of one queue. What is not acknowledged, the server sends again, to whoever comes next.

A message is acknowledged when it is in the journal, and again when it comes twice. An acknowledgement may be lost with
its server, also one that was sent; so ids are remembered for a time and not until they are acknowledged.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from onceonly.errors import ConfigurationError, OnceonlyError, RecordRefusedError, SetupError
from onceonly.model import Guarantee
from onceonly.sources.journal.feeds import Batch, FeedBrokenError, Gather, guarantee_of
from onceonly.sources.rabbitmq.options import DECLARED, Named, text_of

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from onceonly.options import Option
    from onceonly.sources.journal.options import Limits

_CONNECT_S: Final = 10.0
_HEARTBEAT_S: Final = 30
_REFUSED: Final = 403
_MISSING: Final = 404


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
        self._pika = _pika()
        self._queue: str = options["queue"]
        self._id = Named(options["id"])
        self._all = options["deduplicate"] == "all"
        self._prefetch: int = options["prefetch"]
        self._limits = limits
        self._was_connected = False
        self._connection: Any = None
        self._parameters = self._read_uri(str(options["uri"]))
        self.of = f"{self._parameters.virtual_host} {self._queue}"
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
        errors = self._pika.exceptions
        try:
            yield from self._consume()
        except OnceonlyError:
            raise
        except errors.ChannelClosedByBroker as error:
            self._refuse(error)
            raise FeedBrokenError(f"the server has closed the channel ({error.reply_text})") from error
        except (errors.ProbableAuthenticationError, errors.AuthenticationError) as error:
            raise ConfigurationError(
                f"{self._where} does not take the user or the password of the option uri",
                next_step="see to the option uri",
            ) from error
        except errors.ProbableAccessDeniedError as error:
            raise ConfigurationError(
                f"{self._where} does not let this user into the virtual host {self._parameters.virtual_host}",
                next_step="see to the option uri, or grant the user its rights",
            ) from error
        except (errors.AMQPError, OSError) as error:
            self._refuse_unknown_host(error)
            raise FeedBrokenError(f"no connection ({type(error).__name__})") from error
        finally:
            connection, self._connection = self._connection, None
            if connection is not None and connection.is_open:
                _quietly(connection.close)

    def pause(self, seconds: float) -> None:
        """Wait, and answer the server's heartbeats."""
        if self._connection is None:
            return
        try:
            self._connection.sleep(seconds)
        except (self._pika.exceptions.AMQPError, OSError):
            return  # the next acknowledgement will find out

    def _consume(self) -> Generator[Batch | None, None, None]:
        self._connection = connection = self._pika.BlockingConnection(self._parameters)
        channel = connection.channel()
        channel.queue_declare(self._queue, passive=True)
        channel.basic_qos(prefetch_count=self._prefetch)
        self._was_connected = True
        gather = Gather(self.columns, self._limits)
        newest = 0

        def take(_channel: object, method: Any, properties: Any, body: bytes) -> None:  # noqa: ANN401  pika's
            nonlocal newest
            newest = method.delivery_tag
            gather.add(body, *self._rest_of(method, properties))

        cancelled: list[object] = []
        channel.basic_consume(self._queue, take)
        channel.add_on_cancel_callback(cancelled.append)
        early = self.guarantee is Guarantee.AT_MOST_ONCE
        while True:
            if cancelled or not channel.is_open:
                raise FeedBrokenError(
                    "the server has cancelled the consumer: the queue was deleted or has moved"
                )
            connection.process_data_events(time_limit=max(gather.wait_s, 1e-3))
            if gather.is_due or (gather and len(gather) >= self._prefetch):
                tag, batch = newest, self._suspecting(gather.take())
                if early:
                    channel.basic_ack(tag, multiple=True)
                yield batch
                if not early:
                    channel.basic_ack(tag, multiple=True)
            elif gather.is_idle:
                yield None

    def _suspecting(self, batch: Batch) -> Batch:
        """Say which messages may have been here before."""
        if self._all:
            return batch
        return replace(batch, suspects=batch.rows.column("redelivered").to_pylist())

    def _rest_of(self, method: Any, properties: Any) -> tuple[Any, ...]:  # noqa: ANN401  pika's
        found = self._id.of(properties.message_id, properties.headers)
        if found is None and self._id and self.guarantee is Guarantee.EXACTLY_ONCE:
            raise RecordRefusedError(
                f"a message of the queue {self._queue} has no {self._id}, so it cannot be read exactly once; it stays "
                "in the queue",
                next_step="let its publisher set one; or set id, or onceonly.guarantee=at-least-once",
            )
        headers = properties.headers or {}
        return (
            found,
            method.exchange,
            method.routing_key,
            [(name, text_of(value)) for name, value in headers.items()],
            method.redelivered,
        )

    def _read_uri(self, text: str) -> Any:  # noqa: ANN401  pika's
        wrong = "The option uri of onceonly.rabbitmq cannot be read; it is not shown, as it holds a password."
        try:
            parameters = self._pika.URLParameters(text)
        except (ValueError, TypeError, AttributeError, IndexError) as error:
            raise ConfigurationError(
                wrong, next_step="write it as amqp://user:password@host:5672/vhost"
            ) from error
        if not text.startswith(("amqp://", "amqps://")):
            raise ConfigurationError(wrong, next_step="write it as amqp://user:password@host:5672/vhost")
        parameters.socket_timeout = _CONNECT_S
        parameters.blocked_connection_timeout = 2 * _HEARTBEAT_S
        parameters.heartbeat = _HEARTBEAT_S
        parameters.connection_attempts = 1
        return parameters

    @property
    def _where(self) -> str:
        return f"{self._parameters.host}:{self._parameters.port}"

    def _refuse(self, error: Any) -> None:  # noqa: ANN401  pika's
        if error.reply_code == _MISSING:
            raise ConfigurationError(
                f"there is no queue {self._queue} in {self._parameters.virtual_host} of {self._where}",
                next_step="see to the option queue, or let its owner declare it",
            ) from error
        if error.reply_code == _REFUSED:
            raise ConfigurationError(
                f"{self._where} does not let this user read the queue {self._queue}",
                next_step="grant the user the right to read it",
            ) from error

    def _refuse_unknown_host(self, error: BaseException) -> None:
        import socket

        causes = [error, *getattr(error, "exceptions", ()), *error.args]
        found = any(isinstance(getattr(each, "exception", each), socket.gaierror) for each in causes)
        if found and not self._was_connected:
            raise ConfigurationError(
                f"the host {self._parameters.host} of onceonly.rabbitmq has no address",
                next_step="see to the option uri",
            ) from error


def _quietly(work: Any) -> None:  # noqa: ANN401  a method of pika's
    try:
        work()
    except Exception:  # noqa: BLE001  it is given up anyway
        return


def _pika() -> Any:  # noqa: ANN401  a module
    try:
        import pika
    except ImportError as error:
        raise SetupError(
            f"the feed 'rabbitmq' needs a package that is missing here: {error}",
            next_step="pip install 'onceonly[rabbitmq]' where the receiver runs",
        ) from error
    # It logs stack traces of what the receiver says in one sentence, and tries again.
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    return pika
