"""Whose targets a fork keeps away from: ``origin.json``, written where it is forked, never changed.

Its log begins with a link that has them, too, but that is folded one day, and a target may be changed at any start.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  the codec reads the annotations at run time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceonly.log import files

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onceonly.model import Link
    from onceonly.stores.port import Store

NAME = "origin.json"
_KIND = "origin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One target of the query that was forked: the sink as ``SinkUse`` names it, and what its identity was."""

    sink: str
    identity: Mapping[str, str | int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What ``origin.json`` holds."""

    targets: tuple[Target, ...] = ()


def read(store: Store) -> Origin | None:
    """Return what it says, None where the query is no fork. Raises ``LogError``, ``UnavailableError``."""
    return files.read(store, NAME, kind=_KIND, into=Origin)


def decode(data: bytes, *, where: str) -> Origin:
    """Return what a file holds. Raises ``LogError``."""
    return files.decode(data, kind=_KIND, into=Origin, where=where)


def encode(origin: Origin) -> bytes:
    """Return the file's content."""
    return files.encode(_KIND, origin)


def targets_of(links: Iterable[Link]) -> tuple[Target, ...]:
    """Return all targets that links name, each once, in their order. Pure."""
    found: list[Target] = []
    for link in links:
        for name, identity in sorted(link.settings.items()):
            use = link.uses.get(name)
            target = Target(sink="" if use is None else use.sink, identity=dict(identity))
            if identity and target not in found:
                found.append(target)
    return tuple(found)
