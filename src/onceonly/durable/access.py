"""Whether a user of this machine may write to a place, by what the file system says of it; nothing is written."""

from __future__ import annotations

import os
import pwd
import shlex
from typing import TYPE_CHECKING, Final

from onceonly.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_ROOT: Final = 0
_WRITE: Final = 2
_ENTER: Final = 1
_ACL: Final = "system.posix_acl_access"


def require_writable(places: Iterable[Path], *, user: int | None, who: str) -> str:
    """See that a user may write files, and make new ones in folders; return why that cannot be seen.

    Of what is not there, the folder is asked in which it would be made. Raises ``ConfigurationError``.
    """
    if user is None:
        return "nothing tells as which user of this machine the job runs"
    for place in places:
        if unseen := require_reachable(place, user=user, who=who):
            return unseen
        found = next(each for each in (place, *place.parents) if each.exists())
        if not may_write(found, user):
            raise ConfigurationError(
                f"{who}: {_name(user)} may not {'make files in' if found.is_dir() else 'write'} {found}, which belongs "
                f"to {_name(found.stat().st_uid)}",
                next_step=f"give {_name(user)} write permission to it, and see that it is not mounted to be read only",
            )
    return ""


def require_reachable(place: Path, *, user: int, who: str) -> str:
    """See that a user may enter each folder above a place, also where links lead; return why that cannot be seen.

    Raises ``ConfigurationError``.
    """
    above = {*place.absolute().parents, *place.resolve().parents}
    for folder in sorted(above, key=lambda each: len(each.parts)):
        if not folder.exists():
            continue
        if not _may(folder, user, _ENTER):
            raise ConfigurationError(
                f"{who}: {_name(user)} may not enter {folder}, which belongs to {_name(folder.stat().st_uid)}, and "
                f"{place} is below it",
                next_step=f"chmod a+x {shlex.quote(str(folder))}",
            )
        if not os.access(folder, _ENTER):
            return f"{_name(os.geteuid())} may not enter {folder}: ask as {_name(user)}"
    return ""


def may_write(place: Path, user: int) -> bool:
    """Say whether a user may write a file, or make files in a folder; also yes where nobody can tell."""
    return _may(place, user, _WRITE | _ENTER if place.is_dir() else _WRITE)


def _may(place: Path, user: int, wanted: int) -> bool:
    if user == os.geteuid():
        return os.access(place, wanted)
    if wanted & _WRITE and os.statvfs(place).f_flag & os.ST_RDONLY:
        return False
    found, groups = place.stat(), _groups(user)
    if user == _ROOT or groups is None or _has_list(place):
        return True
    shift = 6 if user == found.st_uid else 3 if found.st_gid in groups else 0
    return found.st_mode >> shift & wanted == wanted


def _groups(user: int) -> list[int] | None:
    """Return the groups of a user; None where this machine does not know it."""
    try:
        known = pwd.getpwuid(user)
    except KeyError:
        return None
    return os.getgrouplist(known.pw_name, known.pw_gid)


def _has_list(place: Path) -> bool:
    """Say whether more users are named than the mode tells."""
    try:
        return _ACL in os.listxattr(place)
    except (OSError, AttributeError):
        return False


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"the user {user}"
