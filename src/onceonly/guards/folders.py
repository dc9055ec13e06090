"""The guard of Spark's file source: the files that an epoch is to read, against what Spark has noted of them.

Spark notes path and time of each file before an epoch, and looks at neither in a replay: a file that is gone gives no
rows, one that was written anew gives others, and no error tells. Its log has no sizes, so a file written anew with the
former time is not noticed.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from onceonly.guards.source import Finding, some_of
from onceonly.options import span
from onceonly.words import are, n

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from onceonly.guards.source import Source

FILES_MAX = 100_000
"""How many files of a source are looked through for old ones; more would hold up the start."""
_MAX_AGE = "7d"
_GO_ON = "put the files back as they were, with their times (cp -p, touch -d); or do without their rows"
_CLEANED = (
    "the source has cleanSource={cleans}: Spark takes files away once it has noted their epoch, and a loss of power or "
    "an older copy of the checkpoint has taken the note back. Move them back from where they are archived, with their "
    "times. Where they are deleted, and the epoch is decided by onceonly transactions list, its rows are in the "
    "target: start once with onceonly.source.changed=go-on and onceonly.replay=tell (a query with state counts without "
    "them)"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file as Spark has noted it: ``path`` as a URI, ``time_ms`` when it was changed last."""

    path: str
    time_ms: int


def entries(text: str) -> Iterator[Entry]:
    """Read a list of files of Spark's. Pure; lines that are none are left out."""
    for line in text.split("\n")[1:]:
        try:
            told = json.loads(line)
            yield Entry(str(told["path"]), int(told["timestamp"]))
        except (ValueError, KeyError, TypeError):
            continue


def local(path: str) -> Path | None:
    """Return the path that a URI of Spark's means; None where it is not on a file system of this machine. Pure."""
    parts = urlsplit(path)
    if parts.scheme not in {"", "file"} or parts.netloc:
        return None
    return Path(unquote(parts.path))


def changed(listed: Sequence[Entry], *, epoch: int, cleans: str = "") -> tuple[list[Finding], int]:
    """Compare the files of an epoch with what is there; return what is wrong, and how many cannot be looked at.

    Planner or driver, at a start, before the epoch is read. ``cleans`` is how Spark itself takes files away.
    """
    gone: list[str] = []
    other: list[str] = []
    elsewhere = 0
    for entry in listed:
        path = local(entry.path)
        if path is None:
            elsewhere += 1
            continue
        try:
            now_ms = path.stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            gone.append(str(path))
            continue
        except OSError:
            elsewhere += 1
            continue
        if now_ms != entry.time_ms:
            other.append(str(path))
    findings = []
    if gone:
        findings.append(
            Finding(
                f"{n(len(gone), 'file')} that chk-{epoch} reads {are(len(gone))} gone: {some_of(gone)}. "
                "Spark would read them as empty",
                next_step=_CLEANED.format(cleans=cleans) if cleans else _GO_ON,
                stops=True,
            )
        )
    if other:
        findings.append(
            Finding(
                f"{n(len(other), 'file')} that chk-{epoch} reads {are(len(other))} changed since Spark listed them: "
                f"{some_of(other)}. It would read them as they are now",
                next_step=_GO_ON,
                stops=True,
            )
        )
    return findings, elsewhere


def cleans(sources: Iterable[Source]) -> str:
    """Return how a file source takes away what it has read (``archive``, ``delete``), empty where none does. Pure."""
    told = (each.options.get("cleansource", "").strip().lower() for each in sources)
    return next((how for how in told if how not in {"", "off"}), "")


def ages(source: Source, seen: Iterable[Entry]) -> list[Finding]:
    """Say which files of a source are too old to be ever read, and options that have no effect.

    Planner or driver, once a start. ``seen`` are all files that Spark has noted.
    """
    options = source.options
    is_limited = "maxfilespertrigger" in options or "maxbytespertrigger" in options
    if options.get("latestfirst", "false").strip().lower() == "true" and is_limited:
        if "maxfileage" not in options:
            return []
        return [
            Finding(
                "The file source has latestFirst with a limit of each trigger, so that its maxFileAge has no effect: "
                "files of any age are read",
                next_step="leave out one of them",
            )
        ]
    age_ms = _age_ms(options.get("maxfileage", _MAX_AGE))
    newest, known = 0, set[str]()
    for entry in seen:
        newest = max(newest, entry.time_ms)
        path = local(entry.path)
        if path is not None:
            known.add(str(path))
        if len(known) > FILES_MAX:
            return []
    if age_ms is None or not known:
        return []  # nothing was read yet: the first epoch takes files of any age
    old = [path for path, time_ms in _there(options) if time_ms < newest - age_ms and path not in known]
    if not old:
        return []
    return [
        Finding(
            f"{n(len(old), 'file')} of the file source will never be read: older than the newest by more than "
            f"maxFileAge ({options.get('maxfileage', _MAX_AGE)}): {some_of(old)}",
            next_step="touch them to have them read, or raise maxFileAge",
        )
    ]


def _age_ms(text: str) -> float | None:
    try:
        return float(text) if text.strip().isdecimal() else span(text) * 1000
    except ValueError:
        return None  # Spark will say so


def _there(options: dict[str, str]) -> Iterator[tuple[str, float]]:
    """Yield path and time of the files below a source's folders, as far as they are looked through."""
    root = local(options.get("path", ""))
    if root is None or not root.is_absolute():
        return  # what it is relative to, Java knows
    pattern = options.get("pathglobfilter", "*")
    left = FILES_MAX
    for top in Path("/").glob(os.path.normpath(root).lstrip("/")):
        for folder, below, names in os.walk(top):
            below[:] = [name for name in below if name[0] not in "._"]
            for name in names:
                left -= 1
                if left < 0:
                    return
                if name[0] in "._" or not fnmatch(name, pattern):
                    continue
                path = f"{folder}/{name}"
                try:
                    yield path, Path(path).stat().st_mtime_ns / 1e6
                except OSError:
                    continue
