"""The guarantee matrix as Markdown, written into pages between two marks, so that nobody types a figure.

``python -m onceonly_proof.campaign.matrix docs/proof/result.json`` writes it into README and into the docs' page, from
the main report and from the records of single sinks in ``docs/proof/sinks``; ``make proof-pages`` calls that. A report
that is not there yet is said not to be there.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onceonly.errors import OnceonlyError
from onceonly.words import n
from onceonly_proof.campaign import marks
from onceonly_proof.campaign.folding import listed, spread
from onceonly_proof.campaign.records import FOLDER, parted, read_all, records
from onceonly_proof.campaign.result import read
from onceonly_proof.campaign.way import KAFKA, LOSSY, REPEATING, way

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from onceonly_proof.campaign.records import Record
    from onceonly_proof.campaign.values import Result

MARKS: Final = "matrix"
SHORT, WHOLE = Path("README.md"), Path("docs/reference/guarantee-matrix.md")
"""The pages: the matrix in short, and the matrix with every fault. Relative to the project's folder."""
_FAULTS = "How often each fault fired in the main run; *of* how many, where not all that were armed did:"
_SOURCES = (
    "What read another source than Kafka. *Replayed* are epochs whose input was read again, as an attempt at them was "
    "given up; *lost before* are rows that a source which sends nothing again lost before they were in the journal; "
    "*again* is how often one without names for its rows gave one once more."
)
_HEAD_OF_SOURCES = (
    "| source | sink | promise | crashes survived | replayed | faults fired | rows checked | lost before | again | "
    "anomalies | verdict | commit |\n|---|---|---|--:|--:|--:|--:|--:|--:|---|---|---|"
)
_CELLS = (
    "Crashes by source and sink, whatever was promised; a sink may have had others beside it under one decision. A "
    "campaign that was not clean is named by its verdict, and a cell without a number has none."
)
_IN_ORDER: Final = (
    KAFKA, "files", "collection", "kinesis",
    "rabbitmq", "rabbitmq-no-ids", "rabbitmq-stream", "http", "http-no-resume", "socket",
)  # fmt: skip
_WHY_MAX = 10
_COMMIT_DIGITS = 7
_ELSEWHERE = frozenset({"s3", "hdfs", "moto"})
"""Stores where a file sink's files are, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One sink, or several under one decision, under one promise, from one source."""

    sink: str
    promise: str
    source: str = ""
    """What was read; empty for Kafka."""
    store: str = ""
    """Where checkpoints were; empty for a folder."""
    broker: str = ""
    """The kind of the broker; empty for the usual one."""
    query: str = ""
    """``window`` where rows were counted by window; empty for all else that queries did."""
    crashes: int
    fired: int
    armed: int
    rows: int
    found: str
    """The anomalies, in words; ``0`` for none."""
    verdict: str
    commits: tuple[str, ...]
    days: tuple[str, ...] = ()
    """When it ran, as ``2026-11-30``."""
    replays: int = 0
    never_taken: int = 0
    came_again: int = 0

    @property
    def written(self) -> str:
        """What was written, in words, and where that was not usual."""
        return way("", self.sink, self.store, self.broker, self.query)

    @property
    def sinks(self) -> tuple[str, ...]:
        """Its sinks, one by one; of files, also where they were."""
        where = f" on {self.store}" if self.store.partition("+")[0] in _ELSEWHERE else ""
        return tuple(f"{each}{where}" if each == "files" else each for each in self.sink.split("+"))

    @property
    def is_usual(self) -> bool:
        """Whether it reads Kafka and writes its rows, with checkpoints in a folder and the newest broker."""
        return not (self.source or self.store or self.broker or self.query)


def lines(result: Result | None, kept: Iterable[Record]) -> tuple[Line, ...]:
    """Return the lines of the matrix: those of the main report, then those of kept records of other sinks. Pure."""
    found = [] if result is None else _of_report(result)
    there = {(each.source, each.written, each.promise) for each in found}
    others = map(_of_record, kept)
    return (*found, *(each for each in others if (each.source, each.written, each.promise) not in there))


def short(shown: Sequence[Line]) -> str:
    """Return one line for each promise of what is usual, and which code it was that ran. Pure."""
    shown = [each for each in shown if each.is_usual]
    if not shown:
        return marks.NONE
    rows = []
    alike = attrgetter("promise", "found", "verdict")
    for (promise, found, verdict), group in groupby(sorted(shown, key=alike), key=alike):
        sinks = ", ".join(f"{each.sink} {each.crashes:,}" for each in group)
        rows.append(f"| {promise} | {sinks} | {found}{'' if verdict == 'clean' else f' ({verdict})'} |")
    head = "| promise | crashes survived | anomalies |\n|---|---|--:|"
    return "\n".join([head, *rows, "", f"{_sum(shown)} {_recorded_on(shown)}"])


