"""Folders as users write them: a path, ``file:/x`` or ``file:///x``. Pure."""

from __future__ import annotations

import re
from pathlib import Path

from onceonly.errors import ConfigurationError

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?P<rest>.*)", re.DOTALL)


_ON_A_DISK = "give a path on a local disk, or on a mount that all machines share"


def local_folder(text: str, *, what: str, instead: str = "") -> Path:
    """Return the folder. ``what`` it is for, for the error ("the checkpoint"), and what to do ``instead``. Anywhere.

    Percent signs are taken as they are, because Hadoop's ``Path``, by which Spark makes folders, does not
    decode them either. Raises ``ConfigurationError`` for any other scheme.
    """
    match = _SCHEME.fullmatch(text)
    # As in Hadoop, a colon after the first slash is part of a name.
    if match is None or "/" in match["scheme"]:
        path = text
    elif match["scheme"].lower() != "file":
        raise ConfigurationError(
            f"{what} {text} is on {match['scheme'].lower()}:, where it cannot be",
            next_step=_ON_A_DISK + instead,
        )
    else:
        path = _without_authority(match["rest"], text, what)
    if not path.strip() or "\0" in path:
        raise ConfigurationError(
            f"{what} {text!r} names no folder", next_step="write it as /path or file:///path"
        )
    return Path(path).absolute()


def _without_authority(rest: str, text: str, what: str) -> str:
    authority, slash, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
    path = slash + path
    if authority not in {"", "localhost"} or not path.startswith("/"):
        raise ConfigurationError(
            f"{what} {text} is not an absolute path of this machine",
            next_step="write it as /path or file:///path",
        )
    return path
