"""The options that loaded sinks have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError
from onceonly.families import behind
from onceonly.families.columns import find, names
from onceonly.options import Option, boolean, size

if TYPE_CHECKING:
    from collections.abc import Sequence


INSTEAD = "; or write parquet files to the store by onceonly.files, and load the table from those"
"""What to do where a table is on a store, beside what any folder's error says."""


def keys_of(partition_by: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return the columns that ``partitionBy`` means. Raises ``ConfigurationError``."""
    keys = []
    for name in partition_by:
        key = find(name, columns)
        if key is None:
            raise ConfigurationError(
                f"The column {name} of partitionBy is not among {', '.join(columns)}.",
                next_step="correct partitionBy",
            )
        keys.append(key)
    return keys


def require_keys(keys: Sequence[str], columns: Sequence[str], who: str) -> None:
    """See that the query gives the columns by which a table is partitioned. Raises ``ConfigurationError``."""
    for name in keys:
        if name not in columns:
            raise ConfigurationError(
                f"{who} is partitioned by {name}, which the query does not give.",
                next_step="add it to the query",
            )


DECLARED = (
    Option(
        name="create", default="false", read=boolean,
        doc="true makes a table that is not there, with the columns of the query; else it must be there",
    ),
    Option(
        name="partitionBy", default="", read=names, form="names of columns, separated by commas, none twice",
        doc="the columns by whose values a table that is made is partitioned; where it is there, the table says it",
    ),
    Option(
        name="merge.schema", default="false", read=boolean,
        doc="true adds columns of the query that the table lacks, before the first row of a run; they can be null",
    ),
    Option(
        name="compression", default="zstd", choices=("zstd", "snappy", "gzip", "lz4", "none"),
        doc="how data files are compressed: zstd (default), snappy, gzip, lz4 or none",
    ),
    Option(
        name="maxFileSize", default="128m", read=size, form="a number of bytes such as 64m or 1g",
        doc="a data file that has grown to this size is closed, and the rows go on in another",
    ),
    Option(
        name=behind.OPTION, default=behind.STOP, choices=(behind.STOP, behind.GO_ON),
        doc=behind.DOC,
    ),
)  # fmt: skip
