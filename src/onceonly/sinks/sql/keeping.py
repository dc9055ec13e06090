"""Whether a table has what it was given: its triggers and rules may pass a row over, and no server calls that an error.

Driver, in the transaction that writes an epoch, and in the one that tries it before the decision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError, RecordRefusedError
from onceonly.sinks.sql.refusals import refused

if TYPE_CHECKING:
    import pyarrow as pa

    from onceonly.sinks.sql.books import Books
    from onceonly.sinks.sql.dialects.dialect import Dialect
    from onceonly.sinks.sql.options import SqlOptions
    from onceonly.sinks.sql.types import Match

_TRIED = "tried out"


def require_written(written: int, given: int, found: Match) -> None:
    """See that as many rows were added as there were. Raises ``RecordRefusedError``."""
    if written != given:
        raise _passed_over(found, f"it has taken {written} of {given} rows")


def require_kept(db: Any, sql: Dialect, found: Match) -> None:  # noqa: ANN401  each client has its own
    """See that each key that was written is there once, and none that was deleted. Raises ``RecordRefusedError``."""
    for statement, what in (
        (sql.misplaced(found), "was written, and is not there once"),
        *([(sql.left(found), "was deleted, and is there")] if found.op else []),
    ):
        for key in sql.run(db, statement):
            raise _passed_over(found, f"{', '.join(found.keys)} {', '.join(map(repr, key))} {what}")


def require_taken(batch: pa.RecordBatch, found: Match) -> None:
    """See that the table takes each value as it is. Raises ``RecordRefusedError`` for the first that it does not."""
    for each in refused(batch, found):
        raise RecordRefusedError(
            f"{found.table.name}, which was changed meanwhile, does not take a row: {each.why}",
            next_step=each.next_step,
        )


def require_noted(db: Any, books: Books, epoch: int) -> None:  # noqa: ANN401  as above
    """See that what is noted in the books stays there; it is undone by whoever asks. Raises ``ConfigurationError``."""
    books.note(db, {_TRIED: epoch})
    if _TRIED not in books.known(db, {_TRIED: epoch}):
        name = ".".join(books.dialect.options.books)
        raise ConfigurationError(
            f"{name}, which is to note what was committed, takes a row without an error and has not got it: a trigger, "
            "a rule or a policy of its passes rows over. Epochs would be written twice",
            next_step="take that away, or name another table by the option books",
        )


def refuse_older(newest: int | None, epoch: int, books: Books, options: SqlOptions) -> None:
    """See that the books have no newer epoch than one that is to be written. Raises ``ConfigurationError``."""
    if newest is not None and newest > epoch:
        raise ConfigurationError(
            f"{options.url} has chk-{newest} of query {books.query} already, and this is chk-{epoch}: an older "
            "checkpoint was restored",
            next_step="bring the newer checkpoint back, or start on a new one, from the offsets that are right",
        )


def _passed_over(found: Match, what: str) -> RecordRefusedError:
    has = f"; the table has {', '.join(found.table.passing)}" if found.table.passing else ""
    return RecordRefusedError(
        f"{found.table.name}: {what}, and its server calls that no error{has}",
        next_step="see to it, or leave such rows out of the query; where that is meant, as for rows that go to other "
        "tables, set the option triggers to trusted",
    )
