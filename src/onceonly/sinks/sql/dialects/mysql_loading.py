"""Rows that are loaded from a client's file into MariaDB and MySQL, and what became of them. Driver.

Such a load turns errors into warnings, and leaves out rows, or changes them.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from onceonly.sinks.sql.texts import lines
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from onceonly.sinks.sql.dialects.dialect import Dialect
    from onceonly.sinks.sql.types import Match

AT_ONCE: Final = 5_000
"""A cluster of Galera's may commit at each 10,000 rows of a load (wsrep_load_data_splitting), whatever the transaction
is: Percona's does, where nobody says other. A load of fewer rows is left alone."""
_CHANGED: Final = 1265


def load(sql: Dialect, db: Any, into: str, rows: pa.RecordBatch, match: Match) -> int:  # noqa: ANN401  PyMySQL's
    """Load rows into a table, given by its name in SQL; return how many that were. Raises PyMySQL's errors."""
    parts = range(0, max(rows.num_rows, 1), AT_ONCE)
    return sum(_load(sql, db, into, rows.slice(first, AT_ONCE), match) for first in parts)


def _load(sql: Dialect, db: Any, into: str, rows: pa.RecordBatch, match: Match) -> int:  # noqa: ANN401  as above
    names = [
        f"@{place}" if _is_bytes(field) else sql.quote(field.name) for place, field in enumerate(rows.schema)
    ]
    # From lines, bytes come as \x and two digits each.
    sets = [
        f"{sql.quote(field.name)} = UNHEX(SUBSTRING(@{place}, 3))"
        for place, field in enumerate(rows.schema) if _is_bytes(field)
    ]  # fmt: skip
    file = os.memfd_create("onceonly")  # in memory, and of this process alone
    try:
        with open(file, "wb", closefd=False) as out:
            out.write(lines(rows, match))
        loaded = sql.write(
            db, f"LOAD DATA LOCAL INFILE '/proc/self/fd/{file}' INTO TABLE {into} CHARACTER SET utf8mb4 "
            rf"FIELDS TERMINATED BY '\t' ESCAPED BY '\\' LINES TERMINATED BY '\n' ({', '.join(names)})"
            + (f" SET {', '.join(sets)}" if sets else ""),
        )  # fmt: skip
    finally:
        os.close(file)
    _require_loaded(partial(sql.run, db), loaded, rows.num_rows)
    return loaded  # a trigger that passes a row over raises


def _require_loaded(run: Callable[[str], list[Any]], loaded: int, given: int) -> None:
    """See that the last statement of a connection has loaded all rows, as they were given; ``run`` asks there.

    Raises PyMySQL's error for the first warning, as if it had been one. Rows and warnings are counted, as a server may
    be told to keep no text of a warning, or to give none for a row that it leaves out.
    """
    from pymysql import err

    [(count,)] = run("SHOW COUNT(*) WARNINGS")
    if not count and loaded == given:
        return
    said = (
        f"of {n(given, 'row')} it has loaded {loaded:,}, with {n(count, 'warning')}, of which it does not say more "
        "(max_error_count, old_mode)"
    )
    [(_, code, text)] = run("SHOW WARNINGS LIMIT 1") or [("", _CHANGED, said)]
    raise err.error_map.get(code, err.DataError)(code, text)


def _is_bytes(field: pa.Field) -> bool:
    import pyarrow as pa

    kind = field.type
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    )
