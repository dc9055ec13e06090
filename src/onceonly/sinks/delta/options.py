"""The options of the Delta sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.durable.addresses import local_folder
from onceonly.families import loaded
from onceonly.options import Option

if TYPE_CHECKING:
    from pathlib import Path


def table_folder(text: str) -> Path:
    """Read the folder of a table. Raises ``ConfigurationError`` for what is not in a file system."""
    return local_folder(text, what="the Delta table", instead=loaded.INSTEAD)


DECLARED = (
    Option(
        name="path", required=True, read=table_folder,
        doc="the folder of the table: a local path or a mount that all machines share, also as file:///path",
    ),
    *loaded.DECLARED,
)  # fmt: skip
