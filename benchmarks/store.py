"""The file of results: replaced whole after each run, so that what was measured survives whatever comes next."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import msgspec

from benchmarks.ratios import ratios
from benchmarks.values import VERSION, Measured, Results, decode, encode
from onceonly_proof.campaign.result import save

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.plan import Sizes

    Settings = Mapping[str, Mapping[str, str]]

T = TypeVar("T")


def read(path: Path) -> Results | None:
    """Read results, None where there are none that this version wrote."""
    with suppress(OSError, msgspec.DecodeError):
        return decode(path.read_bytes())
    return None


def recorded(path: Path, kind: type[T]) -> T | None:
    """Read a record of this kind, None where none has been made. Raises ``msgspec.DecodeError`` for another one."""
    return msgspec.json.decode(path.read_bytes(), type=kind) if path.exists() else None


def interrupted(path: Path, fingerprint: str) -> Results | None:
    """Return results to be gone on with: of the same plan and code, and not brought to their end.

    Who could not be had then is tried again.
    """
    found = read(path)
    if found is None or found.finished or found.fingerprint != fingerprint:
        return None
    return msgspec.structs.replace(found, not_run={})


def begin(
    *,
    sizes: Sizes,
    command: str,
    fingerprint: str,
    planned: int,
    settings: Settings,
    machine: Mapping[str, str | int | float],
    versions: Mapping[str, str],
) -> Results:
    """Return results without a run."""
    values, notes = ratios((), {})
    return Results(
        version=VERSION,
        size=sizes.name,
        command=command,
        fingerprint=fingerprint,
        started=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=0.0,
        finished=False,
        ratios=values,
        ratio_notes=notes,
        not_run={},
        planned=planned,
        runs=(),
        settings=settings,
        sizes=msgspec.json.decode(msgspec.json.encode(sizes)),
        machine=machine,
        versions=versions,
    )


@dataclass(slots=True)
class Store:
    """Results that grow, and their file. Harness, one thread."""

    path: Path
    results: Results
    _since: float = field(default_factory=time.monotonic)

    def add(self, *measured: Measured) -> None:
        """Add runs. One that failed before gives way to its repetition."""
        names = {each.run.id for each in measured}
        kept = tuple(each for each in self.results.runs if each.run.id not in names)
        self._put(runs=(*kept, *measured))

    def leave_out(self, contender: str, why: str) -> None:
        """Note that a contender cannot be had here."""
        self._put(not_run={**self.results.not_run, contender: why})

    def finish(self) -> None:
        """Note that all was done that was planned."""
        self._put(finished=True)

    def _put(self, **changed: object) -> None:
        now = time.monotonic()
        seconds = round(self.results.seconds + now - self._since, 1)
        self._since = now
        results = msgspec.structs.replace(self.results, seconds=seconds, **changed)
        values, notes = ratios(results.runs, results.not_run)
        self.results = msgspec.structs.replace(results, ratios=values, ratio_notes=notes)
        save(self.path, encode(self.results))
