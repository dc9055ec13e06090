"""Which columns can be a partition key, and the texts of one."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError
from onceonly.ports import Refused
from onceonly.rows.json_rows import values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

_KINDS = {"string", "tinyint", "smallint", "int", "bigint"}
KEY_LENGTH_MAX = 256
"""Characters, as the service counts them: a pair of surrogates is two."""


def check(columns: Mapping[str, str], key: str | None, default: str, who: str) -> None:
    """See that the query has the column, with a type that has one text. Raises ``ConfigurationError``."""
    name = default if key is None and default in columns else key
    if name is None:
        return
    if name not in columns:
        raise ConfigurationError(
            f"The option {default} of {who} is {name!r}, and the query has no such column: it has "
            f"{', '.join(columns)}.",
            next_step="name one of these, as it is spelled there; or leave the option out",
        )
    if columns[name] not in _KINDS:
        raise ConfigurationError(
            f"The column {name} is {columns[name]}, which cannot be a partition key of {who}.",
            next_step=f"cast it in the query, as in df.withColumn({name!r}, col({name!r}).cast('string'))",
        )


def texts(batch: pa.RecordBatch, key: str | None, default: str) -> Sequence[str | None]:
    """Return the partition key of each row; one that is drawn where the query has no column for it."""
    index = batch.schema.get_field_index(key or default)
    if index < 0:
        return [format(random.getrandbits(64), "016x") for _ in range(batch.num_rows)]
    return [None if value is None else str(value) for value in values(batch.column(index))]


def refused(keys: Sequence[str | None]) -> Iterator[Refused]:
    """Yield the rows whose key no stream takes, by their places."""
    for row, key in enumerate(keys):
        if not key:
            yield Refused(
                row=row,
                code="NO_KEY",
                why=f"its partition key is {'null' if key is None else 'empty'}",
                next_step="fill it, or filter it out",
            )
        elif len(key.encode("utf-16-le")) // 2 > KEY_LENGTH_MAX:
            yield Refused(
                row=row,
                code="KEY_TOO_LONG",
                why=f"its partition key has more than {KEY_LENGTH_MAX} characters",
                next_step="choose a shorter one, such as a hash of it",
            )
