"""Which columns a format can write, by Spark's names of types (``simpleString``). Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError
from onceonly.families.columns import FLAT_TYPE, Type, find, parse

if TYPE_CHECKING:
    from collections.abc import Sequence

_PARTITION_TYPE = re.compile(
    r"boolean|tinyint|smallint|int|bigint|float|double|decimal\(\d+, ?\d+\)|string|char\(\d+\)|varchar\(\d+\)"
    r"|date|timestamp|timestamp_ntz"
)


def check(columns: Sequence[tuple[str, str]], *, form: str, partition_by: Sequence[str]) -> None:
    """Refuse columns that the format cannot write. Raises ``ConfigurationError`` that names column and type."""
    if not columns:
        return  # not known here
    names = [name for name, _ in columns]
    _check_names(names)
    partitions = [_partition_column(name, columns) for name in partition_by]
    data = [(name, parse(kind)) for name, kind in columns if name not in partitions]
    if not data:
        raise ConfigurationError(
            f"All columns ({', '.join(names)}) are in partitionBy, so nothing is left to write into the files.",
            next_step="leave one of them out of partitionBy",
        )
    if form == "text":
        _check_text(data)
    for name, kind in data:
        wrong = next((each for each in kind.walk() if not _writes(form, each)), None)
        if wrong is not None:
            inside = "" if wrong == kind else f", which has {wrong.ddl} in it"
            raise ConfigurationError(
                f"The column {name} is of type {kind.ddl}{inside}, and {form} files cannot hold that.",
                next_step="cast or drop it, for example by to_json or cast('string'), or take another format",
            )


def _check_names(names: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        twin = seen.setdefault(name.lower(), name)
        if twin is not name:
            raise ConfigurationError(
                f"Two columns are named {twin} and {name}: readers of files do not tell them apart.",
                next_step="rename one of them",
            )


def _partition_column(name: str, columns: Sequence[tuple[str, str]]) -> str:
    names = [each for each, _ in columns]
    found = find(name, names)
    if found is None:
        raise ConfigurationError(
            f"The column {name} of partitionBy is not among the columns {', '.join(names)}.",
            next_step="correct partitionBy",
        )
    kind = dict(columns)[found]
    if not _PARTITION_TYPE.fullmatch(kind):
        raise ConfigurationError(
            f"The column {found} is of type {kind}, and no folder can be named by that.",
            next_step="partition by a column of a plain type, or cast it to string",
        )
    if found.startswith("."):
        raise ConfigurationError(
            f"The column {found} of partitionBy begins with a dot, and Spark does not read such folders.",
            next_step="rename it",
        )
    return found


def _check_text(data: Sequence[tuple[str, Type]]) -> None:
    if len(data) != 1 or not re.fullmatch(r"string( collate \w+)?|(var)?char\(\d+\)", data[0][1].base):
        shown = ", ".join(f"{name} {kind.ddl}" for name, kind in data)
        raise ConfigurationError(
            f"Text files hold exactly one string column besides the partition columns, not {shown}.",
            next_step="select one, for example by to_json(struct('*')), or take another format",
        )


def _writes(form: str, kind: Type) -> bool:
    if form == "orc" and kind.base == "timestamp_ntz":
        return False  # Spark writes it as times of a zone with a note beside; pyarrow writes no such note
    if FLAT_TYPE.fullmatch(kind.base):
        return True
    if form not in {"parquet", "orc", "json"}:
        return False
    if kind.base == "map" and form == "json":
        # A key in JSON is a string, and Spark reads no other.
        return FLAT_TYPE.fullmatch(kind.parts[0][1].base) is not None and kind.parts[0][1].base.startswith(
            "string"
        )
    # A struct without fields is a group without columns, which parquet does not have.
    return kind.base == "binary" or bool(kind.parts)
