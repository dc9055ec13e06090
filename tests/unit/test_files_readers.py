"""Other people's readers, at every step of the file sink: by whatever pattern they look, they get decided rows only.

Trino and Hive are here by their rule: names that begin with a dot or an underscore are no data, folders included.
"""

from __future__ import annotations

import glob
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.json
import pyarrow.orc
import pytest
from tests.unit.files_bench import STEPS, Files, quick, rows

from onceonly.sinks.files.manifests.ledger import Ledger
from onceonly.sinks.files.paths import manifest_folder

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["quick"]  # a fixture
END = {"parquet": "parquet", "orc": "orc", "json": "json", "csv": "csv", "text": "txt"}
LAYERS = {"json": "read_json", "csv": "read_csv", "parquet": "read_parquet"}


def rows_of(query: str) -> list[Any]:
    relation = duckdb.sql(query)
    assert relation is not None
    return list(relation.fetchall())


def duck(target: Path, form: str) -> list[int]:
    pattern = f"{target}/**/*.{END[form]}"
    if form == "text":
        lines = rows_of(f"SELECT content FROM read_text('{pattern}')")  # noqa: S608  our own path
        return [int(line) for (content,) in lines for line in content.splitlines()]
    if form not in LAYERS:  # it reads no ORC
        return plain_glob(target, form)
    options = ", names=['id']" if form == "csv" else ""
    try:
        found = rows_of(f"SELECT id FROM {LAYERS[form]}('{pattern}'{options})")  # noqa: S608
    except duckdb.IOException as error:
        if "No files found" not in str(error):
            raise
        return []
    return [int(value) for (value,) in found]


def arrow_dataset(target: Path, form: str) -> list[int]:
    if form == "text":
        return plain_glob(target, form)
    made: Any = {"csv": ds.CsvFileFormat(read_options=pa.csv.ReadOptions(column_names=["id"]))}.get(
        form, form
    )
    found = ds.dataset(target, format=made, partitioning="hive")
    return [int(value) for value in found.to_table()["id"].to_pylist()] if found.files else []


def pandas_each(target: Path, form: str) -> list[int]:
    """As people do it: glob, then a frame for each file."""
    read: dict[str, Callable[[Any], pd.DataFrame]] = {
        "parquet": pd.read_parquet,
        "orc": pd.read_orc,
        "json": lambda path: pd.read_json(path, lines=True),
        "csv": lambda path: pd.read_csv(path, names=["id"]),
        "text": lambda path: pd.read_csv(path, names=["id"]),
    }
    return [int(value) for path in sorted(target.rglob(f"*.{END[form]}")) for value in read[form](path)["id"]]


def pandas_folder(target: Path, form: str) -> list[int]:
    if form != "parquet" or not glob.glob(f"{target}/day=*/*"):  # noqa: PTH207  the very call
        return plain_glob(target, form)
    return [int(value) for value in pd.read_parquet(target)["id"]]


def plain_glob(target: Path, form: str) -> list[int]:
    """Python's own, which takes names with an underscore."""
    found = glob.glob(f"{target}/**/*.{END[form]}", recursive=True)  # noqa: PTH207  the very call
    return [value for path in sorted(found) for value in ids_of(Path(path), form)]


def hive(target: Path, form: str) -> list[int]:
    found: list[int] = []
    for base, folders, names in os.walk(target):
        folders[:] = [name for name in folders if name[0] not in "._"]
        found += [value for name in names if name[0] not in "._" for value in ids_of(Path(base, name), form)]
    return found


def ids_of(path: Path, form: str) -> list[int]:
    if form == "parquet":
        return [int(value) for value in pa.parquet.ParquetFile(path).read()["id"].to_pylist()]
    if form == "orc":
        return [int(value) for value in pa.orc.read_table(path)["id"].to_pylist()]
    if form == "json":
        return [int(value) for value in pa.json.read_json(path)["id"].to_pylist()]
    return [int(line) for line in path.read_text().splitlines()]


READERS = (duck, arrow_dataset, pandas_each, pandas_folder, plain_glob, hive)


class Onlookers:
    """Readers that look before each step which this process takes in a folder."""

    def __init__(self, target: Path, form: str) -> None:
        self.decided: Counter[int] = Counter()
        self.due: Counter[int] = Counter()
        self.looks = 0
        self.wrong: list[str] = []
        self._target = target
        self._form = form
        self._on = False
        sys.addaudithook(self._step)

    def __enter__(self) -> Self:
        self._on = True
        return self

    def __exit__(self, *_: object) -> None:
        self._on = False

    def _step(self, event: str, arguments: tuple[object, ...]) -> None:
        here = (
            self._on and event in STEPS and any(str(each).startswith(str(self._target)) for each in arguments)
        )
        if here and event != "os.scandir":
            self._on = False
            try:
                self.look(event)
            finally:
                self._on = True

    def look(self, event: str) -> None:
        self.looks += 1
        for reader in READERS:
            try:
                seen = Counter(reader(self._target, self._form))
            except Exception as error:  # noqa: BLE001  any reader's own
                self.wrong.append(f"{reader.__name__} before {event}: {type(error).__name__}: {error}")
                continue
            if not self.due <= seen <= self.decided:
                self.wrong.append(f"{reader.__name__} before {event}: {seen}, decided are {self.decided}")


@pytest.mark.parametrize("form", list(END))
def test_no_reader_that_globs_sees_a_row_that_is_not_decided_at_any_step(quick: Path, form: str) -> None:
    bench = Files(quick / "out", options={"format": form})
    if form == "text":
        bench.columns = (("id", "string"), ("day", "string"))

    def prepared(*ids: int, epoch: int = 0, slot: int = 0) -> Any:  # noqa: ANN401  a handle
        values: dict[str, Any] = rows(*ids)
        return bench.prepared(
            values if form != "text" else {**values, "id": list(map(str, ids))}, epoch, slot
        )

    bench.sink().check(bench.context)
    with Onlookers(bench.target, form) as readers:
        first = [prepared(1, 2), prepared(3, slot=1)]
        prepared(1, 2)  # a twin attempt, which is given up
        readers.look("first decision")
        readers.decided.update([1, 2, 3])
        bench.finish(0, *first)
        readers.due = readers.decided.copy()
        readers.look("second epoch")
        second = [prepared(4, epoch=1), prepared(5, epoch=1, slot=1)]
        bench.sink().abort(second.pop())
        readers.decided.update([4])
        bench.finish(1, *second)
        readers.due = readers.decided.copy()
        readers.look("end")
    assert readers.wrong == []
    assert readers.looks > 60


def test_the_layout_of_an_earlier_version_gets_a_name_that_no_reader_of_json_takes(quick: Path) -> None:
    bench = Files(quick / "out", options={"format": "json"})
    bench.finish(0, bench.prepared(rows(1, 2)))
    folder = manifest_folder(bench.target, bench.query, "files")
    ledger = Ledger(bench.store, folder)
    layouts = ledger.layouts()
    (path,) = folder.glob("*.layout")
    path.rename(folder / f"layout-{path.stem}.json")
    assert ledger.layouts() == layouts, "it is read as it was"
    bench.sink().check(bench.context)
    assert sorted(plain_glob(bench.target, "json")) == [1, 2]
    assert ledger.layouts() == layouts
