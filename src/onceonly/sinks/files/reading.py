"""Reading whole epochs: by the manifests, never by what lies in the folders. Any process, beside a running query.

``committed`` needs neither Spark nor pyarrow; ``read`` uses the session it is given and imports nothing of Spark's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError
from onceonly.sinks.files.columns import ddl
from onceonly.sinks.files.ledger import Ledger
from onceonly.sinks.files.paths import HIDDEN, local_path, unescape
from onceonly.sinks.files.store import LocalStore, unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from onceonly.sinks.files.manifest import DataFile, Layout
    from onceonly.sinks.files.store import Store


_CSV_NULL = "\ue0d0onceonly null\ue0d1"  # of a private area: no value is this text


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedEpoch:
    """One whole epoch of one sink of one query; paths are below the target."""

    query: str
    sink: str
    epoch: int
    files: tuple[DataFile, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def committed(path: str) -> list[CommittedEpoch]:
    """List the epochs that are whole in a target, by query, sink and number.

    Raises ``ConfigurationError`` where the file sink never wrote, ``LogError`` for a damaged manifest.
    """
    return [epoch for _, epoch in _epochs(LocalStore(), _target(path))]


def read(
    spark: Any,  # noqa: ANN401  a SparkSession; PySpark is not imported here
    path: str,
    *,
    query: str | None = None,
    schema: Any = None,  # noqa: ANN401
) -> Any:  # noqa: ANN401  a DataFrame
    """Read the epochs that are whole in a target now, and nothing else.

    ``query`` is a query's id: without it, all queries that wrote here. ``schema``, as in ``spark.read.schema``,
    replaces the one that was noted when the files were written. What is committed later is not in the frame.
    Raises ``ConfigurationError`` where the file sink never wrote, or where columns have changed their types.
    """
    store, target = LocalStore(), _target(path)
    files: dict[str, list[str]] = {}
    layouts: dict[str, Layout] = {}
    for layout, epoch in _epochs(store, target):
        if query in {None, epoch.query}:
            files.setdefault(layout, []).extend(str(target / file.path) for file in epoch.files)
    # After the epochs: a layout is there before what is written by it.
    for folder, name, _ in _folders(store, target):
        if query in {None, name}:
            layouts |= Ledger(store, folder).layouts()
    if not layouts:
        raise ConfigurationError(
            f"The file sink has written nothing of query {query} to {target}.",
            next_step="see onceonly.files.committed(path) for the queries that are there",
        )
    if not files:
        newest = next(reversed(layouts.values()))
        return spark.createDataFrame([], schema if schema is not None else ddl(newest.columns))
    if schema is None:
        _compare([layouts[key] for key in files])
    frames = [_frame(spark, target, layouts[key], names, schema) for key, names in files.items()]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def _frame(
    spark: Any,  # noqa: ANN401
    target: Path,
    layout: Layout,
    names: list[str],
    schema: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401  a DataFrame
    reader = (
        spark.read.format(layout.format)
        .schema(schema if schema is not None else ddl(layout.columns))
        .option("basePath", str(target))
        # The paths are names of files, whatever stands in them; DataSource.GLOB_PATHS_KEY of Spark.
        .option("__globPaths__", "false")
    )
    if layout.format == "csv":
        # Nothing is null, two quotes are the empty text: told apart only where null has a text of its own.
        reader = reader.options(header=layout.header, sep=layout.sep, multiLine=True, nullValue=_CSV_NULL)
    return reader.load(names)


def _compare(layouts: Sequence[Layout]) -> None:
    types: dict[str, str] = {}
    for layout in layouts:
        for name, kind in layout.columns:
            if types.setdefault(name, kind) != kind:
                raise ConfigurationError(
                    f"The column {name} was written as {types[name]}, and later as {kind}.",
                    next_step="say how to read it: onceonly.files.read(spark, path, schema=…)",
                )


def _target(path: str) -> Path:
    target = local_path(path)
    if not (target / HIDDEN).is_dir():
        raise ConfigurationError(
            f"The file sink never wrote to {target}: there is no folder {HIDDEN}.",
            next_step="give the path of the sink's query",
        )
    return target


def _folders(store: Store, target: Path) -> Iterator[tuple[Path, str, str]]:
    """Give the folders of manifests with query and sink."""
    root = target / HIDDEN / "epochs"
    try:
        for query in sorted(store.names(root)):
            for sink in sorted(store.names(root / query)):
                yield root / query / sink, unescape(query), unescape(sink)
    except OSError as error:
        raise unavailable(f"{root} could not be listed", error) from error


def _epochs(store: Store, target: Path) -> Iterator[tuple[str, CommittedEpoch]]:
    for folder, query, sink in _folders(store, target):
        for manifest in Ledger(store, folder).manifests():
            yield (
                manifest.layout,
                CommittedEpoch(query=query, sink=sink, epoch=manifest.epoch, files=manifest.files),
            )
