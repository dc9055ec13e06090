"""Iceberg tables in a folder, with a catalogue in a file, and readers that share no code with the sink."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog.sql import SqlCatalog

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyiceberg.table import Table

NAME = "sales.orders"


def options_of(folder: Path, **more: str) -> dict[str, str]:
    """Return the sink's options for a table in this folder."""
    return {
        "table": NAME,
        "catalog.type": "sql",
        "catalog.uri": f"sqlite:///{folder}/catalog.db",
        "catalog.warehouse": f"file://{folder}/warehouse",
        **more,
    }


def catalog_of(options: Mapping[str, str]) -> SqlCatalog:
    """Open the catalogue, as another program does."""
    return SqlCatalog("default", uri=options["catalog.uri"], warehouse=options["catalog.warehouse"])


def make_namespace(options: Mapping[str, str]) -> None:
    with catalog_of(options) as catalog:
        catalog.create_namespace("sales")


def make_table(options: Mapping[str, str], schema: pa.Schema, **properties: str) -> None:
    make_namespace(options)
    with catalog_of(options) as catalog:
        catalog.create_table(NAME, schema, properties=properties)


def opened(options: Mapping[str, str]) -> Table:
    """Read the newest state of the table; of its catalogue nothing stays open."""
    with catalog_of(options) as catalog:
        return catalog.load_table(NAME)


def rows_of(options: Mapping[str, str]) -> list[dict[str, Any]]:
    return opened(options).scan().to_arrow().to_pylist()  # type: ignore[no-any-return]


def listed(options: Mapping[str, str]) -> set[Path]:
    """Return the data files of the newest snapshot."""
    tasks = opened(options).scan().plan_files()
    return {Path(task.file.file_path.removeprefix("file://")) for task in tasks}


def there(options: Mapping[str, str]) -> set[Path]:
    """Return the data files of ours that lie in the table's folder."""
    return set(Path(options["catalog.warehouse"].removeprefix("file://")).rglob("*/onceonly/**/*.parquet"))
