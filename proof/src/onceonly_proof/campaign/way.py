"""Where rows come from and go to, by name. Pure."""

from __future__ import annotations

from typing import Final

KAFKA: Final = "kafka"
"""The source of rounds that name none."""
LOSSY: Final = frozenset({"socket", "http-no-resume"})
"""Sources that send nothing again: what is lost before the journal is lost."""
REPEATING: Final = frozenset({"rabbitmq-no-ids"})
"""Sources whose rows have no names: what is given again comes into the journal again."""
JOURNALED: Final = frozenset({"rabbitmq", "http"}) | LOSSY | REPEATING
"""Sources that are received into a journal."""
RANGED: Final = frozenset({"kinesis"})
"""Sources whose ranges are fixed by who reads them first."""
SERVED: Final = frozenset({"rabbitmq-stream"}) | JOURNALED | RANGED
"""Sources beside Kafka, each with a server of its own."""
SERVERLESS: Final = frozenset({"collection", "files"})
"""Sources that have none, so that none dies."""
PRINTED: Final = "console"
"""The sink whose rows travel through the driver's log, so that these have to be few and small."""
ONCE: Final = frozenset({"cassandra"})
"""Keyed stores that take a key once in an epoch where rows are seen early, as no sequence tells which one is later."""

_VARIANTS: Final = {"redis-cluster": "redis"}
"""Targets that are another kind of a sink's, by the name of that sink."""
_FEEDS: Final = {
    "http-no-resume": "http",
    "rabbitmq-no-ids": "rabbitmq",
    "rabbitmq-stream": "rabbitmq.stream",
}
"""Sources that are another use of a format's, or have another name, by the name of that format."""
_OF_SPARK: Final = {"files": "text"}
"""Sources of Spark's own, by their formats."""


def sink_of(name: str) -> str:
    """Return the sink that writes to a target."""
    return _VARIANTS.get(name, name)


def format_of(source: str) -> str:
    """Return the name of the format that reads a source."""
    return _OF_SPARK.get(source, f"onceonly.{_FEEDS.get(source, source)}")


def way(source: str, connector: str, store: str = "", broker: str = "", query: str = "") -> str:
    """Return what a query reads and writes, in words; what it writes alone, where it reads Kafka.

    The store of its checkpoint, the kind of its broker, and what it does in between are named where they are given.
    """
    read = f"{source} → " if source not in {"", KAFKA} else ""
    between = f"{query} → " if query else ""
    return (
        f"{read}{between}{connector}{f' on {store}' if store else ''}{f', broker {broker}' if broker else ''}"
    )
