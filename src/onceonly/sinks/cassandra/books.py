"""The books: a row for each query that writes to a table, which says what was applied; one of the table's own. Driver.

A row is changed as a whole, and only where nobody has changed it meanwhile (a lightweight transaction), so that each
change is all or nothing.

The table's row counts who has come. An older version kept there what it noted of all queries, and those of batches stay
for good, until no write had room for it. What stands there of a query counts as if it stood in its own row.
"""

from __future__ import annotations

import random
import time
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from onceonly.durable.sealed import decoder
from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.families.keyed.books import given_up, who
from onceonly.families.keyed.sink import BOOKS_EPOCHS
from onceonly.families.staged.names import by_query, epoch_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from onceonly.families.keyed import Origin
    from onceonly.families.staged.area import Names
    from onceonly.sinks.cassandra.target import Target

R = TypeVar("R")
GENERATION_BITS = 19
_TRIES = 20
_PAUSE_S = 0.1
_DAY_S = 86_400
_TABLE = ""
"""Whose row the table's is."""


class Query(msgspec.Struct):
    """What is known of a query's sink; ``applied`` holds names by epochs, ``life`` the table's id at the newest one."""

    generation: int = 0
    newest: int = -1
    applied: dict[int, list[str]] = msgspec.field(default_factory=dict)
    life: str = ""


class State(msgspec.Struct):
    """What one row says: the table's ``generation``, that of a query the rest."""

    generation: int = 0
    queries: dict[str, Query] = msgspec.field(default_factory=dict)
    void: list[str] = msgspec.field(default_factory=list)

    def of(self, query: str) -> State:
        """Return what the table's row says of a query. Whose something is that is void does not stand there."""
        own = {name: each for name, each in self.queries.items() if name.startswith(who(query, ""))}
        return State(queries=own, void=self.void)

    def add(self, older: State) -> None:
        """Take over what the table's row says."""
        for name, then in older.queries.items():
            own = self.queries.setdefault(name, Query())
            own.generation = max(own.generation, then.generation)
            if then.newest > own.newest:
                own.newest, own.life = then.newest, then.life
            for epoch, names in then.applied.items():
                own.applied[epoch] = sorted({*own.applied.get(epoch, ()), *names})
        self.void += sorted(set(older.void) - set(self.void))


class Books:
    """Those of one table."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._older: dict[str, State] = {}

    def applied(self, names: Names) -> set[str]:
        """Return the names that are noted as applied."""
        found = (_applied(self._read(query)[1]) & mine for query, mine in by_query(names).items())
        return set().union(*found)

    def void(self, names: Names) -> set[str]:
        """Note as void those of the names that are not there; return all that are void."""

        def change(state: State, mine: set[str]) -> set[str]:
            state.void += sorted(mine - _applied(state) - set(state.void))
            return set(state.void) & mine

        found = (self._change(query, partial(change, mine=mine)) for query, mine in by_query(names).items())
        return set().union(*found)

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
            state.void = [name for name in state.void if (epoch_of(name) or 0) >= old]
            return None

        return self._change(origin.query, change)

    def newest(self, query: str, sink: str) -> int | None:
        """See ``KeyedSink.newest``."""
        found = self._read(query)[1].queries.get(who(query, sink))
        return None if found is None or found.newest < 0 else found.newest

    def life(self, query: str, sink: str) -> str:
        """See ``families.keyed.books.Books``."""
        found = self._read(query)[1].queries.get(who(query, sink))
        return "" if found is None else found.life

    def generation(self, query: str, sink: str, above: int) -> int:
        """See ``KeyedSink.generation``."""

        def draw(state: State) -> int:
            # The day only helps where the books were lost: what was deleted then lies below, too. No row tells of
            # that, and ``FIRST`` does not help, as it is in all timestamps alike.
            state.generation = max(state.generation, above, int(time.time() // _DAY_S)) + 1
            return state.generation

        def take(state: State, drawn: int) -> int:
            own = state.queries.setdefault(who(query, sink), Query())
            if own.generation <= above:
                own.generation = drawn
            return own.generation

        held = self._read(query)[1].queries.get(who(query, sink), Query()).generation
        # Who is quicker with the query's row has it; what the other one has drawn then is nobody's.
        found = held if held > above else self._change(query, partial(take, drawn=self._change(_TABLE, draw)))
        if found >> GENERATION_BITS:
            raise ConfigurationError(
                f"there were {found} queries on this table, and versions of rows count {(1 << GENERATION_BITS) - 1}",
                next_step="find out why there were so many; a new table begins anew",
            )
        return found

    def generations(self) -> int:
        """See ``KeyedSink.generations``."""
        return self._read(_TABLE)[1].generation

    def _read(self, query: str) -> tuple[int, State]:
        """Return the number of a query's row, or the table's, 0 where it is not there yet, and what it says."""
        revision, text = self._target.book(query)
        state = decoder(State).decode(text) if text else State()
        if query != _TABLE:
            if query not in self._older:  # only an older version changes it
                self._older[query] = self._read(_TABLE)[1].of(query)
            state.add(self._older[query])
        return revision, state

    def _change(self, query: str, change: Callable[[State], R]) -> R:
        """Change a row in one step; where others are quicker, look again. Raises ``UnavailableError``."""
        for _ in range(_TRIES):
            revision, state = self._read(query)
            before = msgspec.json.encode(state)
            answer = change(state)
            after = msgspec.json.encode(state)
            if after == before or self._target.put_book(query, revision, after.decode()):
                return answer
            time.sleep(random.random() * _PAUSE_S)  # noqa: S311  so that two do not meet again
        raise UnavailableError(
            "the books could not be changed, as others change them all the time",
            next_step="start the query again",
        )


def _applied(state: State) -> set[str]:
    return {name for query in state.queries.values() for names in query.applied.values() for name in names}
