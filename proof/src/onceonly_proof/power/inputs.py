"""What goes into the campaign's queries: files of JSON lines, or rows of a topic.

Each value comes once; for queries that keep state, some come again in the next file, and the state must keep them from
coming out.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from onceonly_proof.embedded.feeding import feed

if TYPE_CHECKING:
    from pathlib import Path

PER_FILE = 6
_FIRST_S = 1_700_000_000


def values(number: int, *, again: bool) -> list[str]:
    """Return the values of one file, ``again`` with those of the one before it."""
    own = [f"{number}-{row}" for row in range(PER_FILE)]
    return own + (values(number - 1, again=False)[::2] if again and number > 0 else [])


def key(value: str) -> str:
    """Return the key of a value."""
    return value.rpartition("-")[2]


def write_file(folder: Path, number: int, *, again: bool, early: bool = False) -> list[str]:
    """Put one file into the folder of a source; an ``early`` one says that it is older than all others."""
    lines = [json.dumps({"key": key(value), "value": value}) for value in values(number, again=again)]
    hidden = folder / f".{number}.tmp"
    hidden.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    moment = _FIRST_S + number * (-10 if early else 10)
    os.utime(hidden, (moment, moment))
    hidden.rename(folder / f"{number:05d}.json")
    return values(number, again=False)


def produce(servers: str, topic: str, number: int, *, again: bool) -> list[str]:
    """Put the rows of one file into a topic instead; returns when the broker has them.

    Raises:
        UnavailableError: it did not take them in time.
    """
    rows = [(int(key(value)) % 2, key(value), value.encode()) for value in values(number, again=again)]
    feed(servers, topic, rows)
    return values(number, again=False)
