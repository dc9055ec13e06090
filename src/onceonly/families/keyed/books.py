"""What keyed sinks note beside their rows: which names were applied, how far each query is, and which have come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from onceonly.errors import UnavailableError
from onceonly.families.keyed.sink import KeyedSink

if TYPE_CHECKING:
    from collections.abc import Collection

    from onceonly.families.keyed.versions import Origin


class Books(Protocol):
    """The books of one target. Driver. Each method is as that of ``KeyedSink``."""

    def applied(self, names: Collection[str]) -> Collection[str]:
        """Return the names that are noted as applied."""
        ...

    def note(self, origin: Origin, names: Collection[str], *, since: int) -> int | None: ...

    def newest(self, query: str, sink: str) -> int | None: ...

    def generation(self, query: str, sink: str, above: int) -> int: ...

    def generations(self) -> int: ...


class BookedSink(KeyedSink):
    """A keyed sink whose books are a thing of their own, ``books``, beside the rows."""

    books: Books

    def known(self, names: Collection[str]) -> Collection[str]:
        return self.books.applied(names)

    def note(self, origin: Origin, names: Collection[str], *, since: int) -> int | None:
        return self.books.note(origin, names, since=since)

    def newest(self, query: str, sink: str) -> int | None:
        return self.books.newest(query, sink)

    def generation(self, query: str, sink: str, *, above: int = 0) -> int:
        return self.books.generation(query, sink, above)

    def generations(self) -> int:
        return self.books.generations()


def who(query: str, sink: str) -> str:
    """Name a query's sink in the books."""
    return f"{query}/{sink}"


def given_up(names: Collection[str]) -> UnavailableError:
    """Return what it means that a name is void when it is to be noted as applied."""
    return UnavailableError(
        f"{', '.join(sorted(names))} was given up while it was applied",
        next_step="nothing: it is written again",
    )
