"""What a campaign found: rounds, and everything else as a pure function of them.

A report is a fold of rounds. Invocations that share a file add theirs, in any order and any number of times; the
matrix, the sums and the verdict are worked out anew from all rounds there are. On disk it is one JSON file, which
holds these sums for other programs too; where they do not follow from its rounds, the file is refused.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from onceonly.errors import ConfigurationError, UnavailableError

Verdict: TypeAlias = Literal["clean", "anomalies", "inconclusive"]

VERSION = 1
"""Of the file. A reader takes older ones and refuses newer ones."""
_EXAMPLES_MAX = 20
_Counts: TypeAlias = Mapping[str, int]


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
    armed: _Counts
    faults: _Counts
    """Those that fired. An armed one that did not makes the round inconclusive."""
    anomalies: _Counts
    """What breaks the guarantee, by every name that the auditor knows, zero too."""
    allowed: _Counts = {}
    """What the auditor found and the guarantee allows: duplicates under at-least-once."""
    examples: tuple[str, ...] = ()
    recovery_s: tuple[float, ...] = ()
    """From each death to the first newly visible row."""
    spark_recovery_s: tuple[float, ...] = ()
    """The same of Spark's own sink, in the same run."""
    not_audited: str = ""
    """Why the outside world could not be read, where it could not."""
    commit: str = ""
    """The version of onceonly's code, as git names it."""

    @property
    def name(self) -> str:
        """How people speak of it."""
        return f"round {self.number} of seed {self.seed}"

    @property
    def verdict(self) -> Verdict:
        """What this round alone says of its connector. A round without a crash may be clean; a campaign may not."""
        if sum(self.anomalies.values()):
            return "anomalies"
        return "inconclusive" if self.doubts else "clean"

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why this round proves nothing, one sentence each."""
        found = [
            f"{self.name} ({self.connector}): {name} was armed {times} times, fired {self.faults.get(name, 0)}"
            for name, times in self.armed.items()
            if self.faults.get(name, 0) < times
        ]
        if self.not_audited:
            found.append(f"{self.name} ({self.connector}) could not be audited: {self.not_audited}")
        elif self.rows == 0:
            found.append(f"{self.name} ({self.connector}): the audit had no row to check")
        return tuple(found)


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of the guarantee matrix: all rounds of one connector under one guarantee."""

    connector: str
    guarantee: str
    rounds: int
    crashes: int
    faults: _Counts
    epochs: int
    rows: int
    anomalies: _Counts
    allowed: _Counts
    verdict: Verdict


