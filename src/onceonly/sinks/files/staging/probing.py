"""Whether a file system does what every commit needs: tried before the first record. Driver, once a run."""

from __future__ import annotations

import contextlib
import errno
import uuid
from typing import TYPE_CHECKING

from onceonly.durable import disk
from onceonly.errors import ConfigurationError
from onceonly.sinks.files.checks import TOKEN
from onceonly.sinks.files.mixing import CLAIM
from onceonly.sinks.files.paths import HIDDEN, RemotePath, staging_folder
from onceonly.sinks.files.store import reason

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.ports import QueryContext
    from onceonly.sinks.files.options import FilesOptions
    from onceonly.sinks.files.store import Store

_PROBE, _TWIN = ".probe-", "-2"
_PROBE_BYTES = 4096
_OLD_S = 3600.0
# What a file system says that has no hard links.
_UNLINKED = frozenset({errno.EPERM, errno.EMLINK, errno.ENOSYS, errno.ENOTSUP})


def make_ready(store: Store, options: FilesOptions, context: QueryContext) -> bool:
    """Make the folders that are missing, and try what every commit does; say whether case is ignored in names.

    Idempotent. Raises ``OSError``, ``ConfigurationError`` for what a file system lacks.
    """
    target, staging = options.target, staging_folder(options.staging, context.query, context.sink)
    if not isinstance(target, RemotePath) and store.size(target.parent) is None:
        raise ConfigurationError(
            f"The folder {target.parent} of the target {target} is not there. Nothing was made: it may be that "
            "a file system is not mounted.",
            next_step=f"mount it, or make {target.parent}",
        )
    for folder in (target, target / HIDDEN, staging):
        store.make_folder(folder)
    if not isinstance(target, RemotePath):
        disk.sync_above(target)
    _tidy(store, staging, target)
    return _probe(store, staging, target)


def _tidy(store: Store, staging: Path, target: Path) -> None:
    """Take away what checks and claims that were killed left; best effort. A younger one may be somebody's at work.

    The target is not listed, as it may have millions of files: the twin tells what a probe has there.
    """
    hidden = target / HIDDEN
    puts = [(hidden, f".{name}", ".tmp") for name in (_PROBE, f"{TOKEN}.", f"{CLAIM}.")]
    places = ((staging, _PROBE, ""), *puts)
    with contextlib.suppress(OSError):
        for folder, begin, end in places:
            for name in store.names(folder):
                old = name.startswith(begin) and name.endswith(end) and store.age(folder / name) > _OLD_S
                if old and name.endswith(_TWIN):
                    for place in _places(staging, target, name.removesuffix(_TWIN)):
                        store.delete(place)
                elif old:
                    store.delete(folder / name)


def _places(staging: Path, target: Path, name: str) -> tuple[Path, Path, Path, Path]:
    """Return all names of a probe; its twin, which tells of the others, last."""
    return target / name, target / HIDDEN / name, staging / name, staging / f"{name}{_TWIN}"


def _probe(store: Store, staging: Path, target: Path) -> bool:
    """Do once what every commit does: create, sync, publish once and not twice, put a small file, remove.

    Say whether the file system takes names for one that differ in case.
    """
    name = f"{_PROBE}{uuid.uuid4().hex}"
    final, small, temporary, twin = _places(staging, target, name)
    try:
        for path in (twin, temporary):
            with store.create(path) as file:
                file.write(bytes(_PROBE_BYTES))
                store.finish(file)
        store.sync_folder(staging)
        try:
            store.publish(temporary, final)
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise ConfigurationError(
                    f"The temporary folder {staging} is on another file system than the target {target}, so "
                    "every commit would have to copy its files.",
                    next_step="leave the option staging out, or name a folder on the target's file system",
                ) from error
            raise
        if store.publish(twin, final):
            raise ConfigurationError(
                f"The file system of {target} renames over an existing name, so a file could be overwritten.",
                next_step="put the target on another file system (ext4, xfs, NFS)",
            )
        try:
            store.put_if_absent(small, b"")
        except OSError as error:
            if error.errno not in _UNLINKED:
                raise
            raise ConfigurationError(
                f"The file system of {target} has no hard links ({reason(error)}), so a manifest could not be put "
                "safely.",
                next_step="put the target on a file system with hard links (ext4, xfs, NFS)",
            ) from error
        return store.size(final.with_name(name.upper())) is not None
    finally:
        # One that cannot be removed keeps its twin, which tells a later start of it.
        with contextlib.suppress(OSError):
            for path in (final, small, temporary):
                store.delete(path)
            # A loss of power must not forget these removals and keep that of the twin.
            for folder in (final.parent, small.parent):
                store.sync_folder(folder)
            store.delete(twin)
