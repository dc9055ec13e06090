"""What the harness needs of a contender, and what a contender is told of a run."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.values import Work

ROOT = Path(__file__).parents[2]
LATE_MS = 1_000
"""How late a record may be for its window, for all: the watermark's delay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a run reads and writes. ``per_epoch`` bounds an epoch of Spark, 0 for none.

    Where the sink comes over TLS, ``tls_servers`` is its address of the broker, and ``certificate`` the file to trust.
    """

    name: str
    servers: str
    source: str
    target: str
    checkpoint: Path
    partitions: int
    per_epoch: int
    window_ms: int
    tls_servers: str = ""
    certificate: Path | None = None


class Contender(Protocol):
    """One system in one configuration. Harness; starts no process itself."""

    name: str
    is_tuned: bool
    """Its runs of few rows have a process of their own, whose session is made for them."""

    def prepare(self) -> None:
        """Get what it needs, once, before the first run. Raises ``OnceonlyError`` where it cannot be had here."""
        ...

    def command(self) -> list[str]:
        """Return the command of its job, which the job's folder is added to."""
        ...

    def write_session(self, folder: Path, cores: int, *, few_rows: bool) -> None:
        """Write what the job reads at its start into its folder; ``few_rows`` is never true of an untuned one."""
        ...

    def order(self, work: Work, place: Place) -> dict[str, object]:
        """Return the order that starts a run."""
        ...

    def settings(self) -> Mapping[str, str]:
        """Return all its settings, for the results."""
        ...

    def versions(self) -> Mapping[str, str]:
        """Return the versions that are its own, for the results."""
        ...


def common_order(work: Work, place: Place) -> dict[str, object]:
    """Return what all of them are told alike."""
    return {
        "name": place.name,
        "kind": work.kind,
        "servers": place.servers,
        "source": place.source,
        "target": place.target,
        "checkpoint": str(place.checkpoint),
        "per_epoch": place.per_epoch,
        "interval_ms": work.interval_ms,
        "window_ms": place.window_ms,
        "late_ms": LATE_MS,
    }


def prefixed(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return Kafka's settings under the names that an engine has for them."""
    return {f"{prefix}{name}": setting for name, setting in options.items()}


def write_session(folder: Path, content: Mapping[str, object]) -> None:
    """Write ``session.json``; the folder is made."""
    folder.mkdir(parents=True)
    (folder / "session.json").write_text(json.dumps(content), encoding="utf-8")


def python_path() -> str:
    """Return the path on which a job finds the benchmark and what it uses of onceonly."""
    return os.pathsep.join(map(str, (ROOT, ROOT / "src", ROOT / "proof/src")))
