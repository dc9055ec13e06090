"""Ports on loopback that are free now; another server may take them the next moment."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress

_BEGIN, _END = 20_000, 30_000
_OF_CLIENTS = 32_768
"""Linux gives its clients ports from here on: one that a server had is theirs while it is down."""


def free_ports(count: int, *, beside: int = 0) -> list[int]:
    """Return free ports, below those that a system gives to clients.

    With ``beside``, the port that is so much higher is free, too: some servers take it without being asked.
    """
    found: list[int] = []
    with ExitStack() as held:
        some = range(_BEGIN, min(_END, _OF_CLIENTS - beside))
        for port in random.sample(some, len(some)):
            with suppress(OSError):
                for each in {port, port + beside}:
                    one = held.enter_context(socket.socket())
                    one.bind(("127.0.0.1", each))
                found.append(port)
            if len(found) == count:
                return found
    raise OSError("no port is free")
