"""Reading whole epochs: by the manifests, never by what lies in the folders. Any process, beside a running query.

``committed`` needs neither Spark nor pyarrow; ``read`` uses the session it is given and imports nothing of Spark's.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET

from onceonly.errors import ConfigurationError, LogError, UnavailableError
from onceonly.families.columns import ddl, quote
from onceonly.sinks.files.manifests.ledger import Ledger
from onceonly.sinks.files.manifests.manifest import Counted
from onceonly.sinks.files.paths import HIDDEN, target_path, unescape
from onceonly.sinks.files.store import store_of, unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from onceonly.sinks.files.manifests.manifest import DataFile, Layout
    from onceonly.sinks.files.store import Files


_CSV_NULL = "\ue0d0onceonly null\ue0d1"  # of a private area: no value is this text
_GLOB = re.compile(r"[{}\[\]*?\\]")  # what SparkHadoopUtil.isGlobPath looks for


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedEpoch(Counted):
    """One whole epoch of one sink of one query; paths are below the target."""

    query: str
    sink: str
    epoch: int
    files: tuple[DataFile, ...]


def committed(path: str) -> list[CommittedEpoch]:
    """List the epochs that are whole in a target, by query, sink and number.

    Raises ``ConfigurationError`` where the file sink never wrote, ``LogError`` for a damaged manifest.
    """
    store, target = _target(path)
    return [epoch for _, epoch in _epochs(store, target)]


def read(
    spark: Any,  # noqa: ANN401  a SparkSession; PySpark is not imported here
    path: str,
    *,
    query: str | None = None,
    schema: Any = None,  # noqa: ANN401
    missing: Literal["fail", "skip"] = "fail",
) -> Any:  # noqa: ANN401  a DataFrame
    """Read the epochs that are whole in a target now, and nothing else.

    ``query`` is a query's id: without it, all queries that wrote here. ``schema``, as in ``spark.read.schema``,
    replaces the one that was noted when the files were written; columns of other types are cast to it. ``missing``
    says what becomes of files that are listed and no longer there: ``fail`` raises ``UnavailableError``, ``skip``
    leaves them out. What is committed later is not in the frame. Raises ``ConfigurationError`` where the file sink
    never wrote, or where columns have changed their types.
    """
    if missing not in {"fail", "skip"}:
        raise ConfigurationError(
            f"missing={missing!r} is neither 'fail' nor 'skip'.", next_step="give one of the two"
        )
    store, target = _target(path)
    files: dict[str, list[str]] = {}
    layouts: dict[str, Layout] = {}
    for layout, epoch in _epochs(store, target):
        if query in {None, epoch.query}:
            found = [file for file in epoch.files if _is_there(store, target, epoch, file, missing)]
            files.setdefault(layout, []).extend(str(target / file.path) for file in found)
    # After the epochs: a layout is there before what is written by it.
    for folder, name, _ in manifest_folders(store, target):
        if query in {None, name}:
            layouts |= Ledger(store, folder).layouts()
    if lost := files.keys() - layouts.keys():
        raise LogError(
            f"{target} does not say any more how its files are to be read: {min(lost)}.layout is gone from {HIDDEN}.",
            next_step="put it back from a backup, or read the files that onceonly.files.committed(path) lists by "
            "another reader",
        )
    if not layouts:
        raise ConfigurationError(
            f"The file sink has written nothing of query {query} to {target}.",
            next_step="see onceonly.files.committed(path) for the queries that are there",
        )
    used = [layouts[key] for key in files or layouts]
    if schema is None:
        _compare(used)
    frames = [_frame(spark, target, layouts[key], names, schema) for key, names in files.items() if names]
    if not frames:
        # Layouts have no order: the columns are those that frames of all of them would have.
        columns = {name: kind for layout in used for name, kind in layout.columns}
        return spark.createDataFrame([], schema if schema is not None else ddl(list(columns.items())))
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def _is_there(store: Files, target: Path, epoch: CommittedEpoch, file: DataFile, missing: str) -> bool:
    """Tell whether a listed file is there. Raises ``UnavailableError`` where it must be, and is not."""
    place = target / file.path
    try:
        size = store.size(place)
    except OSError as error:
        raise unavailable(f"{place} could not be looked up", error) from error
    if size is None and missing == "fail":
        raise UnavailableError(
            f"{place} is listed in chk-{epoch.epoch} of query {epoch.query}, and is not there: it was deleted or "
            "moved away.",
            next_step="put it back, or read what is left: onceonly.files.read(spark, path, missing='skip')",
        )
    return size is not None


def _frame(
    spark: Any,  # noqa: ANN401
    target: Path,
    layout: Layout,
    names: list[str],
    schema: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401  a DataFrame
    wanted = None if schema is None else spark.createDataFrame([], schema)
    kinds = {} if wanted is None else {each.name: each.dataType for each in wanted.schema.fields}
    changed = layout.format in {"parquet", "orc"} and any(
        name in kinds and kinds[name].simpleString() != kind for name, kind in layout.columns
    )
    reader = (
        spark.read.format(layout.format)
        .schema(schema if schema is not None and not changed else ddl(layout.columns))
        .option("basePath", str(target))
    )
    if layout.format == "parquet":
        # Files of earlier versions do not say how days are counted, nor does a session that reads those of Spark 2.
        reader = reader.option("datetimeRebaseMode", "CORRECTED")
    if layout.format == "csv":
        # Nothing is null, two quotes are the empty text: told apart only where null has a text of its own.
        reader = reader.options(header=layout.header, sep=layout.sep, multiLine=True, nullValue=_CSV_NULL)
    if layout.reading is not UNSET:
        reader = reader.options(**dict(layout.reading))
    frame = reader.load([glob_of(name) for name in names])
    seen = len(frame.inputFiles())
    if seen != len(names):
        raise UnavailableError(
            f"Spark sees {seen} files of {target} where {len(names)} are listed.",
            next_step="try again: files may have been deleted meanwhile; if it stays so, report this",
        )
    if wanted is None or not changed:
        return frame
    # The files know their types, and Spark reads no number as a text: it casts.
    names_there = [name for name, _ in layout.columns if name in kinds]
    cast = frame.select(*(frame[quote(name)].cast(kinds[name]).alias(name) for name in names_there))
    return wanted.unionByName(cast, allowMissingColumns=True)


def glob_of(name: str) -> str:
    """Return the pattern that Spark's readers expand to exactly this file. Pure.

    Raises ``ConfigurationError`` for a name that no pattern means: Hadoop's ``Globber`` takes what is before a
    colon for the scheme of an address. (Turning patterns off by Spark's ``__globPaths__`` is no way: then each
    name that looks like a pattern stands for *all* files of the call.)
    """
    if _GLOB.search(name) and ":" in name:
        raise ConfigurationError(
            f"Spark cannot read {name!r}: a colon, and one of {{}}[]*?\\, are in one path.",
            next_step="move the target to a path without colons, or read the files that "
            "onceonly.files.committed(path) lists by another reader",
        )
    return _GLOB.sub(lambda match: f"\\{match[0]}", name)


def _compare(layouts: Sequence[Layout]) -> None:
    types: dict[str, str] = {}
    for layout in layouts:
        for name, kind in layout.columns:
            if types.setdefault(name, kind) != kind:
                raise ConfigurationError(
                    f"The column {name} was written as {types[name]}, and later as {kind}.",
                    next_step="say how to read it: onceonly.files.read(spark, path, schema=…)",
                )


def _target(path: str) -> tuple[Files, Path]:
    target = target_path(path)
    store = store_of(target)
    if not has_written(store, target):
        raise ConfigurationError(
            f"The file sink never wrote to {target}: there is no folder {HIDDEN}.",
            next_step="give the path of the sink's query",
        )
    return store, target


def has_written(store: Files, target: Path) -> bool:
    """Tell whether the file sink ever wrote to a target. Raises ``UnavailableError``.

    In a file system its folder is there before anything is in it; in a bucket, a folder is what keys begin with.
    """
    hidden = target / HIDDEN
    try:
        inside = _inside(store, hidden)
        return bool(inside) or (inside is not None and store.size(hidden) is not None)
    except OSError as error:
        raise unavailable(f"{target} could not be listed", error) from error


def manifest_folders(store: Files, target: Path) -> Iterator[tuple[Path, str, str]]:
    """Yield the folders of manifests with query and sink."""
    root = target / HIDDEN / "epochs"
    try:
        for query in sorted(store.names(root)):
            for sink in sorted(_inside(store, root / query) or ()):
                if _inside(store, root / query / sink) is not None:
                    yield root / query / sink, unescape(query), unescape(sink)
    except OSError as error:
        raise unavailable(f"{root} could not be listed", error) from error


def _inside(store: Files, folder: Path) -> list[str] | None:
    """List a folder; None for what is no folder: a file of somebody else's."""
    with contextlib.suppress(NotADirectoryError):
        return store.names(folder)
    return None


def _epochs(store: Files, target: Path) -> Iterator[tuple[str, CommittedEpoch]]:
    for folder, query, sink in manifest_folders(store, target):
        for manifest in Ledger(store, folder).manifests():
            yield (
                manifest.layout,
                CommittedEpoch(query=query, sink=sink, epoch=manifest.epoch, files=manifest.files),
            )