class Result(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A report, as it stands in the file. Made by ``fold``, ``add``, ``merge`` and ``read`` only."""

    version: int
    verdict: Verdict
    why: tuple[str, ...]
    seed: int
    crashes: int
    faults: _Counts
    armed: _Counts
    anomalies: _Counts
    allowed: _Counts
    examples: tuple[str, ...]
    matrix: tuple[Row, ...]
    rounds: tuple[Round, ...]
    machine: Mapping[str, str | int | float]
    versions: Mapping[str, str]


# --- the fold ---------------------------------------------------------------------------------------------


def fold(
    rounds: Iterable[Round],
    *,
    seed: int,
    machine: Mapping[str, str | int | float],
    versions: Mapping[str, str],
) -> Result:
    """Make a report of rounds. Pure; the order does not matter, and the same round twice is one."""
    every = _ordered(rounds)
    word, why = verdict(every)
    return Result(
        version=VERSION,
        verdict=word,
        why=why,
        seed=seed,
        crashes=sum(each.crashes for each in every),
        faults=total(each.faults for each in every),
        armed=total(each.armed for each in every),
        anomalies=total(each.anomalies for each in every),
        allowed=total(each.allowed for each in every),
        examples=tuple(
            f"{each.name} ({each.connector}): {example}" for each in every for example in each.examples
        )[:_EXAMPLES_MAX],
        matrix=matrix(every),
        rounds=every,
        machine=machine,
        versions=versions,
    )


def add(result: Result, done: Round) -> Result:
    """Give the report with one more round."""
    return _refold(result, (*result.rounds, done))


def merge(results: Iterable[Result]) -> Result:
    """Give one report of several. Seed, machine and versions are those of the last one.

    Raises:
        ValueError: there is none.
    """
    every = list(results)
    if not every:
        raise ValueError("nothing to merge")
    return _refold(every[-1], (each for result in every for each in result.rounds))


def matrix(rounds: Iterable[Round]) -> tuple[Row, ...]:
    """Sum up the rounds of each connector under each guarantee. Pure; sorted by guarantee, then connector."""
    groups: dict[tuple[str, str], list[Round]] = {}
    for each in _ordered(rounds):
        groups.setdefault((each.guarantee, each.connector), []).append(each)
    # Exactly-once, the promise that people look for, comes first.
    order = sorted(groups, key=lambda group: (group[0] != "exactly-once", group))
    return tuple(_row(groups[group]) for group in order)


def verdict(rounds: Iterable[Round]) -> tuple[Verdict, tuple[str, ...]]:
    """Judge: anomalies before inconclusive before clean, and why it is not clean. Pure.

    Inconclusive is a fault that was armed and did not fire, an audit that was not done or saw no row, a connector
    that no fault has crashed, and a report without a round.
    """
    every = _ordered(rounds)
    if not every:
        return "inconclusive", ("no round has been run",)
    found = {name: count for name, count in total(each.anomalies for each in every).items() if count}
    why = [f"{count:,} {name}" for name, count in found.items()]
    why += [
        f"{row.connector}, {row.guarantee}: no process has died, so nothing is proven"
        for row in matrix(every)
        if row.crashes == 0
    ]
    why += [doubt for each in every for doubt in each.doubts]
    if found:
        return "anomalies", tuple(why)
    return ("inconclusive" if why else "clean"), tuple(why)


def total(counts: Iterable[_Counts]) -> dict[str, int]:
    """Add up counts by name; every name stays, zero too. Sorted, so that files differ only where figures do."""
    found: Counter[str] = Counter()
    for each in counts:
        found.update(each)
    return dict(sorted(found.items()))


def next_number(result: Result, seed: int) -> int:
    """Give the number of the next round of a seed: where an interrupted campaign goes on."""
    return max((each.number for each in result.rounds if each.seed == seed), default=0) + 1


def _row(rounds: list[Round]) -> Row:
    crashes = sum(each.crashes for each in rounds)
    verdicts = {each.verdict for each in rounds} | ({"inconclusive"} if crashes == 0 else set())
    worst: Verdict = "clean"
    if "anomalies" in verdicts:
        worst = "anomalies"
    elif "inconclusive" in verdicts:
        worst = "inconclusive"
    return Row(
        connector=rounds[0].connector,
        guarantee=rounds[0].guarantee,
        rounds=len(rounds),
        crashes=crashes,
        faults=total(each.faults for each in rounds),
        epochs=sum(each.epochs for each in rounds),
        rows=sum(each.rows for each in rounds),
        anomalies=total(each.anomalies for each in rounds),
        allowed=total(each.allowed for each in rounds),
        verdict=worst,
    )


def _ordered(rounds: Iterable[Round]) -> tuple[Round, ...]:
    """Sort by time, and drop a round that is there twice: a file merged with itself is itself."""
    found: dict[tuple[str, int, int, str], list[Round]] = {}
    for each in rounds:
        same = found.setdefault((each.started, each.seed, each.number, each.connector), [])
        if each not in same:
            same.append(each)
    return tuple(each for key in sorted(found) for each in sorted(found[key], key=_bytes))


def _bytes(each: Round) -> bytes:
    return msgspec.json.encode(each, order="deterministic")


def _refold(result: Result, rounds: Iterable[Round]) -> Result:
    return fold(rounds, seed=result.seed, machine=result.machine, versions=result.versions)


# --- on disk ----------------------------------------------------------------------------------------------


class _Version(msgspec.Struct, frozen=True):
    version: int


def read(path: Path) -> Result:
    """Read a report. Anywhere.

    Raises:
        ConfigurationError: it is no report, damaged, changed by hand, or of a newer onceonly.
        UnavailableError: it cannot be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UnavailableError(
            f"the report {path} cannot be read: {error.strerror}",
            next_step="see that it is there and readable",
        ) from error
    return decode(data, where=str(path))


def decode(data: bytes, *, where: str) -> Result:
    """Take a report from its bytes; ``where`` is its name in errors. Raises ``ConfigurationError``."""
    try:
        version = msgspec.json.decode(data, type=_Version).version
        if version > VERSION:
            raise ConfigurationError(
                f"{where} has format {version}, written by a newer onceonly; this one reads up to {VERSION}",
                next_step="upgrade onceonly, or name another file",
            )
        found = msgspec.json.decode(data, type=Result)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{where} is not a whole report of a campaign: {error}",
            next_step="name another file, or move this one away",
        ) from None
    if _refold(found, found.rounds) != found:
        raise ConfigurationError(
            f"{where} has sums that do not follow from its rounds: it was changed by hand",
            next_step="restore it, or move it away",
        )
    return found


def encode(result: Result) -> bytes:
    """Give the file's bytes. The same report always gives the same bytes."""
    return msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n"


def write(path: Path, result: Result) -> None:
    """Replace the report in one step: a reader, or a crash, finds the old one or the new one.

    Raises:
        UnavailableError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            try:
                file.write(encode(result))
                file.flush()
                os.fsync(file.fileno())
                # Temporary files are their owner's alone; a report is for everybody.
                Path(file.name).chmod(0o644)
                Path(file.name).replace(path)
            except BaseException:
                with suppress(FileNotFoundError):
                    Path(file.name).unlink()
                raise
    except OSError as error:
        raise UnavailableError(
            f"the report {path} cannot be written: {error.strerror}",
            next_step="see that its folder can be written to and has room",
        ) from error
