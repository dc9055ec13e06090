"""The sources in a query's logical plan, for the guards. Driver, on a classic session; asks the JVM once a start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceonly.guards.promises import BY_OPTIONS
from onceonly.guards.source import FILES, KAFKA, Source
from onceonly.spark.plans import below, every

if TYPE_CHECKING:
    from collections.abc import Mapping

_OF_FILES = "FileSource["
# What a Python source is given may be long, as the rows of a collection are, and nobody looks at it.
_LOOKED_AT = {FILES, *BY_OPTIONS}


def sources_of(plan: Any) -> list[Source]:  # noqa: ANN401  a Java object
    """Return the sources that a plan reads, in no order. A source that is read twice may be there twice."""
    found = (_source(node) for node in below(plan))
    return [each for each in found if each is not None]


def _source(node: Any) -> Source | None:  # noqa: ANN401
    kind = str(node.getClass().getSimpleName())
    if kind == "StreamingRelationV2":
        name = _short(str(node.sourceName()))
        return Source(
            name, _lower(dict(node.extraOptions().asCaseSensitiveMap())) if name in _LOOKED_AT else {}
        )
    if kind == "StreamingRelation":
        name = str(node.sourceName())
        if not name.startswith(_OF_FILES):
            return Source(name)
        return Source(FILES, _lower(_scala(node.dataSource().options())))
    return None


def _short(name: str) -> str:
    """Return a format's short name, where it was given by the name of its class. Pure."""
    return KAFKA if name.endswith(".KafkaSourceProvider") else name


def _scala(options: Any) -> dict[str, str]:  # noqa: ANN401  Scala's map
    return {str(pair._1()): str(pair._2()) for pair in every(options.toSeq())}  # noqa: SLF001  Scala's pair


def _lower(options: Mapping[str, str]) -> dict[str, str]:
    return {str(name).lower(): str(text) for name, text in options.items()}
