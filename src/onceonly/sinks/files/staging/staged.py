"""The folder of a transaction in the staging folder: what its files are called, and what its own name tells. Pure.

::

    {root}/{transaction}/                  being written, or prepared: nobody has begun to commit it
    {root}/.{transaction}.committing/      decided: a file that is not in it any more has its final name
    {root}/.{transaction}.dropped/         given up, or settled for good: its content is nobody's

Each step is one rename of the folder, so of a commit and an abort that race only one finds it. A file is
``.{number}.staged`` in there: no reader takes that for data, by whatever pattern it looks (``**/*.parquet``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

STAGED, COPIED = ".staged", ".copied"
_COMMITTING, _DROPPED = ".committing", ".dropped"
TRANSACTION = re.compile(r"\d+-\d+-[0-9a-f]{32}")
_ASIDE = re.compile(rf"\.({TRANSACTION.pattern})(\.committing|\.dropped)")
_COPIED_NAME = re.compile(r"(\.\d+)\.([0-9a-f]{12})\.copied")


def staged_name(final: str) -> str:
    """Return the name of a data file in its transaction's folder; ``final`` is its path below the target.

    The number at the end of ``part-00007-00000-{unique}-00003.snappy.parquet`` is unique in the transaction.
    """
    return f".{final.rpartition('-')[2].partition('.')[0]}{STAGED}"


def copied_name(staged: str, token: str) -> str:
    """Return the name that a staged file has once it is copied beside its final name, under ``copy_name``."""
    return f"{staged.removesuffix(STAGED)}.{token}{COPIED}"


def copy_name(final: str, token: str) -> str:
    """Return the hidden name of a copy beside its final name."""
    return f".{final}.{token}.copying"


def token_of(name: str) -> tuple[str, str] | None:
    """Read a copied file's name: the name that it had while it was staged, and the token; None for other names."""
    match = _COPIED_NAME.fullmatch(name)
    return (match[1] + STAGED, match[2]) if match else None


def committing(folder: Path) -> Path:
    """Return the name that a transaction's folder has from the beginning of its commit."""
    return folder.with_name(f".{folder.name}{_COMMITTING}")


def dropped(folder: Path, transaction: str) -> Path:
    """Return the name under which a transaction's folder is moved out of everybody's way."""
    return folder.with_name(f".{transaction}{_DROPPED}")


def state_of(name: str) -> tuple[str, str]:
    """Read a folder's name: the transaction, and ``prepared``, ``committing`` or ``dropped``; empty for others."""
    if TRANSACTION.fullmatch(name):
        return name, "prepared"
    match = _ASIDE.fullmatch(name)
    return (match[1], match[2][1:]) if match else ("", "")


def epoch_of(transaction: str) -> int:
    """Return the epoch in a transaction's name, ``epoch-slot-unique``."""
    return int(transaction.partition("-")[0])
