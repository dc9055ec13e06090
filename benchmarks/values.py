"""What a benchmark is told and what it has found: frozen values, as they stand in the file of results. No I/O."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec reads the annotations at run time
from typing import Literal, TypeAlias

import msgspec

VERSION = 2
ONCEONLY_EO, ONCEONLY_ALO = "onceonly-exactly-once", "onceonly-at-least-once"
SPARK_DEFAULT, SPARK_TUNED = "spark-default", "spark-tuned"
FLINK_EO, FLINK_ALO = "flink-exactly-once", "flink-at-least-once"
CONTENDERS = (ONCEONLY_EO, ONCEONLY_ALO, SPARK_DEFAULT, SPARK_TUNED, FLINK_EO, FLINK_ALO)

Part: TypeAlias = Literal["throughput", "window", "latency", "empty", "commit", "recovery"]
PARTS: tuple[Part, ...] = ("throughput", "window", "latency", "empty", "commit", "recovery")
Kind: TypeAlias = Literal["pass", "window", "empty", "commit", "recovery"]
Record: TypeAlias = Literal["100b", "1kb"]
RECORD_BYTES: Mapping[Record, int] = {"100b": 100, "1kb": 1024}
"""Key and value together."""
Compression: TypeAlias = Literal["none", "lz4"]
Outcome: TypeAlias = Literal["whole", "lost", "doubled", "failed"]
"""``whole``: each record came out once. ``failed``: the contender stopped, or was not ready in time."""


_FEW_A_SECOND = 1_000


class Work(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one run has to do.

    ``rate``: records a second, 0 where all are in the topic before. ``interval_ms``: Spark's trigger or Flink's
    checkpoints, 0 for Spark's default. ``count``: transactions of one epoch, for the commit phase. ``tls``: the sink
    comes to the broker over TLS; the source does not.
    """

    kind: Kind
    record: Record = "100b"
    compression: Compression = "none"
    rate: int = 0
    interval_ms: int = 0
    count: int = 0
    tls: bool = False

    @property
    def has_few_rows(self) -> bool:
        """Say whether rows come so seldom that they are not what takes the time."""
        return 0 < self.rate <= _FEW_A_SECOND

    @property
    def name(self) -> str:
        """Tell it from other works of the same part, on a terminal and in a file."""
        words: list[str] = [self.kind, self.record, self.compression]
        if self.kind in {"commit", "recovery"}:
            words = [self.kind]
        if self.tls:
            words.append("tls")
        if self.rate:
            words.append(f"{self.rate}rps")
        if self.interval_ms:
            words.append(f"{self.interval_ms}ms")
        if self.count:
            words.append(f"{self.count}transactions")
        return "-".join(words)


class Run(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run of one contender. ``round`` counts from 1; a round has every contender once, in turns."""

    part: Part
    contender: str
    round: int
    work: Work

    @property
    def id(self) -> str:
        """Name it; no other run of the same plan has this name."""
        return f"{self.part}/{self.work.name}/{self.contender}/{self.round}"


class Measured(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one run has given. ``figures`` by name, units last; ``lost`` and ``doubled`` count rows.

    The figures of a run that is not whole stand for people to look at, and go into no median and no ratio.
    """

    run: Run
    outcome: Outcome
    why: str = ""
    records: int = 0
    lost: int = 0
    doubled: int = 0
    figures: Mapping[str, float] = {}


class Ratio(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a ratio came about. ``ours`` and ``theirs`` are medians of so many runs; ``why`` says why there is none."""

    is_: str = msgspec.field(name="is")
    better: Literal["higher", "lower"]
    ours: float | None = None
    theirs: float | None = None
    against: str = ""
    runs_ours: int = 0
    runs_theirs: int = 0
    why: str = ""


class Recorded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a file of figures says first: which command found them, when, where and by which versions."""

    version: int
    command: str
    started: str
    machine: Mapping[str, str | int | float]
    versions: Mapping[str, str]


class Results(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of results. ``fingerprint`` is of all that must be the same for an interrupted one to be gone on with."""

    version: int
    size: str
    command: str
    fingerprint: str
    started: str
    seconds: float
    finished: bool
    ratios: Mapping[str, float | None]
    ratio_notes: Mapping[str, Ratio]
    not_run: Mapping[str, str]
    """Contenders that could not be had on this machine, and why."""
    planned: int
    runs: tuple[Measured, ...]
    settings: Mapping[str, Mapping[str, str]]
    sizes: Mapping[str, object]
    machine: Mapping[str, str | int | float]
    versions: Mapping[str, str]


def encode(record: msgspec.Struct) -> bytes:
    """Return the bytes of a file of results, or of another record."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def decode(data: bytes) -> Results:
    """Read them again. Raises ``msgspec.DecodeError`` where they are no results."""
    return msgspec.json.decode(data, type=Results)
