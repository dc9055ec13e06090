"""What a query promises from end to end: the weakest of its sources and sinks. Declared here, once; pure.

A source that replays its epochs exactly adds nothing to what a sink promises. One that may lose rows takes *at least
once* away, one that may give them twice takes *at most once* away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.guards.source import FILES, KAFKA, KINESIS, RABBITMQ_STREAM
from onceonly.model import Guarantee
from onceonly.settings.query import GUARANTEE
from onceonly.settings.registry import BUILT_IN, strongest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onceonly.guards.source import Source

NONE = "none"
"""Rows may be lost, and may be there twice."""
UNKNOWN = "not known"
_LOSES = {Guarantee.EXACTLY_ONCE: False, Guarantee.AT_LEAST_ONCE: False, Guarantee.AT_MOST_ONCE: True}
_DOUBLES = {Guarantee.EXACTLY_ONCE: False, Guarantee.AT_LEAST_ONCE: True, Guarantee.AT_MOST_ONCE: False}
# Their strongest promise, and the option that makes it a weaker one when it is none; what it is when it is not given.
FEEDS = {
    "onceonly.http": ("exactly-once", "resume", "at-most-once", "none"),
    "onceonly.rabbitmq": ("exactly-once", "id", "at-least-once", "messageid"),
}
_PASSES_OVER = {name: f"{name}, failOnDataLoss=false" for name in (KAFKA, KINESIS, RABBITMQ_STREAM)}
BY_OPTIONS = frozenset({*_PASSES_OVER, *FEEDS})
"""The formats whose promise their options decide."""


@dataclass(frozen=True, slots=True)
class Strength:
    """What a source promises of its rows, and what that stands on."""

    guarantee: Guarantee
    because: str


SOURCES: dict[str, Strength] = {
    KAFKA: Strength(Guarantee.EXACTLY_ONCE, "offsets, as long as Kafka keeps the rows"),
    _PASSES_OVER[KAFKA]: Strength(Guarantee.AT_MOST_ONCE, "what retention takes first is passed over"),
    KINESIS: Strength(
        Guarantee.EXACTLY_ONCE, "ranges that their reader fixes, as long as the stream keeps the records"
    ),
    _PASSES_OVER[KINESIS]: Strength(Guarantee.AT_MOST_ONCE, "what retention takes first is passed over"),
    FILES: Strength(Guarantee.EXACTLY_ONCE, "lists of files, as long as these stay as they are"),
    "rate": Strength(Guarantee.EXACTLY_ONCE, "rows are computed from their numbers"),
    "rate-micro-batch": Strength(Guarantee.EXACTLY_ONCE, "rows are computed from their numbers"),
    "socket": Strength(Guarantee.AT_MOST_ONCE, "rows are kept in the driver's memory alone"),
    "delta": Strength(Guarantee.EXACTLY_ONCE, "versions of the table, as long as its log has them"),
    "iceberg": Strength(Guarantee.EXACTLY_ONCE, "snapshots of the table, as long as they are not expired"),
    "onceonly.collection": Strength(
        Guarantee.EXACTLY_ONCE, "positions, with a fingerprint of the rows before"
    ),
    "onceonly.http": Strength(
        Guarantee.EXACTLY_ONCE, "a journal, ids, and a server that goes on after the id that it is told"
    ),
    "onceonly.http, at-most-once": Strength(
        Guarantee.AT_MOST_ONCE, "a journal; what is lost before it is lost"
    ),
    "onceonly.rabbitmq": Strength(
        Guarantee.EXACTLY_ONCE, "a journal, and message ids that are remembered long enough"
    ),
    "onceonly.rabbitmq, at-least-once": Strength(
        Guarantee.AT_LEAST_ONCE, "a journal; messages are acknowledged behind it"
    ),
    "onceonly.rabbitmq, at-most-once": Strength(
        Guarantee.AT_MOST_ONCE, "a journal; messages are acknowledged before it"
    ),
    RABBITMQ_STREAM: Strength(Guarantee.EXACTLY_ONCE, "offsets, as long as the stream keeps the messages"),
    _PASSES_OVER[RABBITMQ_STREAM]: Strength(
        Guarantee.AT_MOST_ONCE, "what retention takes first is passed over"
    ),
    "onceonly.socket": Strength(Guarantee.AT_MOST_ONCE, "a journal; what is lost before it is lost"),
}
"""By the format's name, in the order of the reference's table."""


def weakest(guarantees: Iterable[Guarantee]) -> str:
    """Return what is left of several promises that all have to hold; ``none`` where nothing is."""
    told = list(guarantees)
    loses, doubles = any(_LOSES[each] for each in told), any(_DOUBLES[each] for each in told)
    if loses and doubles:
        return NONE
    if loses:
        return Guarantee.AT_MOST_ONCE.value
    return (Guarantee.AT_LEAST_ONCE if doubles else Guarantee.EXACTLY_ONCE).value


def named(source: Source) -> str:
    """Return the name by which a source stands in ``SOURCES``, or its format."""
    if source.format in _PASSES_OVER:
        return _PASSES_OVER[source.format] if source.may_pass_over else source.format
    weaker = _weaker(source)
    return f"{source.format}, {weaker}" if weaker else source.format


def _weaker(source: Source) -> str:
    """Return the promise of a feed that is not its strongest, by its options; empty for others."""
    if source.format not in FEEDS:
        return ""
    strong, option, weak, without = FEEDS[source.format]
    asked = source.options.get(GUARANTEE, "") or (
        weak if source.options.get(option, without).strip().lower() == "none" else strong
    )
    return "" if asked == strong else asked


def end_to_end(sources: Iterable[Source], sinks: Iterable[Guarantee]) -> str:
    """Return the promise of a query; ``not known`` where one of its sources is of a format without a declaration."""
    names = [named(each) for each in sources]
    if not names or any(name not in SOURCES for name in names):
        return UNKNOWN
    return weakest([*(SOURCES[name].guarantee for name in names), *sinks])


def table() -> Iterator[tuple[str, ...]]:
    """Yield the table of sources and sinks for the reference: a head, then a row a source."""
    sinks = {name: strongest(BUILT_IN[name]) for name in BUILT_IN}
    yield ("source", "stands on", *sinks)
    for name, source in SOURCES.items():
        yield (
            name,
            source.because,
            *(weakest([source.guarantee, sink]) for sink in sinks.values()),
        )
