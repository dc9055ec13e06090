"""The books: a row for each table that is written to, which says what was applied, and who has come. Driver.

The row is changed as a whole, and only where nobody has changed it meanwhile (a lightweight transaction), so that each
change is all or nothing.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, TypeVar

import msgspec

from onceonly.durable.sealed import decoder
from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.families.keyed.books import given_up, who
from onceonly.families.keyed.sink import BOOKS_EPOCHS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from onceonly.families.keyed import Origin
    from onceonly.sinks.cassandra.target import Target

R = TypeVar("R")
GENERATION_BITS = 19
_TRIES = 20
_PAUSE_S = 0.1
_DAY_S = 86_400


class Query(msgspec.Struct):
    """What is known of a query's sink; ``applied`` holds names by epochs, ``life`` the table's id at the newest one."""

    generation: int = 0
    newest: int = -1
    applied: dict[int, list[str]] = msgspec.field(default_factory=dict)
    life: str = ""


class State(msgspec.Struct):
    """What the books of one table say."""

    generation: int = 0
    queries: dict[str, Query] = msgspec.field(default_factory=dict)
    void: list[str] = msgspec.field(default_factory=list)


class Books:
    """Those of one table."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def applied(self, names: Collection[str]) -> set[str]:
        """Return the names that are noted as applied."""
        return _applied(self._read()[1]) & set(names)

    def void(self, names: Collection[str]) -> set[str]:
        """Note as void those of the names that are not there; return all that are void."""

        def change(state: State) -> set[str]:
            state.void += sorted(set(names) - _applied(state) - set(state.void))
            return set(state.void) & set(names)

        return self._change(change)

    def note(self, origin: Origin, names: Collection[str], *, since: int) -> int | None:
        """See ``KeyedSink.note``."""

        def change(state: State) -> int | None:
            query = state.queries.setdefault(who(origin.query, origin.sink), Query())
            if query.newest < since:
                return query.newest
            void = set(names) & set(state.void)
            if void:
                raise given_up(void)
            held = query.applied.setdefault(origin.epoch, [])
            held += sorted(set(names) - set(held))
            if origin.epoch >= query.newest:
                query.newest, query.life = origin.epoch, origin.life
            old = query.newest - BOOKS_EPOCHS
            query.applied = {epoch: held for epoch, held in query.applied.items() if epoch >= old}
            return None

        return self._change(change)

    def newest(self, query: str, sink: str) -> int | None:
        """See ``KeyedSink.newest``."""
        found = self._read()[1].queries.get(who(query, sink))
        return None if found is None or found.newest < 0 else found.newest

    def life(self, query: str, sink: str) -> str:
        """See ``families.keyed.books.Books``."""
        found = self._read()[1].queries.get(who(query, sink))
        return "" if found is None else found.life

    def generation(self, query: str, sink: str, above: int) -> int:
        """See ``KeyedSink.generation``."""

        def change(state: State) -> int:
            own = state.queries.setdefault(who(query, sink), Query())
            if own.generation <= above:
                # The day only helps where the books were lost: what was deleted then lies below, too. No row tells of
                # that, and ``FIRST`` does not help, as it is in all timestamps alike.
                state.generation = max(state.generation, above, int(time.time() // _DAY_S)) + 1
                own.generation = state.generation
            return own.generation

        found = self._change(change)
        if found >> GENERATION_BITS:
            raise ConfigurationError(
                f"there were {found} queries on this table, and versions of rows count {(1 << GENERATION_BITS) - 1}",
                next_step="find out why there were so many; a new table begins anew",
            )
        return found

    def generations(self) -> int:
        """See ``KeyedSink.generations``."""
        return self._read()[1].generation

    def _read(self) -> tuple[int, State]:
        revision, text = self._target.book()
        return revision, decoder(State).decode(text) if text else State()

    def _change(self, change: Callable[[State], R]) -> R:
        """Change the books in one step; where others are quicker, look again. Raises ``UnavailableError``."""
        for _ in range(_TRIES):
            revision, state = self._read()
            before = msgspec.json.encode(state)
            answer = change(state)
            after = msgspec.json.encode(state)
            if after == before or self._target.put_book(revision, after.decode()):
                return answer
            time.sleep(random.random() * _PAUSE_S)  # noqa: S311  so that two do not meet again
        raise UnavailableError(
            "the books could not be changed, as others change them all the time",
            next_step="start the query again",
        )


def _applied(state: State) -> set[str]:
    return {name for query in state.queries.values() for names in query.applied.values() for name in names}
