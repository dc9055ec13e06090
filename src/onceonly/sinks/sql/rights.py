"""Which rights an epoch needs on table and books, and which of them the user of a connection lacks. Only looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onceonly.sinks.sql.dialects.dialect import Dialect

_BOOKS = ("SELECT", "INSERT", "DELETE")


def lacking(db: Any, sql: Dialect) -> tuple[list[str], list[str]]:  # noqa: ANN401
    """Return in words what the user lacks, and the statements that grant it; of a table that is there. Driver."""
    options = sql.options
    said: list[str] = []
    grants: list[str] = []
    for name in (options.table, options.books):
        table = sql.describe(db, name)
        if table is None:
            continue  # who cannot see it cannot be told from who has lost it, and another question tells of that
        columns = [each.name for each in table.columns]
        wanted: tuple[str, ...] = _BOOKS
        if name == options.table:
            # Where each column is one of the key, no row is ever changed.
            changes = [each for each in columns if each not in options.key]
            wanted = ("INSERT",)
            wanted += ("SELECT", *(["UPDATE"] if changes else [])) if options.key else ()
            wanted += ("DELETE",) if options.op else ()
        missing = [each for each in wanted if sql.lacks(db, name, each, columns)]
        if missing:
            said.append(f"{', '.join(missing)} on {'.'.join(name)}")
            grants.append(sql.grant(db, name, ", ".join(missing)))
    if options.key and (grant := sql.lacks_temporary(db)):
        said.append("temporary tables in the database")
        grants.append(grant)
    return said, grants
