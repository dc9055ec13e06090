"""Whether a database still holds an epoch that was committed to it, and who has written there before. Driver.

What is proven: the books go back with a backup that is restored, and a table that was made anew has another id, where
its server gives ids. A table that lacks its rows may have been emptied on purpose, so that is told, and stops nobody.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from onceonly.families import behind

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from onceonly.model import Handle
    from onceonly.ports import QueryContext
    from onceonly.sinks.sql.books import Books
    from onceonly.sinks.sql.options import SqlOptions
    from onceonly.sinks.sql.target import Target
    from onceonly.sinks.sql.types import Table

TABLE_ID = "table"
"""What in a handle's data says by which table its rows were looked at."""
_AGAIN = "start on a new checkpoint from the offsets from which rows are to be written again"

log = logging.getLogger("onceonly")


def look_back(
    target: Target, books: Books, context: QueryContext, epoch: int, handles: Sequence[Handle]
) -> None:
    """Compare books and table with the newest epoch that is complete by the log.

    Raises ``TargetBehindError`` unless the user has said to go on; ``UnavailableError``.
    """
    options, who = target.options, f"Query {context.query}, sink {context.sink}"
    newest = target.newest(books)
    if newest is None or newest < epoch:
        _refuse_behind(newest, epoch, options, who)
        return
    table, name = target.found(), ".".join(options.table)
    if table is None:
        behind.refuse(
            f"{who}: there is no table {name} in {options.url} any more. By the log chk-{epoch} is complete: what this "
            "query has written to the table is gone with it",
            f"bring it back, or {_AGAIN}",
            goes_on=options.goes_on_behind,
        )
        return
    ids = {str(handle.data.get(TABLE_ID, "")) for handle in handles}
    refuse_another(table, ids, options, (context.query, context.sink), f"chk-{epoch}")
    rows = sum(int(handle.data.get("rows", 0)) for handle in handles)
    # Of a feed, deletions may have been the last word; and whoever sees some rows only, cannot say that there are none.
    if rows and table.streams and not options.op and target.is_empty():
        log.warning(
            "%s: the table %s in %s is empty, and chk-%d has written %d rows to it: somebody has removed them, or made "
            "the table anew. The query goes on; to have them written again, %s.",
            who,
            name,
            options.url,
            epoch,
            rows,
            _AGAIN,
        )


def refuse_another(
    table: Table, ids: Collection[str], options: SqlOptions, owner: tuple[str, str], since: str
) -> None:
    """See that a table is still the one with one of these ids, as it was at an epoch; nothing is told without ids.

    Raises ``TargetBehindError`` unless the user has said to go on.
    """
    if not table.id or "" in ids or table.id in ids:
        return
    query, sink = owner
    behind.refuse(
        f"Query {query}, sink {sink}: {table.name} in {options.url} is another table than it was at {since}: it was "
        "dropped and made anew, or another one was given its name. What this query had written by then went with the "
        "former one, unless somebody has copied it",
        f"bring the former one back, or {_AGAIN}",
        goes_on=options.goes_on_behind,
    )


def tell_of_others(others: Sequence[str], options: SqlOptions, context: QueryContext) -> None:
    """Warn of queries that have added rows to a table before a query first does: it may be one of them, begun anew."""
    if not others or options.key:
        return
    log.warning(
        "Query %s, sink %s: this checkpoint has written nothing to %s in %s yet, and %s has: if that was this query, "
        "with a checkpoint that is deleted or another one by now, rows that it reads again will be there twice. "
        "Begin at the offsets at which it ended, or set key to have rows replaced.",
        context.query,
        context.sink,
        ".".join(options.table),
        options.url,
        f"query {others[0]}" if len(others) == 1 else f"{len(others)} others, as query {others[0]},",
    )


def tell_of_losses(target: Target, books: Books, context: QueryContext) -> None:
    """Warn where a crash of the server may take what was committed, by a setting of its own."""
    with target.transaction(keep=False) as db:
        lossy = books.dialect.lossy(db)
    if lossy:
        log.warning(
            "Query %s, sink %s: %s has %s: a crash or a power cut of the server may take epochs that were committed. "
            "The next start stops then and names them.",
            context.query,
            context.sink,
            target.options.url,
            lossy,
        )


def _refuse_behind(newest: int | None, epoch: int, options: SqlOptions, who: str) -> None:
    begin = 0 if newest is None else newest + 1
    missing = f"chk-{epoch}" if begin == epoch else f"chk-{begin} to chk-{epoch}"
    books = ".".join(options.books)
    has = "nothing" if newest is None else f"chk-{newest}"
    told, first = "", ""
    if newest is None:
        told = ", or the option books named another table then"
        first = "if books was changed, name the former table again; "
    behind.refuse(
        f"{who}: the target {options.url} went back. By the log "
        f"chk-{epoch} is complete, and {books} has {has} of this query: {missing} are not there. A backup was "
        f"restored, or {books} was emptied or dropped{told}",
        f"{first}to have them written again, start on a new checkpoint from the offsets at which chk-{begin} began "
        f"({behind.SHOW}); without a key, what is there of these epochs would be "
        "there twice",
        goes_on=options.goes_on_behind,
    )