def whole(result: Result | None, shown: Sequence[Line]) -> str:
    """Return the matrix sink by sink; of the main report the versions, recovery times, and each fault. Pure.

    What reads another source than Kafka has a table of its own.
    """
    if not shown:
        return marks.NONE
    others = [each for each in shown if each.source]
    shown = [each for each in shown if not each.source]
    head = (
        "| sink | promise | crashes survived | faults fired | rows checked | anomalies | verdict | commit |\n"
        "|---|---|--:|--:|--:|---|---|---|"
    )
    parts = ["\n".join([head, *map(_row, shown)]), f"{_sum(shown)} {marks.LATER}"] if shown else []
    parts += [_SOURCES, "\n".join([_HEAD_OF_SOURCES, *map(_row_of_source, others)])] if others else []
    parts += [_CELLS, _cells([*shown, *others])] if others else []
    if result is not None and result.rounds:
        versions = ", ".join(f"{name} {version}" for name, version in _versions(result).items())
        parts += [_summary(result), *_doubts(result), f"Run with {versions}.", *_recovery(result)]
        if result.armed or result.faults:
            parts += [_FAULTS, _faults(result)]
    return "\n\n".join(parts)


def recorded(path: Path) -> Result | None:
    """Read the report that the pages show, or give None where none has been recorded. Raises as ``read`` does."""
    return read(path) if path.exists() else None


def write(root: Path, result: Result | None) -> None:
    """Write the pages of the project in ``root``. Any number of times; raises ``ConfigurationError``."""
    shown = lines(result, read_all(root / FOLDER))
    for page, block in ((SHORT, short(shown)), (WHOLE, whole(result, shown))):
        marks.write(root / page, block, name=MARKS)


def _of_report(result: Result) -> list[Line]:
    """Return the lines that its records would have, with what its promises allow, which no record keeps."""
    found = []
    for row, record in zip(result.matrix, records(result), strict=True):
        line = _of_record(record)
        allowed = listed(row.allowed)
        found.append(replace(line, found=f"{line.found} (allowed: {allowed})") if allowed else line)
    return found


def _of_record(record: Record) -> Line:
    return Line(
        sink=record.sink,
        store=record.store,
        broker=record.broker,
        query=record.query,
        promise=record.promise,
        source=record.source,
        crashes=record.crashes,
        fired=sum(record.faults.values()),
        armed=record.armed,
        rows=record.rows,
        found=listed(record.anomalies) or "0",
        verdict=record.verdict,
        commits=record.commits,
        days=record.days,
        replays=record.replays,
        never_taken=record.never_taken,
        came_again=record.came_again,
    )


def _row(line: Line) -> str:
    return (
        f"| {line.written} | {line.promise} | {line.crashes:,} | {_fired(line)} | {line.rows:,} | {line.found} | "
        f"{line.verdict} | {_commits(line)} |"
    )


def _row_of_source(line: Line) -> str:
    lost = f"{line.never_taken:,}" if line.source in LOSSY else ""
    again = f"{line.came_again:,}" if line.source in REPEATING else ""
    return (
        f"| {line.source} | {line.written} | {line.promise} | {line.crashes:,} | {line.replays:,} | {_fired(line)} | "
        f"{line.rows:,} | {lost} | {again} | {line.found} | {line.verdict} | {_commits(line)} |"
    )


def _cells(shown: Sequence[Line]) -> str:
    """Return the table of sources and sinks: how many crashes each pair has survived."""
    sources = [each for each in _IN_ORDER if any((line.source or KAFKA) == each for line in shown)]
    sinks = sorted({sink for line in shown for sink in line.sinks})
    rows = []
    for source in sources:
        mine = [line for line in shown if (line.source or KAFKA) == source]
        rows.append(f"| {source} | {' | '.join(_pair(mine, sink) for sink in sinks)} |")
    return "\n".join([f"| from \\ to | {' | '.join(sinks)} |", "|---|" + "--:|" * len(sinks), *rows])


