"""The guarantee matrix as Markdown, written into pages between two marks, so that nobody types a figure.

``python -m onceonly_proof.campaign.matrix docs/proof/result.json`` writes it into README and into the docs' page;
``make proof-pages`` calls that. A report that is not there yet is said not to be there.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.errors import OnceonlyError
from onceonly_proof.campaign import marks
from onceonly_proof.campaign.folding import listed, spread
from onceonly_proof.campaign.result import read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceonly_proof.campaign.values import Result, Row

MARKS = "matrix"
SHORT, WHOLE = Path("README.md"), Path("docs/reference/guarantee-matrix.md")
"""The pages: the matrix alone, and the matrix with every fault. Relative to the project's folder."""
_FAULTS = "How often each fault fired; *of* how many, where not all that were armed did:"
_WHY_MAX = 10
BEHIND_MAX = 30
"""So many commits to the code may follow on a record before its pages say so."""
_OLD = f"**Recorded on older code**: more than {BEHIND_MAX} commits to it have followed."


def short(result: Result | None, *, is_old: bool = False) -> str:
    """Return the matrix and one sentence of what it stands on, and whether that is older code. Pure."""
    if result is None or not result.rounds:
        return marks.NONE
    head = "| sink | guarantee | crashes survived | rows checked | anomalies | verdict |\n|---|---|--:|--:|--:|---|"
    return "\n".join(
        [head, *map(_row, result.matrix), "", _summary(result), *([_OLD] if is_old else []), *_doubts(result)]
    )


def whole(result: Result | None, *, is_old: bool = False) -> str:
    """Return the matrix, the versions, recovery times, and how often each fault fired. Pure."""
    if result is None or not result.rounds:
        return marks.NONE
    versions = ", ".join(f"{name} {version}" for name, version in _versions(result).items())
    parts = [short(result, is_old=is_old), f"Run with {versions}.", *_recovery(result)]
    if result.armed or result.faults:
        parts += [_FAULTS, _faults(result)]
    return "\n\n".join(parts)


def _faults(result: Result) -> str:
    """Return how often each fault fired: a row for each point, a column for each thing that was done there."""
    points: dict[str, dict[str, str]] = {}
    for name in sorted({*result.armed, *result.faults}):
        armed, fired = result.armed.get(name, 0), result.faults.get(name, 0)
        what, _, point = name.rpartition(" ")
        what, point = (what.removesuffix(" at"), point) if "." in point else (name, "")
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


def recorded(path: Path) -> Result | None:
    """Read the report that the pages show, or give None where none has been recorded. Raises as ``read`` does."""
    return read(path) if path.exists() else None


def is_old(result: Result | None, root: Path) -> bool | None:
    """Say whether the code has gone far beyond what was recorded; None where that cannot be told. Asks git.

    Of rounds on several commits, the one that is furthest behind counts; one that git does not know is old.
    """
    commits = {each.commit.removesuffix("+") for each in result.rounds if each.commit} if result else set()
    try:
        if _git(root, "rev-parse", "--is-shallow-repository") != "false":
            return None
        behind = [_behind(root, commit) for commit in commits]
    except (OSError, subprocess.SubprocessError):
        return None
    return any(count is None or count > BEHIND_MAX for count in behind)


def _behind(root: Path, commit: str) -> int | None:
    """Count the commits to the code since one of them; None where that one is in no history of today's."""
    try:
        _git(root, "merge-base", "--is-ancestor", commit, "HEAD")
    except subprocess.CalledProcessError:
        return None
    return int(_git(root, "rev-list", "--count", f"{commit}..HEAD", "--", "src"))


def _git(root: Path, *command: str) -> str:
    answer = subprocess.run(["git", "-C", root, *command], capture_output=True, text=True, check=True)
    return answer.stdout.strip()


def write(root: Path, result: Result | None) -> None:
    """Write the pages of the project in ``root``. Any number of times; raises ``ConfigurationError``."""
    old = bool(is_old(result, root))
    for page, block in ((SHORT, short(result, is_old=old)), (WHOLE, whole(result, is_old=old))):
        marks.write(root / page, block, name=MARKS)


def _row(row: Row) -> str:
    found = listed(row.anomalies) or "0"
    had = f" (allowed: {listed(row.allowed)})" if sum(row.allowed.values()) else ""
    return f"| {row.connector} | {row.guarantee} | {row.crashes:,} | {row.rows:,} | {found}{had} | {row.verdict} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _summary(result: Result) -> str:
    days = sorted({each.started[:10] for each in result.rounds})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    seeds = ", ".join(map(str, sorted({each.seed for each in result.rounds})))
    return (
        f"{result.crashes:,} crashes in {len(result.rounds):,} rounds, {when}, seed {seeds}: **{result.verdict}**. "
        f"{sum(result.armed.values()):,} faults were armed, and {sum(result.faults.values()):,} fired"
        f"{_brokers(result)}."
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
    lines = [f"- {why}" for why in result.why[:_WHY_MAX]]
    more = len(result.why) - _WHY_MAX
    return ["", *lines, *([f"- and {more:,} more"] if more > 0 else [])] if lines else []


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
