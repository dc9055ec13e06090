"""What the files themselves tell: when they were written, and how much room they take. Reads only."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onceonly.log import files as log_files
from onceonly.log import identity
from onceonly.model import seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onceonly.model import Link

FILES_MAX = 100_000
FREE_BYTES_MIN: Final = 256 << 20
"""Less room than that on the checkpoint's disk is told: an epoch's files and a log's fold want a part of it."""
BARRIER, SETTLED, NOTED = "barrier written", "receipt: all committed", "noted by Spark"
"""The steps of an epoch that are no link's."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step of an epoch, and when its file was written: ``at`` is in seconds since 1970, by this machine's clock."""

    what: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Bytes on disk: of each operator's state by its number, and of the whole; a lower bound if not ``complete``."""

    total: int
    state: dict[str, int]
    files: int
    complete: bool


def steps(checkpoint: Path, epoch: int, chain: Sequence[Link]) -> list[Step]:
    """Return the steps of an epoch in their order; those whose files are gone, or never were, are left out.

    Spark and onceonly write ``offsets/N`` anew in a recovery: what stands on it says when it was there at the latest.
    """
    log = checkpoint / identity.FOLDER
    files = [(put(link), log / log_files.link(epoch, link.index)) for link in chain]
    files += [
        (SETTLED, log / log_files.receipt(epoch)),
        (NOTED, checkpoint / "commits" / str(epoch)),
    ]
    later = [Step(what, at) for what, path in files if (at := written(path)) is not None]
    barrier = written(checkpoint / "offsets" / str(epoch))
    if barrier is None:
        return later
    known = [each.at for each in later] + [seconds_of(link.planned) for link in chain if link.planned]
    return [Step(BARRIER, min([barrier, *known])), *later]


def put(link: Link) -> str:
    """Name the step that put a link."""
    return f"link {link.name}: {link.kind.value}"


def when(checkpoint: Path, epoch: int, links: int) -> float | None:
    """Say when an epoch was last heard of: its receipt, its last link, or its barrier."""
    log = checkpoint / identity.FOLDER
    paths = [log / log_files.receipt(epoch)]
    paths += [log / log_files.link(epoch, links - 1)] if links else []
    paths.append(checkpoint / "offsets" / str(epoch))
    return next((at for path in paths if (at := written(path)) is not None), None)


def written(path: Path) -> float | None:
    """Say when a file was written, None where there is none to look at."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def iso(at: float | None) -> str | None:
    """Return a moment as text, UTC, with milliseconds."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def owner(path: Path) -> int | None:
    """Return the number of the user whom a file or folder belongs to; None where it is not there."""
    try:
        return path.stat().st_uid
    except OSError:
        return None


def user_of(number: int) -> str:
    """Return the name of a user on this machine, or the number where it has none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def size(count: float) -> str:
    """Return a number of bytes as text."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:  # noqa: PLR2004  the meaning of these units
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def sizes(checkpoint: Path) -> Sizes:
    """Add up the checkpoint's files, at most a hundred thousand of them."""
    state: dict[str, int] = {}
    total = files = 0
    for operator, size in _files(checkpoint):
        if files == FILES_MAX:
            return Sizes(total=total, state=state, files=files, complete=False)
        files += 1
        total += size
        if operator is not None:
            state[operator] = state.get(operator, 0) + size
    return Sizes(total=total, state=dict(sorted(state.items())), files=files, complete=True)


def _files(checkpoint: Path) -> Iterator[tuple[str | None, int]]:
    """Yield each file's size, and the operator whose state it holds: ``state/{operator}/…``."""
    root = str(checkpoint)
    for folder, _, found in os.walk(root):
        parts = Path(folder).relative_to(root).parts or ("",)
        operator = parts[1] if parts[0] == "state" and len(parts) > 1 else None
        for name in found:
            try:
                # What vanishes while it is counted takes no room.
                size = os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118  a hundred thousand Paths are slow
            except OSError:
                continue
            yield operator, size
