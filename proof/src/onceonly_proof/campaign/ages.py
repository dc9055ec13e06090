"""How far the code has gone on since something was recorded. Asks git."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

BEHIND_MAX: Final = 30
"""So many commits to the code may follow on a record before its pages say so."""


def is_old(commits: Iterable[str], root: Path) -> bool | None:
    """Say whether the code has gone far beyond what was recorded; None where that cannot be told.

    Of several commits, the one that is furthest behind counts; one that git does not know is old.
    """
    try:
        if _git(root, "rev-parse", "--is-shallow-repository") != "false":
            return None
        behind = [_behind(root, commit) for commit in {each.removesuffix("+") for each in commits}]
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