def _pair(shown: Sequence[Line], sink: str) -> str:
    mine = [line for line in shown if sink in line.sinks]
    others = "".join(f" ({verdict})" for verdict in sorted({line.verdict for line in mine} - {"clean"}))
    return f"{sum(line.crashes for line in mine):,}{others}" if mine else ""


def _fired(line: Line) -> str:
    return f"{line.fired:,}" if line.fired == line.armed else f"{line.fired:,} of {line.armed:,}"


def _commits(line: Line) -> str:
    return ", ".join(f"`{commit[:_COMMIT_DIGITS]}`" for commit in line.commits) or "?"


def _sum(shown: Sequence[Line]) -> str:
    fired, armed = sum(each.fired for each in shown), sum(each.armed for each in shown)
    crashes = sum(each.crashes for each in shown)
    return f"{n(crashes, 'crash')}; {fired:,} of {n(armed, 'fault')} fired."


def _recorded_on(shown: Sequence[Line]) -> str:
    """Name the code that ran, of many commits the first, and how old the rest is; the whole matrix names each."""
    first, *others = dict.fromkeys(each for line in shown for each in line.commits) or ("?",)
    oldest = min((day for line in shown for day in line.days), default="")
    more = f" and others, from {oldest} on" if others else ""
    return f"Recorded on `{first[:_COMMIT_DIGITS]}`{more}. {marks.LATER}"


def _faults(result: Result) -> str:
    """Return how often each fault fired: a row for each point, a column for each thing that was done there."""
    points: dict[str, dict[str, str]] = {}
    for name in sorted({*result.armed, *result.faults}):
        armed, fired = result.armed.get(name, 0), result.faults.get(name, 0)
        what, point = parted(name)
        points.setdefault(point, {})[what] = f"{fired:,}" if fired == armed else f"{fired:,} of {armed:,}"
    alone = ", ".join(f"{what} {count}" for what, count in points.pop("", {}).items())
    kinds = sorted({what for found in points.values() for what in found})
    rows = [
        f"| {_cell(point)} | {' | '.join(found.get(kind, '') for kind in kinds)} |"
        for point, found in sorted(points.items())
    ]
    table = (
        "\n".join([f"| at | {' | '.join(kinds)} |", "|---|" + "--:|" * len(kinds), *rows]) if kinds else ""
    )
    return "\n\n".join(each for each in (table, alone and f"Without a point: {alone}.") if each)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _summary(result: Result) -> str:
    days = sorted({each.started[:10] for each in result.rounds})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    seeds = ", ".join(map(str, sorted({each.seed for each in result.rounds})))
    sinks = ", ".join(dict.fromkeys(row.connector for row in result.matrix))
    return (
        f"The main run, of {sinks}: {n(result.crashes, 'crash')} in {n(len(result.rounds), 'round')}, {when}, "
        f"seed {seeds}: **{result.verdict}**{_brokers(result)}."
    )


def _brokers(result: Result) -> str:
    """Name the kinds of broker, where the rounds say them."""
    kinds = sorted({each.broker for each in result.rounds if each.broker})
    return f"; brokers {', '.join(kinds)}" if kinds else ""


def _versions(result: Result) -> dict[str, str]:
    """Return the last call's versions, but the commits of all rounds, which are sorted by time."""
    commits = list(dict.fromkeys(each.commit for each in result.rounds if each.commit))
    versions = dict(result.versions)
    if len(commits) > 1:
        versions.pop("commit", None)
        versions["commits"] = ", ".join(commits)
    elif commits:
        versions["commit"] = commits[0]
    return versions


def _doubts(result: Result) -> list[str]:
    found = [f"- {why}" for why in result.why[:_WHY_MAX]]
    more = len(result.why) - _WHY_MAX
    return ["\n".join([*found, *([f"- and {more:,} more"] if more > 0 else [])])] if found else []


def _recovery(result: Result) -> list[str]:
    times = [s for each in result.rounds for s in each.recovery_s]
    median, worst = spread(times)
    if median is None:
        return []
    return [
        f"From a death to the first new row: median {median:.1f} s, worst {worst:.1f} s of {len(times):,}."
    ]


def main(arguments: Sequence[str]) -> int:
    """Write the pages of the project in the current folder from the report that is named."""
    try:
        (path,) = arguments
    except ValueError:
        sys.stderr.write("usage: python -m onceonly_proof.campaign.matrix docs/proof/result.json\n")
        return 64
    try:
        write(Path(), recorded(Path(path)))
    except OnceonlyError as error:
        sys.stderr.write(f"error: {error.what}; {error.next_step}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
