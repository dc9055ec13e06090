"""What can be wrong with a target, asked before the first record. Driver, once a run."""

from __future__ import annotations

import contextlib
import errno
import uuid
from typing import TYPE_CHECKING

from msgspec import UNSET

from onceonly.errors import ConfigurationError
from onceonly.families.columns import find
from onceonly.sinks.files import mixing
from onceonly.sinks.files.formats import columns
from onceonly.sinks.files.manifests.ledger import Ledger
from onceonly.sinks.files.manifests.manifest import Layout
from onceonly.sinks.files.paths import (
    HIDDEN,
    SPARK_METADATA,
    RemotePath,
    manifest_folder,
    staging_folder,
)
from onceonly.sinks.files.store import FORBIDDEN, reason, unavailable

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.ports import QueryContext
    from onceonly.sinks.files.options import FilesOptions
    from onceonly.sinks.files.store import Files
    from onceonly.sinks.files.targets.port import Target

TOKEN = "target-id"  # noqa: S105  the name of a file
# What it says that does not know a call at all, or no name of that length; it says so the next time, too.
_LACKING = frozenset({errno.EINVAL, errno.ENAMETOOLONG, errno.ENOSYS, errno.ENOTSUP})


def check(target: Target, options: FilesOptions, context: QueryContext) -> dict[str, str | int]:
    """Look at columns, folders, permissions, space. Idempotent; makes the folders that are missing.

    Raises ``ConfigurationError`` that names what to change, ``UnavailableError`` for what may pass.
    """
    columns.check(context.columns, form=options.form, partition_by=options.partition_by)
    store, at = target.files, options.target
    try:
        _refuse_foreign(store, at)
        if target.make_ready(context):
            _refuse_texts(options, context)
        if read_token(store, at) is None:
            store.put_if_absent(at / HIDDEN / TOKEN, uuid.uuid4().hex.encode())
        facts: dict[str, str | int] = {
            "target": str(at),
            "staging": str(options.staging),
            "token": read_token(store, at) or "",
        }
        manifests = manifest_folder(at, context.query, context.sink)
        store.make_folder(manifests)
        # Whoever made them may have died before they were durable.
        sync(store, manifests, at)
        sync(store, staging_folder(options.staging, context.query, context.sink), options.staging)
    except OSError as error:
        raise _refusal(options, error) from error
    if context.columns:
        layout, own = _layout(options, context), Ledger(store, manifests)
        mixing.refuse_mixed(store, at, own, layout)
        mixing.tell_of_others(store, at, own, context)
        own.put_layout(layout)
        facts["layout"] = layout.key
    return facts


def read_token(store: Files, target: Path) -> str | None:
    """Return the target's own id, which tells whether two machines see one folder; None where it has none."""
    data = store.read(target / HIDDEN / TOKEN)
    return None if data is None else data.decode(errors="replace")


def require_rights(store: Files, options: FilesOptions, context: QueryContext, user: int | None) -> str:
    """See that files may be made where an epoch makes some. Only looks; return why that cannot be seen.

    Raises ``ConfigurationError``, ``UnavailableError``.
    """
    places = (
        options.target,
        manifest_folder(options.target, context.query, context.sink),
        staging_folder(options.staging, context.query, context.sink),
    )
    try:
        return store.require_rights(places, user=user, who=f"the sink {context.sink}")
    except OSError as error:
        raise unavailable(f"the rights on {options.target} could not be asked", error) from error


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


def sync(store: Files, folder: Path, top: Path) -> None:
    """Make a folder durable, with those above it up to ``top`` and its own name."""
    while folder != top:
        store.sync_folder(folder)
        folder = folder.parent
    store.sync_folder(top)
    if isinstance(top, RemotePath):
        return  # a folder that HDFS has made is durable
    # One's parent may be closed to us; then it was not us who made it.
    with contextlib.suppress(PermissionError):
        store.sync_folder(top.parent)


def _refuse_foreign(store: Files, target: Path) -> None:
    metadata = target / SPARK_METADATA
    if store.size(metadata) is not None or store.names(metadata):
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


def _refusal(options: FilesOptions, error: OSError) -> Exception:
    where = error.filename or options.target
    if error.errno in FORBIDDEN:
        return ConfigurationError(
            f"The file sink may not write to {where}: {reason(error)}. Nothing was written.",
            next_step=f"give the user of driver and executors write permission to {options.target} and "
            f"{options.staging}",
        )
    if isinstance(error, NotADirectoryError):
        return ConfigurationError(
            f"a file is in the way, where {where} needs folders ({reason(error)}). Nothing was written.",
            next_step="set path to a folder, or to a name that is free in one",
        )
    if isinstance(error, FileExistsError):
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
