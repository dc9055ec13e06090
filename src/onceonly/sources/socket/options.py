"""The options of ``onceonly.socket`` as a source."""

from __future__ import annotations

from typing import Final

from onceonly.options import Option

_PORT_MAX: Final = 65_535


def _port(text: str) -> int:
    port = int(text)
    if not 0 < port <= _PORT_MAX:
        raise ValueError(text)
    return port


DECLARED: tuple[Option, ...] = (
    Option(name="host", doc="The server's name or address.", required=True),
    Option(name="port", doc="The server's port.", required=True, read=_port, form="a port, from 1 to 65535"),
)
