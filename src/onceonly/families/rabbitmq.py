"""A server of RabbitMQ by its address: connecting, and what its refusals mean. Any process; needs pika."""

from __future__ import annotations

import logging
import os
import socket
import ssl
from typing import TYPE_CHECKING, Any, Final

from onceonly.errors import ConfigurationError, required
from onceonly.options import Option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onceonly.errors import OnceonlyError

URI = Option(
    name="uri",
    doc="The server, `amqp://user:password@host:5672/vhost`, or `amqps` with TLS.",
    required=True,
    secret=True,
)
_CONNECT_S: Final = 10.0
_HEARTBEAT_S: Final = 30
_FORCED: Final = 320
_REFUSED: Final = 403
_MISSING: Final = 404
_INVALID: Final = 406
_NOT_ALLOWED: Final = 530
_NO_HOST: Final = "not found"
_FULL: Final = ("limit (", "' is down")
"""What a server says that lets nobody in for now: so many connections are there already, or it starts the host anew."""
_IN_USE: Final = "exclusive use"
"""What it says of a queue that another consumer has for itself."""
_NO_SUCH = "no queue"
"""The words of one that is not there; the same code is given for one whose node is just starting."""


class Server:
    """A server and a virtual host; nothing is asked before ``connect``. Raises ``ConfigurationError``, ``SetupError``.

    ``who`` is the format that asks.
    """

    def __init__(self, uri: str, who: str) -> None:
        self._pika = _pika(who)
        self._who = who
        self.is_host_known = False
        """Whether it was reached, here or before: its name may have no address for a while, as where it starts anew."""
        self._parameters = self._read(uri)
        errors = self._pika.exceptions
        self.errors: tuple[type[Exception], ...] = (errors.AMQPError, OSError, UnicodeError)
        """What calls of a connection raise."""

    @property
    def where(self) -> str:
        """Its host and port, for people."""
        return f"{self._parameters.host}:{self._parameters.port}"

    @property
    def virtual_host(self) -> str:
        """The virtual host of the address."""
        return str(self._parameters.virtual_host)

    def connect(self) -> Any:  # noqa: ANN401  pika's
        """Return a new connection. Raises one of ``errors``."""
        connection = self._pika.BlockingConnection(self._parameters)
        self.is_host_known = True
        return connection

    def why(self, error: BaseException) -> str:
        """Say for people why a call or a connection failed: what the server said, or what lies below pika's error."""
        told = getattr(error, "reply_text", "")
        if told:
            return str(told)
        if isinstance(error, self._pika.exceptions.IncompatibleProtocolError):
            return "it has closed the connection while it greeted: it is starting, or speaks no AMQP 0.9.1"
        found = next((each for each in _causes(error) if isinstance(each, OSError)), error)
        if isinstance(found, ssl.SSLError):
            return f"TLS: {found.reason or found}"
        if isinstance(found, OSError) and found.errno:
            return os.strerror(found.errno)
        return str(found) or type(found).__name__

    def refusal(self, error: BaseException, what: str) -> OnceonlyError | None:
        """Return what an error means that no other try would change, None where one may.

        ``what`` is what was asked for, as ``queue orders``.
        """
        errors = self._pika.exceptions
        if isinstance(error, errors.ChannelClosedByBroker):
            return self._of_channel(error, what)
        if isinstance(error, errors.ShortStringTooLong):
            return ConfigurationError(
                f"the name of the {what} is longer than the 255 bytes that RabbitMQ takes",
                next_step=f"see to the option {what.partition(' ')[0]}",
            )
        if any(isinstance(each, ssl.SSLCertVerificationError) for each in _causes(error)):
            return ConfigurationError(
                f"the certificate of {self.where} is not one that this machine trusts ({self.why(error)})",
                next_step="name the host in uri as its certificate does; or have the machine trust who signed it, as "
                "by the variable SSL_CERT_FILE",
            )
        # Pika takes a server that ends while it greets for one that refuses, which says so by a code.
        told = str(error.args)
        if isinstance(error, errors.AuthenticationError) or (
            isinstance(error, errors.ProbableAuthenticationError) and f"({_REFUSED})" in told
        ):
            return ConfigurationError(
                f"{self.where} does not take the user or the password of the option uri",
                next_step="see to the option uri",
            )
        if (
            isinstance(error, errors.ProbableAccessDeniedError)
            and (f"({_REFUSED})" in told or f"({_NOT_ALLOWED})" in told)
            and not any(words in told for words in _FULL)
        ):
            if _NO_HOST in told:
                return ConfigurationError(
                    f"there is no virtual host {self.virtual_host} at {self.where}",
                    next_step="see to the option uri, or let its owner make it",
                )
            return ConfigurationError(
                f"{self.where} does not let this user into the virtual host {self.virtual_host}",
                next_step="see to the option uri, or grant the user its rights",
            )
        unknown = any(
            isinstance(each, socket.gaierror | UnicodeError)
            and getattr(each, "errno", None) != socket.EAI_AGAIN
            for each in _causes(error)
        )
        if unknown and not self.is_host_known:
            return ConfigurationError(
                f"the host {self._parameters.host} of {self._who} has no address",
                next_step="see to the option uri",
            )
        return None

    def _of_channel(self, error: Any, what: str) -> OnceonlyError | None:  # noqa: ANN401  pika's
        if error.reply_code == _MISSING and _NO_SUCH in error.reply_text:
            return ConfigurationError(
                f"there is no {what} in {self.virtual_host} of {self.where}",
                next_step=f"see to the option {what.partition(' ')[0]}, or let its owner declare it",
            )
        if error.reply_code == _REFUSED and _IN_USE not in error.reply_text:
            return ConfigurationError(
                f"{self.where} does not let this user read the {what}",
                next_step="grant the user the right to read it",
            )
        return None

    def _read(self, text: str) -> Any:  # noqa: ANN401  pika's
        wrong = ConfigurationError(
            f"The option uri of {self._who} cannot be read; it is not shown, as it holds a password.",
            next_step="write it as amqp://user:password@host:5672/vhost",
        )
        try:
            parameters = self._pika.URLParameters(text)
        except (ValueError, TypeError, AttributeError, IndexError):
            raise wrong from None  # the cause quotes what may be a part of the password
        if not text.startswith(("amqp://", "amqps://")):
            raise wrong
        parameters.socket_timeout = _CONNECT_S
        parameters.blocked_connection_timeout = 2 * _HEARTBEAT_S
        parameters.heartbeat = _HEARTBEAT_S
        parameters.connection_attempts = 1
        return parameters


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that pika has put into it."""
    for each in (error, *getattr(error, "exceptions", ()), *error.args):
        found = getattr(each, "exception", each)
        if isinstance(found, BaseException):
            yield found


def refuses(error: BaseException, argument: str) -> bool:
    """Say whether a queue refuses an argument of its consumers, as it is of another type."""
    return getattr(error, "reply_code", 0) == _INVALID and argument in getattr(error, "reply_text", "")


def is_deleted(error: BaseException) -> bool:
    """Say whether a server has closed a connection as its virtual host was deleted, and all queues with it."""
    return getattr(error, "reply_code", 0) == _FORCED and "is deleted" in getattr(error, "reply_text", "")


def text_of(value: object) -> str:
    """Return a header's value as text."""
    if isinstance(value, bytes | bytearray):
        return value.decode(errors="replace")
    return str(value)


def quietly(work: Callable[[], object]) -> None:
    """Close what is given up anyway."""
    try:
        work()
    except Exception:  # noqa: BLE001  it is given up anyway
        return


def _pika(who: str) -> Any:  # noqa: ANN401  a module
    with required(
        f"{who} needs the package pika",
        extra="rabbitmq",
        where="where it is read: a queue by its receiver, a stream by driver and executors",
    ):
        import pika
    # It logs stack traces of what is told in one sentence here, and tried again.
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    return pika
