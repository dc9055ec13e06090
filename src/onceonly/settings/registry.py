"""Which sinks there are by name, and how a process that has only the name gets the class."""

from __future__ import annotations

import difflib
import importlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from onceonly.errors import ConfigurationError, required
from onceonly.log.place import FOLDER
from onceonly.model import Capabilities, Guarantee, SinkUse, Visible
from onceonly.options import public_options
from onceonly.ports import TwoPhaseCommitSink
from onceonly.settings.query import GUARANTEE, PREFIX, VISIBLE, Settings, SinkSettings, parse
from onceonly.sources.known import SOURCES
from onceonly.stores.opened import address_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.ports import Sink

SinkClass: TypeAlias = "type[TwoPhaseCommitSink[Any]] | str"
"""A class, or ``module:Class`` of a built-in whose client library may be missing here."""

BUILT_IN: dict[str, str] = {
    "kafka": "onceonly.sinks.kafka:KafkaSink",
    "console": "onceonly.sinks.console:ConsoleSink",
    "files": "onceonly.sinks.files:FilesSink",
    "duckdb": "onceonly.sinks.sql:DuckdbSink",
    "mysql": "onceonly.sinks.sql:MySqlSink",
    "postgres": "onceonly.sinks.sql:PostgresSink",
    "sql": "onceonly.sinks.sql:SqlSink",
    "sqlite": "onceonly.sinks.sql:SqliteSink",
    "redis": "onceonly.sinks.redis:RedisSink",
    "opensearch": "onceonly.sinks.opensearch:OpenSearchSink",
    "elasticsearch": "onceonly.sinks.opensearch:ElasticsearchSink",
    "cassandra": "onceonly.sinks.cassandra:CassandraSink",
    "delta": "onceonly.sinks.delta:DeltaSink",
    "iceberg": "onceonly.sinks.iceberg:IcebergSink",
    "kinesis": "onceonly.sinks.kinesis:KinesisSink",
    "socket": "onceonly.sinks.socket:SocketSink",
}
# In complete mode Spark asks to replace the former result. Its own Kafka and console sinks append the whole
# result instead, and so do these; for anyone else's sink that would be a guess. Spark's file sink refuses, and so does
# ours: results of all epochs would lie on top of each other, and no reader could tell.
APPEND_COMPLETE = frozenset({"kafka", "console"})
# Losing a row is worse than seeing it twice.
_STRONGEST_FIRST = (Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE)
_COLUMNS_MAX = 4_096
_given: dict[str, type[TwoPhaseCommitSink[Any]]] = {}


