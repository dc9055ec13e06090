"""Which feeds and sources there are by name. Any process; without a feed, nothing of the journal is imported."""

from __future__ import annotations

import importlib
from typing import Any, Final

from onceonly.errors import ConfigurationError

FEEDS: Final[dict[str, str]] = {
    "http": "onceonly.sources.http:HttpFeed",
    "rabbitmq": "onceonly.sources.rabbitmq:RabbitFeed",
    "socket": "onceonly.sources.socket:SocketFeed",
}
SOURCES: Final = (*FEEDS, "collection", "kinesis", "rabbitmq.stream")
"""The names of all formats of ours that are read, without their prefix."""


def feed_class(name: str) -> Any:  # noqa: ANN401  a class that fulfils ``Feed``
    """Return the class of a feed. Raises ``ConfigurationError`` for a name that there is none of."""
    if name not in FEEDS:
        raise ConfigurationError(
            f"there is no feed named {name!r}", next_step=f"use one of {', '.join(sorted(FEEDS))}"
        )
    module, _, attribute = FEEDS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)
