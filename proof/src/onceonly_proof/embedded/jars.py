"""The jars of the brokers, of the model checker and of MariaDB: which release is which, and what is on whose path."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from onceonly.errors import SetupError
from onceonly.jars.locked import ensure_jars

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

NEWEST = "4.2"
_OLDER = {"3.9": "broker-3.9", "3.3": "broker-3.3"}
RELEASES = (NEWEST, *_OLDER)
"""The brokers that can be started: tests and campaign run on each of them."""
RELEASE_VARIABLE = "ONCEONLY_BROKER"


def broker_classpath(console: Console | None = None, *, release: str = NEWEST) -> list[Path]:
    """Return the jars of the embedded broker of a release; see `onceonly.jars.locked.ensure_jars`."""
    return ensure_jars(console, used_by=_OLDER.get(release, "broker"))


def broker_release() -> str:
    """Return the release of the brokers that are started where none is named: ``ONCEONLY_BROKER``, or the newest.

    Raises:
        SetupError: there is no such release here.
    """
    named = os.environ.get(RELEASE_VARIABLE) or NEWEST
    if named not in RELEASES:
        raise SetupError(
            f"{RELEASE_VARIABLE} is {named!r}, and there is no such broker here.",
            next_step="use one of " + ", ".join(RELEASES),
        )
    return named


def checker_jar(console: Console | None = None) -> Path:
    """Return the jar of TLC, the model checker; see `onceonly.jars.locked.ensure_jars`."""
    return ensure_jars(console, used_by="model")[0]


def mariadb_jar(console: Console | None = None) -> Path:
    """Return the jar of MariaDB's binaries; see `onceonly.jars.locked.ensure_jars`."""
    return ensure_jars(console, used_by="mariadb-11.4")[0]
