"""What a campaign of one sink has found, small enough to be kept: what the guarantee matrix shows of it.

``python -m onceonly_proof.campaign.records REPORT.json…`` takes reports of ``onceonly verify``, and writes for each
sink and promise one record below ``docs/proof/sinks``, in place of the one before. A report of several calls is one
campaign.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from onceonly.errors import ConfigurationError, OnceonlyError
from onceonly_proof.campaign.folding import total
from onceonly_proof.campaign.result import encode, read, save
from onceonly_proof.campaign.values import Counts, Verdict, promise
from onceonly_proof.campaign.way import way

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceonly_proof.campaign.values import Result, Row

FOLDER: Final = Path("docs/proof/sinks")
"""Relative to the project's folder."""
_VERSION = 1
_WHY_MAX = 5


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All rounds of one sink, or of several under one decision, under one promise."""

    version: int = _VERSION
    sink: str
    guarantee: str
    visible: str = ""
    """``early`` where rows by key are seen before they are decided."""
    source: str = ""
    """What was read; empty for Kafka."""
    store: str = ""
    """Where checkpoints were; empty for a folder."""
    broker: str = ""
    """The kind of the broker; empty for the usual one."""
    query: str = ""
    """``window`` where rows were counted by window; empty for all else that queries did."""
    verdict: Verdict
    why: tuple[str, ...] = ()
    """Why it is not clean."""
    crashes: int
    rounds: int
    rows: int
    epochs: int
    armed: int
    faults: Counts
    """How often each kind of fault fired, wherever it struck."""
    anomalies: Counts
    """Those that were found."""
    seeds: tuple[int, ...]
    days: tuple[str, ...]
    commits: tuple[str, ...]
    """The code that was run, sorted by time."""
    replays: int = 0
    """Epochs whose input was read again, after an attempt at them was given up."""
    never_taken: int = 0
    """Rows that a source which sends nothing again lost before they were in the journal."""
    came_again: int = 0
    """How often a source without names for its rows gave one again."""
    looks: Counts = {}
    """How often the readers that look at a sink while the job runs were answered."""
    asked: Counts = {}
    """How often they asked."""

    @property
    def promise(self) -> str:
        """What was promised, in words."""
        return promise(self.guarantee, self.visible, self.source)

    @property
    def way(self) -> str:
        """What was read and written, in words, and where that was not usual."""
        return way(self.source, self.sink, self.store, self.broker, self.query)

    @property
    def file(self) -> str:
        """The name of its file."""
        words = [
            *([f"from-{self.source}"] if self.source else []),
            *([self.query] if self.query else []),
            self.sink,
            *([f"on-{self.store}"] if self.store else []),
            *([f"broker-{self.broker}"] if self.broker else []),
            *(word for word in (self.guarantee, self.visible) if word not in {"", "exactly-once"}),
        ]
        return "-".join(words) + ".json"


def records(result: Result) -> tuple[Record, ...]:
    """Return one for each row of a report's matrix. Pure."""
    return tuple(_record(result, row) for row in result.matrix)


def read_all(folder: Path) -> tuple[Record, ...]:
    """Return the records of a folder, sorted by promise, those of one sink first; none where there is no folder.

    Raises:
        ConfigurationError: one of the files is no record, or of a newer version.
    """
    found = [_read(path) for path in sorted(folder.glob("*.json"))]
    return tuple(
        sorted(found, key=lambda each: (each.promise, each.source, each.sink.count("+"), each.sink, each.way))
    )


def parted(fault: str) -> tuple[str, str]:
    """Return what is done, and the point at which it is, empty where there is none. Pure."""
    what, _, point = fault.rpartition(" ")
    return (what.removesuffix(" at"), point) if "." in point else (fault, "")


def _record(result: Result, row: Row) -> Record:
    rounds = [each for each in result.rounds if (each.way, each.promise) == (row.way, row.promise)]
    faults: Counter[str] = Counter()
    for name, count in row.faults.items():
        faults[parted(name)[0]] += count
    doubts = [doubt for each in rounds for doubt in each.doubts]
    return Record(
        sink=row.connector,
        guarantee=row.guarantee,
        visible=row.visible,
        source=row.source,
        store=row.store,
        broker=row.broker,
        query=row.query,
        verdict=row.verdict,
        why=tuple(doubts[:_WHY_MAX]),
        crashes=row.crashes,
        rounds=row.rounds,
        rows=row.rows,
        epochs=row.epochs,
        armed=sum(total(each.armed for each in rounds).values()),
        faults=dict(sorted(faults.items())),
        anomalies={name: count for name, count in row.anomalies.items() if count},
        seeds=tuple(sorted({each.seed for each in rounds})),
        days=tuple(sorted({each.started[:10] for each in rounds})),
        commits=tuple(dict.fromkeys(each.commit for each in rounds if each.commit)),
        replays=row.replays,
        never_taken=row.never_taken,
        came_again=row.came_again,
        looks=row.looks,
        asked=row.asked,
    )


def _read(path: Path) -> Record:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Record)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{path} is not a whole record of a sink: {error}", next_step="restore it, or record it anew"
        ) from None
    if found.version > _VERSION:
        raise ConfigurationError(
            f"{path} has format {found.version}, and this version reads up to {_VERSION}",
            next_step="use the version of onceonly that wrote it",
        )
    return found


def main(arguments: Sequence[str]) -> int:
    """Write the records of the project in the current folder from the reports that are named."""
    if not arguments:
        sys.stderr.write("usage: python -m onceonly_proof.campaign.records REPORT.json…\n")
        return 64
    try:
        for path in arguments:
            for each in records(read(Path(path))):
                save(FOLDER / each.file, encode(each))
    except OnceonlyError as error:
        sys.stderr.write(f"error: {error.what}; {error.next_step}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
