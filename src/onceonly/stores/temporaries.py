"""Names of files that are not published yet: hidden, each in the folder of the name that it is to get. Pure."""

from __future__ import annotations

import os
import re
import secrets

_TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9]+-[0-9a-f]{12}\.tmp")


def temporary_of(name: str) -> str:
    """Return a new temporary name for a file: ``links/.7.json.4711-….tmp``."""
    folder, slash, short = name.rpartition("/")
    return f"{folder}{slash}.{short}.{os.getpid()}-{secrets.token_hex(6)}.tmp"


def name_of(temporary: str) -> str | None:
    """Return the name that a temporary file was to get, without its folder; None for the name of any other file."""
    match = _TEMPORARY.fullmatch(temporary)
    return match["name"] if match is not None else None
