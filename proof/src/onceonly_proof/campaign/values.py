"""The values of a campaign's report: a round, a row of the guarantee matrix, and the whole. All frozen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from onceonly_proof.campaign.queries import UNCHANGED, WINDOW
from onceonly_proof.campaign.way import LOSSY, REPEATING, way
from onceonly_proof.embedded.jars import NEWEST

FOLDER = "folder"
"""A checkpoint that is in a folder of this machine."""
VERSION = 7
"""Of the file. A reader takes older ones and refuses newer ones."""

Verdict: TypeAlias = Literal["clean", "anomalies", "inconclusive"]
Counts: TypeAlias = Mapping[str, int]
"""How often, by name."""
Trace: TypeAlias = Literal["", "accepted", "rejected", "unknown"]
"""Whether the model explains a round's event log; empty where it was not asked."""


def promise(guarantee: str, visible: str, source: str = "") -> str:
    """Return the guarantee in words, and when rows are seen where that is not when they are decided. Pure."""
    since = " from the journal on" if source in LOSSY | REPEATING else ""
    return f"{guarantee} by key, seen {visible}" if visible else guarantee + since


class Round(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One workload under its faults, and what the auditor found afterwards. Times in seconds."""

    seed: int
    number: int
    """From 1; seed and number give the same workload and the same faults again."""
    connector: str
    guarantee: str
    started: str
    """UTC, as in ``2026-11-21T19:20:00Z``; tells two runs of the same round apart."""
    seconds: float
    rows: int
    """Input rows whose place in the output was checked."""
    epochs: int
    crashes: int
    """Processes, or process trees, that died by a fault."""
    armed: Counts
    faults: Counts
    """Those that fired. An armed one that did not makes the round inconclusive."""
    anomalies: Counts
    """What breaks the guarantee, by every name that the auditor knows, zero too."""
    allowed: Counts = {}
    """What the auditor found and the guarantee allows, such as duplicates under at-least-once."""
    examples: tuple[str, ...] = ()
    recovery_s: tuple[float, ...] = ()
    """From each death to the first newly visible row."""
    trouble: tuple[str, ...] = ()
    """What went wrong besides the faults, one sentence each. A round with any proves nothing."""
    not_audited: str = ""
    """Why the outside world could not be read, where it could not."""
    dear: bool = True
    """Whether faults that take seconds each were among those drawn; part of what the seed means."""
    each: bool = False
    """Whether it had one fault of every kind, instead of a draw."""
    trace: Trace = ""
    limit_s: float | None = None
    """How long an epoch was allowed to take."""
    visible: str = ""
    """``early`` where rows by key were seen before they were decided, empty where they were not."""
    query: str = ""
    """What the query did with the rows; empty where a report did not say it yet, and they went on unchanged."""
    broker: str = ""
    """The kind of the broker, as ``--broker`` takes it; empty where a report did not say it yet."""
    store: str = ""
    """Where the checkpoint was, as ``--checkpoint`` takes it; empty where a report did not say it yet: in a folder."""
    commit: str = ""
    """The version of onceonly's code, as git names it."""
    source: str = ""
    """What the query read, as ``--source`` takes it; empty for Kafka."""
    replays: int = 0
    """Epochs whose input was read again, as an earlier attempt at them had been given up."""
    never_taken: int = 0
    """Rows that a source which sends nothing again lost before they were in the journal."""
    came_again: int = 0
    """How often a source without names for its rows gave one again, so that the journal has it once more."""
    globbed: Counts = {}
    """Rows of files that readers which find them by a pattern got while it ran, by the reader."""
    late: int = 0
    """Rows of a query with windows that came when theirs had been shown, so that Spark dropped them."""
    executors: int = 0
    """How many executors the job had in processes of their own; 0 where they were threads of its driver."""
    looks: Counts = {}
    """How often the readers that look at a sink again and again while the job runs were answered, by the sink."""
    asked: Counts = {}
    """How often they asked; what is down, or has its file open, does not answer."""
    speculation: bool = False
    """Whether each of them had a host of its own, where Spark starts second attempts of slow tasks."""
    second_attempts: int = 0
    """How many of these Spark started, as far as its drivers had written them down when they died."""

    @property
    def promise(self) -> str:
        """What was promised, in words."""
        return promise(self.guarantee, self.visible, self.source)

    @property
    def other_store(self) -> str:
        """Where the checkpoint was, unless it was in a folder."""
        return self.store if self.store != FOLDER else ""

    @property
    def other_broker(self) -> str:
        """The kind of the broker, unless it was the usual one."""
        return self.broker if self.broker != NEWEST else ""

    @property
    def other_query(self) -> str:
        """What the query did, where that made other rows of those that it read: it counted them by window."""
        return self.query if self.query == WINDOW else ""

    @property
    def way(self) -> str:
        """What the query read and wrote, in words, and where that was not usual."""
        return way(self.source, self.connector, self.other_store, self.other_broker, self.other_query)

    @property
    def name(self) -> str:
        """How people speak of it."""
        return f"round {self.number} of seed {self.seed}"

    @property
    def command(self) -> str:
        """What runs this round again: the same workload, the same faults."""
        return (
            f"onceonly verify --sink {self.connector} --guarantee {self.guarantee} "
            f"--seed {self.seed} --round {self.number}{f' --source {self.source}' if self.source else ''}"
            f" --query {self.query or UNCHANGED}"
            f"{'' if self.dear else ' --no-dear'}{' --each' if self.each else ''}{' --trace' if self.trace else ''}"
            f"{f' --visible {self.visible}' if self.visible else ''}"
            f"{f' --broker {self.other_broker}' if self.other_broker else ''}"
            f"{f' --checkpoint {self.other_store}' if self.other_store else ''}"
            f"{f' --executors {self.executors}' if self.executors else ''}"
            f"{' --speculation' if self.speculation else ''}"
        )

    @property
    def verdict(self) -> Verdict:
        """What this round alone says of its connector. A round without a crash may be clean; a campaign may not."""
        if sum(self.anomalies.values()) or self.trace == "rejected":
            return "anomalies"
        return "inconclusive" if self.doubts else "clean"

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why this round proves nothing, one sentence each."""
        found = [
            f"{self.name} ({self.way}): {name} was armed {times} times, fired {self.faults.get(name, 0)}"
            for name, times in self.armed.items()
            if self.faults.get(name, 0) < times
        ]
        found += [f"{self.name} ({self.way}): {text}" for text in self.trouble]
        if self.speculation and not self.second_attempts:
            found.append(f"{self.name} ({self.way}): Spark started no second attempt of a task")
        if self.not_audited:
            found.append(f"{self.name} ({self.way}) could not be audited: {self.not_audited}")
        elif self.rows == 0:
            found.append(f"{self.name} ({self.way}): the audit had no row to check")
        return tuple(found)


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of the guarantee matrix: all rounds of one connector under one guarantee, decided or early.

    Each store of checkpoints and each kind of broker has rows of its own, and so has what is counted by window.
    """

    connector: str
    guarantee: str
    visible: str = ""
    source: str = ""
    """What was read; empty for Kafka."""
    store: str = ""
    """Where checkpoints were; empty for a folder."""
    broker: str = ""
    """The kind of the broker; empty for the usual one."""
    query: str = ""
    """``window`` where rows were counted by window; empty for all else that queries did."""
    rounds: int
    crashes: int
    faults: Counts
    epochs: int
    rows: int
    anomalies: Counts
    allowed: Counts
    replays: int = 0
    never_taken: int = 0
    came_again: int = 0
    globbed: Counts = {}
    looks: Counts = {}
    asked: Counts = {}
    verdict: Verdict

    @property
    def promise(self) -> str:
        """What it promises, in words."""
        return promise(self.guarantee, self.visible, self.source)

    @property
    def way(self) -> str:
        """What was read and written, in words, and where that was not usual."""
        return way(self.source, self.connector, self.store, self.broker, self.query)


class Result(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A report, as it stands in the file. Made by ``fold``, ``add`` and ``read`` only."""

    version: int
    """Of the format, 7."""
    verdict: Verdict
    why: tuple[str, ...]
    """A sentence for each finding and doubt."""
    seed: int
    """Of the last call."""
    crashes: int
    """Processes, or process trees, that died by a fault."""
    faults: Counts
    """Those that fired."""
    armed: Counts
    anomalies: Counts
    allowed: Counts
    """What was found and the guarantee allows."""
    examples: tuple[str, ...]
    """The first few findings in words."""
    traces: Counts = {}
    """How many event logs the model explains, rejects, or could not be held against; by the word of the round."""
    matrix: tuple[Row, ...]
    rounds: tuple[Round, ...]
    machine: Mapping[str, str | int | float]
    """Of the last call, as the versions are."""
    versions: Mapping[str, str]
