"""Whether a user of this machine may write to a place, by what the file system says of it; nothing is written."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING, Final

from onceonly.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_ROOT: Final = 0
_WRITE: Final = 2
_ENTER: Final = 1
_ACL: Final = "system.posix_acl_access"


def require_writable(places: Iterable[Path], *, user: int | None, who: str) -> None:
    """See that a user may write files, and make new ones in folders; this process's user where none is given.

    Of what is not there, the folder is asked in which it would be made. Raises ``ConfigurationError``.
    """
    for place in places:
        found = next(each for each in (place, *place.parents) if each.exists())
        if not may_write(found, user):
            name = _name(os.geteuid() if user is None else user)
            raise ConfigurationError(
                f"{who}: {name} may not {'make files in' if found.is_dir() else 'write'} {found}, which belongs to "
                f"{_name(found.stat().st_uid)}",
                next_step=f"give {name} write permission to it, and see that it is not mounted to be read only",
            )


def may_write(place: Path, user: int | None) -> bool:
    """Say whether a user may write a file, or make files in a folder; also yes where nobody can tell."""
    wanted = _WRITE | _ENTER if place.is_dir() else _WRITE
    if user in {None, os.geteuid()}:
        return os.access(place, wanted)
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        return False
    found, groups = place.stat(), _groups(user or _ROOT)
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
