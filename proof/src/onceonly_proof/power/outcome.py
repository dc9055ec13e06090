"""What a power-loss campaign found: values, written after each cut and gone on with. Pure but for the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from onceonly_proof.handover import put

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly_proof.power.audits import Judged
    from onceonly_proof.power.task import Done

_EXAMPLES_MAX = 12
_TEXT_MAX = 400


class Found(msgspec.Struct, kw_only=True):
    """Of one pipeline. Ordinals are counted in each recording of a run, ``operations`` are their kinds with paths."""

    pipeline: str
    recordings: int = 0
    cuts: int = 0
    states: int = 0
    ordinals: int = 0
    ordinals_hit: int = 0
    operations: set[str] = msgspec.field(default_factory=set)
    operations_hit: set[str] = msgspec.field(default_factory=set)
    rows: int = 0
    """Rows that were due, over all states."""
    lost: int = 0
    doubled: int = 0
    other: int = 0
    """Anomalies of other kinds, of the log and of what is left over."""
    bad: int = 0
    """States with any anomaly."""
    by_hand: int = 0
    """States after which the query needed a person."""
    restarts: int = 0
    rescales: int = 0
    """How often the state was dealt to another number of partitions, and the query went on: cut there, or recovered."""
    deaths: int = 0
    """Workers of Spark's that were killed in a run that was cut, or in its recovery."""
    codes: dict[str, int] = msgspec.field(default_factory=dict)
    examples: list[str] = msgspec.field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Say whether nothing was lost or doubled, and nobody was needed."""
        return not (self.bad or self.by_hand)

    def add(self, where: str, done: Done, judged: Judged, *, cuts: int) -> None:
        """Count one state: how the query ended on it, what the auditor found; ``where`` it was cut, for people."""
        self.states += 1
        self.cuts += cuts
        self.restarts += done.starts - 1
        self.rows += judged.rows
        self.lost += judged.lost
        self.doubled += judged.doubled
        self.other += judged.other
        self.bad += judged.bad > 0
        if not done.ok:
            self.by_hand += 1
            self.codes[done.code] = self.codes.get(done.code, 0) + 1
            self._tell(f"{where}: {done.code} {done.what[:_TEXT_MAX]}")
        if judged.bad or judged.other:
            self._tell(f"{where}: {'; '.join(judged.examples)}")

    def _tell(self, text: str) -> None:
        if len(self.examples) < _EXAMPLES_MAX:
            self.examples.append(text)


class Result(msgspec.Struct, kw_only=True):
    """Of a campaign, over all its invocations."""

    commits: list[str] = msgspec.field(default_factory=list)
    machine: dict[str, str | int | float] = msgspec.field(default_factory=dict)
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    seeds: list[int] = msgspec.field(default_factory=list)
    minutes: float = 0.0
    begun: str = ""
    ended: str = ""
    pipelines: list[Found] = msgspec.field(default_factory=list)

    def pipeline(self, name: str) -> Found:
        """Return what is found of a pipeline, nothing at first."""
        for each in self.pipelines:
            if each.pipeline == name:
                return each
        self.pipelines.append(Found(pipeline=name))
        return self.pipelines[-1]

    @property
    def cuts(self) -> int:
        """Count the cuts of all pipelines."""
        return sum(each.cuts for each in self.pipelines)

    @property
    def states(self) -> int:
        """Count the different states that were tried on all pipelines."""
        return sum(each.states for each in self.pipelines)

    @property
    def is_clean(self) -> bool:
        """Say whether there was any, and all were survived."""
        return self.cuts > 0 and all(each.is_clean for each in self.pipelines)


def read(path: Path) -> Result:
    """Read a result; an empty one where there is no file."""
    return msgspec.json.decode(path.read_bytes(), type=Result) if path.exists() else Result()


def write(path: Path, result: Result) -> None:
    """Write it, whole or not at all."""
    put(path, msgspec.json.format(msgspec.json.encode(result, order="sorted"), indent=1) + b"\n")
