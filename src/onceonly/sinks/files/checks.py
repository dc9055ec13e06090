"""What can be wrong with a target, asked before the first record. Driver, once a run."""

from __future__ import annotations

import contextlib
import errno
import uuid
from typing import TYPE_CHECKING

from msgspec import UNSET

from onceonly.errors import ConfigurationError
from onceonly.families.columns import find
from onceonly.sinks.files.formats import columns
from onceonly.sinks.files.manifests.ledger import Ledger
from onceonly.sinks.files.manifests.manifest import Layout
from onceonly.sinks.files.paths import HIDDEN, SPARK_METADATA, manifest_folder, staging_folder
from onceonly.sinks.files.store import FORBIDDEN, reason, unavailable

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.ports import QueryContext
    from onceonly.sinks.files.options import FilesOptions
    from onceonly.sinks.files.store import Store

_TOKEN = "target-id"  # noqa: S105  the name of a file
_PROBE, _TWIN = ".probe-", "-2"
_PROBE_BYTES = 4096
_OLD_S = 3600.0
# What a file system says that has no hard links.
_UNLINKED = frozenset({errno.EPERM, errno.EMLINK, errno.ENOSYS, errno.ENOTSUP})
# What it says that does not know a call at all, or no name of that length; it says so the next time, too.
_LACKING = frozenset({errno.EINVAL, errno.ENAMETOOLONG, errno.ENOSYS, errno.ENOTSUP})


def check(store: Store, options: FilesOptions, context: QueryContext) -> dict[str, str | int]:
    """Look at columns, folders, permissions, space. Idempotent; makes the folders that are missing.

    Raises ``ConfigurationError`` that names what to change, ``UnavailableError`` for what may pass.
    """
    columns.check(context.columns, form=options.form, partition_by=options.partition_by)
    target, staging = options.target, staging_folder(options.staging, context.query, context.sink)
    try:
        if store.size(target.parent) is None:
            raise ConfigurationError(
                f"The folder {target.parent} of the target {target} is not there. Nothing was made: it may be that "
                "a file system is not mounted.",
                next_step=f"mount it, or make {target.parent}",
            )
        _refuse_foreign(store, target)
        for folder in (target, target / HIDDEN, staging):
            store.make_folder(folder)
        _tidy(store, staging, target)
        if _probe(store, staging, target):
            _refuse_texts(options, context)
        if read_token(store, target) is None:
            store.put_if_absent(target / HIDDEN / _TOKEN, uuid.uuid4().hex.encode())
        facts: dict[str, str | int] = {
            "target": str(target),
            "staging": str(options.staging),
            "token": read_token(store, target) or "",
        }
        manifests = manifest_folder(target, context.query, context.sink)
        store.make_folder(manifests)
        # Whoever made them may have died before they were durable.
        _sync(store, manifests, target)
        _sync(store, staging, options.staging)
    except OSError as error:
        raise _refusal(options, error) from error
    if context.columns:
        layout = _layout(options, context)
        Ledger(store, manifests).put_layout(layout)
        facts["layout"] = layout.key
    return facts


def read_token(store: Store, target: Path) -> str | None:
    """Return the target's own id, which tells whether two machines see one folder; None where it has none."""
    data = store.read(target / HIDDEN / _TOKEN)
    return None if data is None else data.decode(errors="replace")


def _layout(options: FilesOptions, context: QueryContext) -> Layout:
    names = [name for name, _ in context.columns]
    return Layout(
        format=options.form,
        columns=context.columns,
        partition_by=tuple(find(name, names) or name for name in options.partition_by),
        header=options.header,
        sep=options.texts.sep,
        reading=options.texts.for_readers or UNSET,
    )


def _sync(store: Store, folder: Path, top: Path) -> None:
    """Make a folder durable, with those above it up to ``top`` and its own name."""
    while folder != top:
        store.sync_folder(folder)
        folder = folder.parent
    store.sync_folder(top)
    # One's parent may be closed to us; then it was not us who made it.
    with contextlib.suppress(PermissionError):
        store.sync_folder(top.parent)


def _tidy(store: Store, staging: Path, target: Path) -> None:
    """Take away what checks that were killed left; best effort. A younger one may be somebody's at work.

    The target is not listed, as it may have millions of files: the twin tells what a probe has there.
    """
    hidden = target / HIDDEN
    places = ((staging, _PROBE, ""), (hidden, f".{_PROBE}", ".tmp"), (hidden, f".{_TOKEN}.", ".tmp"))
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


def _refuse_foreign(store: Store, target: Path) -> None:
    if store.size(target / SPARK_METADATA) is not None:
        raise ConfigurationError(
            f"The target {target} was written by Spark's own file sink: its {SPARK_METADATA} would hide our files "
            "from spark.read.",
            next_step="choose another path, or move that folder away once no query of Spark's writes there",
        )


def _refuse_texts(options: FilesOptions, context: QueryContext) -> None:
    """Refuse to partition by texts where case is ignored: rows of ``de`` would lie under ``DE``, and be read so."""
    kinds = dict(context.columns)
    found = [find(name, list(kinds)) or name for name in options.partition_by]
    texts = [name for name in found if kinds.get(name, "string").startswith(("string", "varchar", "char"))]
    if texts:
        raise ConfigurationError(
            f"The file system of {options.target} takes names that differ in case for one. Of two values of the "
            f"partition column {', '.join(texts)} that differ in case only, the rows of one would be read with the "
            "other. Nothing was written.",
            next_step="put the target on a file system that tells case apart, or partition by another type of column",
        )


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


def _refusal(options: FilesOptions, error: OSError) -> Exception:
    where = error.filename or options.target
    if error.errno in FORBIDDEN:
        return ConfigurationError(
            f"The file sink may not write to {where}: {reason(error)}. Nothing was written.",
            next_step=f"give the user of driver and executors write permission to {options.target} and "
            f"{options.staging}",
        )
    if isinstance(error, FileExistsError | NotADirectoryError):
        return ConfigurationError(
            f"{where} is in the way: a file where the sink needs a folder ({reason(error)}).",
            next_step="set path to a folder, or to a name that is free",
        )
    if error.errno in _LACKING:
        return ConfigurationError(
            f"The file system of {where} does not do what every commit needs: {reason(error)}. Nothing was written.",
            next_step="put the target on another file system (ext4, xfs, NFS)",
        )
    return unavailable(f"the target {options.target} cannot be used", error)
