"""What a source of a query is: its format and options, as Spark's plan or the user says it, and what is found of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

KAFKA = "kafka"
KINESIS = "onceonly.kinesis"
RABBITMQ_STREAM = "onceonly.rabbitmq.stream"
FILES = "files"
"""What every format of files is called here: Spark reads text, json, parquet … by one source."""
_NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class Source:
    """One source of a query. ``options`` have lower-case names, may hold secrets, and are never shown."""

    format: str
    options: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def may_pass_over(self) -> bool:
        """Whether it was told to go on in silence where rows are gone."""
        return self.options.get("failondataloss", "true").strip().lower() == "false"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a source. ``stops`` says that rows would be lost, or others read."""

    what: str
    next_step: str = ""
    stops: bool = False


def merged(
    planned: Sequence[Source] | None, given: Mapping[str, str], name: str
) -> tuple[Source, ...] | None:
    """Return what is known of a query's sources; None for nothing. Pure.

    ``planned`` are those of Spark's plan, None where nobody can look at it; ``given`` are options that the user gives
    for the guards, of the format ``name``: they take the place of all that a source in the plan says of its cluster.
    """
    if planned is None:
        return (Source(name, dict(given)),) if name else None
    return tuple(
        Source(each.format, _with(each.options, given)) if each.format == name else each for each in planned
    )


def _with(options: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    is_cluster = any(key.startswith("kafka.") for key in given)
    kept = {key: value for key, value in options.items() if not (is_cluster and key.startswith("kafka."))}
    return {**kept, **given}


def some_of(names: Iterable[str]) -> str:
    """Return the first few names, and how many there are besides. Pure."""
    listed = sorted(names)
    more = f" and {len(listed) - _NAMED_MAX} more" if len(listed) > _NAMED_MAX else ""
    return ", ".join(listed[:_NAMED_MAX]) + more
