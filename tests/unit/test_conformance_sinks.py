"""The conformance suite for our own quick sinks: files, the docs' staged sink, and the sink in memory."""

from __future__ import annotations

import os
import sqlite3
import sys
import types
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from onceonly.sinks.files import FilesSink
from onceonly_proof.conformance import SinkConformance
from onceonly_proof.memory_sink import MemorySink

sys.path.insert(0, str(Path(__file__).parents[1] / "acceptance"))

from doc_blocks import extract

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_page = types.ModuleType("docs_sink")
exec(extract("docs/how-to/write-a-sink.md", "sink"), _page.__dict__)  # noqa: S102  the page's own code is the sink
sys.modules[_page.__name__] = _page


class TestDocs(SinkConformance):
    sink = _page.ResultsSink

    def options(self, folder: Path) -> dict[str, str]:
        with closing(sqlite3.connect(folder / "results.db")) as db:
            db.execute("CREATE TABLE results (key TEXT, value TEXT)")
        return {"database": str(folder / "results.db"), "staging": str(folder / "staging")}

    def visible(self, options: Mapping[str, str]) -> list[tuple[str, str]]:
        with closing(sqlite3.connect(options["database"], timeout=60)) as db:
            return db.execute("SELECT key, value FROM results").fetchall()

    def orphans(self, options: Mapping[str, str]) -> list[str]:
        return [str(path) for path in files_in(Path(options["staging"]))]

    @contextmanager
    def unreachable(self, options: Mapping[str, str]) -> Iterator[None]:
        database = Path(options["database"])
        aside = database.rename(database.with_name("aside"))
        database.mkdir()
        yield
        database.rmdir()
        aside.rename(database)


class TestFiles(SinkConformance):
    sink = FilesSink

    def options(self, folder: Path) -> dict[str, str]:
        return {"path": str(folder / "rows")}

    def visible(self, options: Mapping[str, str]) -> Iterable[tuple[object, ...]]:
        for path in shown(Path(options["path"])):
            yield from (tuple(row.values()) for row in pq.ParquetFile(path).read().to_pylist())

    def orphans(self, options: Mapping[str, str]) -> list[str]:
        folder = Path(options["path"])
        return [
            str(path) for path in files_in(folder) if path.suffix == ".parquet" and path not in shown(folder)
        ]

    @contextmanager
    def unreachable(self, options: Mapping[str, str]) -> Iterator[None]:
        folder = Path(options["path"])
        aside = folder.rename(folder.with_name("aside"))
        yield
        aside.rename(folder)


class TestMemory(SinkConformance):
    sink = MemorySink
    outlives_processes = False

    def options(self, folder: Path) -> dict[str, str]:
        MemorySink.stores[str(folder)].refuses = {"unwanted"}
        return {"store": str(folder)}

    def refusable(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"key": ["k"], "value": ["unwanted"]})

    def visible(self, options: Mapping[str, str]) -> Iterable[tuple[object, ...]]:
        return MemorySink.stores[options["store"]].visible().elements()

    def orphans(self, options: Mapping[str, str]) -> list[str]:
        return MemorySink.stores[options["store"]].pending()

    @contextmanager
    def unreachable(self, options: Mapping[str, str]) -> Iterator[None]:
        store = MemorySink.stores[options["store"]]
        store.reachable = False
        yield
        store.reachable = True


def shown(folder: Path) -> list[Path]:
    """List what any reader of a folder sees: nothing whose name, or whose folder's, begins with a dot or ``_``."""
    return [
        path
        for path in files_in(folder)
        if not any(part[0] in "._" for part in path.relative_to(folder).parts)
    ]


def files_in(folder: Path) -> list[Path]:
    # Unlike rglob, it bears that a folder is removed meanwhile.
    return [Path(where) / name for where, _, names in os.walk(folder) for name in names]
