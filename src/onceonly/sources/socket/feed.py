"""Lines from a TCP server, to which this side connects, as Spark's own socket source does."""

from __future__ import annotations

import errno
import os
import socket
import time
from typing import TYPE_CHECKING, Any, ClassVar, Final

from onceonly.errors import ConfigurationError
from onceonly.model import Guarantee
from onceonly.sources.journal.feeds import Batch, FeedBrokenError, Gather, Lines, guarantee_of
from onceonly.sources.socket.options import DECLARED

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from onceonly.options import Option
    from onceonly.sources.journal.options import Limits

_CONNECT_S: Final = 10.0
_READ_BYTES: Final = 256 * 1024
_KEEP_ALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""After how many seconds of silence the other side is asked, how often, and how many times in vain."""


class SocketFeed:
    """One connection; each line a row. A line without its end when the connection breaks was never whole."""

    name: ClassVar[str] = "socket"
    open_ended: ClassVar[tuple[str, ...]] = ()
    columns: ClassVar[Mapping[str, str]] = {"value": "binary", "arrived": "timestamp"}
    declared: ClassVar[tuple[Option, ...]] = DECLARED
    awaited = 0

    def __init__(self, options: Mapping[str, Any], limits: Limits) -> None:
        self._host: str = options["host"]
        self._port: int = options["port"]
        self._limits = limits
        self.is_host_known = False
        self.named = "none"
        self.of = f"{self._host}:{self._port}"
        self.guarantees: tuple[Guarantee, ...] = (Guarantee.AT_MOST_ONCE,)
        self.guarantee = guarantee_of(
            self,
            options,
            lacks="a socket sends nothing again, so what is lost before the journal is lost",
            next_step="leave onceonly.guarantee out: at most once up to the journal, exactly once from there; with "
            "receiver=outside nothing is lost while the job is down",
        )

    def receive(self, mark: str | None) -> Generator[Batch | None, None, None]:  # noqa: ARG002  a socket has no place to go on from
        """Connect, and yield lines."""
        with self._connect() as connection:
            gather = Gather(self.columns, self._limits)
            lines = Lines(self._limits.segment_bytes, self.of)
            broken = "the server has closed the connection"
            while True:
                connection.settimeout(max(gather.wait_s, 1e-4))
                try:
                    data = connection.recv(_READ_BYTES)
                except TimeoutError:
                    data = None
                except OSError as error:
                    broken = f"the connection broke ({errno.errorcode.get(error.errno or 0, error)})"
                    break
                if data == b"":
                    break
                for line in lines.feed(data or b""):
                    gather.add(line)
                if gather.is_due:
                    yield gather.take()
                elif gather.is_idle:
                    yield None
            if gather:
                yield gather.take()
            raise FeedBrokenError(broken, answered=True)

    def pause(self, seconds: float) -> None:
        """Wait; meanwhile the server can send no more than the buffers of the network hold."""
        time.sleep(seconds)

    def _connect(self) -> socket.socket:
        try:
            connection = socket.create_connection((self._host, self._port), timeout=_CONNECT_S)
        except (socket.gaierror, UnicodeError) as error:  # or no name that DNS can have
            if self.is_host_known or getattr(error, "errno", None) == socket.EAI_AGAIN:
                raise FeedBrokenError(f"{self._host} has no address now") from error
            raise ConfigurationError(
                f"the host {self._host} of onceonly.socket has no address: {getattr(error, 'strerror', error)}",
                next_step="set host to a name that this machine can look up, or to an address",
            ) from error
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise FeedBrokenError(f"no connection: {why}") from error
        self.is_host_known = True
        # A machine that lost its power says nothing, and by its default the kernel asks after two hours.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE.items():
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        return connection