def remember(sink: object) -> str:
    """Take a class of the user's; return its name. Driver."""
    if not (isinstance(sink, type) and issubclass(sink, TwoPhaseCommitSink)):
        shown = sink.__name__ if isinstance(sink, type) else type(sink).__name__
        raise ConfigurationError(
            f"{shown} is not a class made from onceonly.TwoPhaseCommitSink",
            next_step="pass the class itself, not an instance, and derive it from TwoPhaseCommitSink",
        )
    name = getattr(sink, "name", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise ConfigurationError(
            f"the sink class {sink.__name__} has no usable name: {name!r}",
            next_step='give it one: name = "ledger"; its format is then "onceonly.ledger"',
        )
    if name in BUILT_IN or name in SOURCES:
        raise ConfigurationError(
            f"the sink class {sink.__name__} is named {name!r}, which onceonly uses itself",
            next_step="give it another name",
        )
    _given[name] = sink
    return name


def given() -> dict[str, type[TwoPhaseCommitSink[Any]]]:
    """Return the classes of the user's, by name. Driver."""
    return dict(_given)


def find(
    name: object, others: Mapping[str, type[TwoPhaseCommitSink[Any]]] | None = None
) -> tuple[str, SinkClass]:
    """Return name and class of ``"onceonly.kafka"``, ``"kafka"`` or a class. Driver.

    ``others`` are classes of the user's that a process knows which has not been told them itself.
    """
    if not isinstance(name, str):
        short = remember(name)
        return short, _given[short]
    short = name.removeprefix(PREFIX)
    known: dict[str, SinkClass] = {**BUILT_IN, **(others or {}), **_given}
    if short in known:
        return short, known[short]
    near = difflib.get_close_matches(short, list(known), n=1)
    hint = f"did you mean {PREFIX + near[0]!r}? " if near else ""
    raise ConfigurationError(
        f"there is no sink named {name!r}",
        next_step=f"{hint}Known: {', '.join(sorted(known))}; register your own, or pass its class",
    )


def load(sink: SinkClass) -> type[TwoPhaseCommitSink[Any]]:
    """Return the class itself. Any process. Raises ``SetupError`` where its client library is missing."""
    if not isinstance(sink, str):
        return sink
    module, _, attribute = sink.partition(":")
    extra = module.rpartition(".")[2]
    with required(f"the sink {extra!r} needs a package", extra=extra):
        found: type[TwoPhaseCommitSink[Any]] = getattr(importlib.import_module(module), attribute)
    return found


def strongest(sink: SinkClass) -> Guarantee:
    """Return the strongest guarantee that the class offers: the default of its queries. Any process."""
    offered = getattr(load(sink), "capabilities", None)
    for guarantee in _STRONGEST_FIRST:
        if isinstance(offered, Capabilities) and guarantee in offered.guarantees:
            return guarantee
    return Guarantee.EXACTLY_ONCE  # an instance will say whether that is so


def claimed(sink: SinkClass) -> tuple[str, ...]:
    """Name the options below ``onceonly.`` that the sink itself understands. Any process."""
    return tuple(option.name for option in load(sink).declared if option.name.startswith(PREFIX))


def settings_of(options: Mapping[str, str], name: str, sink: SinkClass) -> Settings:
    """Read a query's options for this sink. Anywhere; pure. Raises ``ConfigurationError``."""
    return parse(options, default_name=name, default_guarantee=strongest(sink), claimed=claimed(sink))


def build(settings: SinkSettings, sink: SinkClass, *, checkpoint: str = "") -> Sink:
    """Make the sink, and see that it offers the guarantee asked. Driver and executor.

    ``checkpoint`` is the query's ``checkpointLocation``, in which the sink gets a place.
    """
    made = load(sink)(dict(settings.options))
    if checkpoint:
        made.place = place_of(checkpoint)
    if settings.letters is not None and not made.capabilities.gives_back:
        made.close()
        raise ConfigurationError(
            f"the sink {settings.name!r} cannot give back a row that its target refuses, so no dead letter would "
            "ever be written",
            next_step="leave onceonly.refused at stop; or let the sink give back such rows (capabilities.gives_back)",
        )
    offered = made.capabilities.guarantees
    if settings.guarantee not in offered:
        made.close()
        why = f": {made.capabilities.lacks}" if made.capabilities.lacks else ""
        raise ConfigurationError(
            f"the sink {settings.name!r} does not offer {settings.guarantee.value}{why}",
            next_step="set onceonly.guarantee to one of " + ", ".join(sorted(offered)),
        )
    if settings.visible is Visible.EARLY and not made.capabilities.early:
        made.close()
        raise ConfigurationError(
            f"the sink {settings.name!r} cannot show rows early and exactly once: only where rows have keys does the "
            "next try take the place of what was seen",
            next_step=f"leave {VISIBLE} out"
            + (
                f"; or set {GUARANTEE}={Guarantee.AT_LEAST_ONCE.value}"
                if Guarantee.AT_LEAST_ONCE in offered
                else ""
            ),
        )
    return made


def place_of(checkpoint: str) -> str:
    """Return the place in a checkpoint that its query's sinks share: a path, or the address in full."""
    address = address_of(checkpoint).below(FOLDER).below("staged")
    return address.shown


def noted(use: SinkUse, columns: tuple[tuple[str, str], ...]) -> SinkUse:
    """Return how a sink is used, with the columns of its rows where a link has room for them. Pure."""
    few = sum(len(name) + len(kind) for name, kind in columns) <= _COLUMNS_MAX
    return replace(use, columns=columns if few else ())


def use_of(settings: SinkSettings, sink: SinkClass) -> SinkUse:
    """Say how a query uses a sink, without secrets. Driver."""
    names = {path: name for name, path in BUILT_IN.items()}
    return SinkUse(
        sink=names[sink] if isinstance(sink, str) else f"{sink.__module__}:{sink.__qualname__}",
        guarantee=settings.guarantee,
        options=public_options(load(sink).declared, settings.options),
    )
