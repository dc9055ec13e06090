"""The options of ``onceonly.socket`` as a source."""

from __future__ import annotations

from onceonly.options import Option, port

DECLARED: tuple[Option, ...] = (
    Option(name="host", doc="The server's name or address.", required=True),
    Option(name="port", doc="The server's port.", required=True, read=port),
)
