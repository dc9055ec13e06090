"""What keyed sinks note beside their rows: which names were applied, how far each query is, and which have come."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Protocol

from onceonly.errors import TargetBehindError, UnavailableError
from onceonly.families import behind
from onceonly.families.keyed.sink import WRITE_AGAIN, KeyedSink

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from onceonly.families.keyed.versions import Origin
    from onceonly.families.staged import StagedRows
    from onceonly.families.staged.area import Names
    from onceonly.model import Handle
    from onceonly.ports import QueryContext


class Books(Protocol):
    """The books of one target. Driver. Each method is as that of ``KeyedSink``."""

    def applied(self, names: Names) -> Collection[str]:
        """Return the names that are noted as applied."""
        ...

    def note(self, origin: Origin, names: Collection[str], *, since: int) -> int | None: ...

    def newest(self, query: str, sink: str) -> int | None: ...

    def life(self, query: str, sink: str) -> str:
        """Return the ``life`` of the newest epoch's origin; empty where it is not noted."""
        ...

    def generation(self, query: str, sink: str, above: int) -> int: ...

    def generations(self) -> int: ...


class BookedSink(KeyedSink):
    """A keyed sink whose books are a thing of their own, ``books``, beside the rows.

    So they stay where the rows' place, a table or an index, is removed and made anew; they tell of it by its id.
    """

    books: Books
    looked_at: str = ""
    """The id that the rows' place had at the check. Driver."""

    @property
    @abstractmethod
    def shown(self) -> str:
        """What people call the rows' place."""

    @abstractmethod
    def id_now(self) -> str:
        """Return the id of the rows' place, which one that is made anew has not; empty where it is not there.

        Anywhere; only looks. Raises a typed error.
        """

    def life(self) -> str:
        found = self.id_now()
        if self.looked_at and found not in {"", self.looked_at}:
            raise TargetBehindError(
                self._another("since the query was started"),
                next_step="stop the query, see to it, and start the query again: it says what is missing",
            )
        return found

    def seal(self, staged: Mapping[str, StagedRows], origin: Origin) -> None:  # noqa: ARG002  all of them went there
        if not self.looked_at:  # an operator's process
            self._require_same(origin.query, origin.sink)
        if self.life() not in {"", origin.life}:
            raise TargetBehindError(
                self._another(f"while chk-{origin.epoch} was applied"),
                next_step="see to it, and do this again: rows are written to the one that is there then",
            )

    def look_back(self, context: QueryContext, epoch: int, handles: Sequence[Handle]) -> None:
        super().look_back(context, epoch, handles)
        if handles:
            self._require_same(context.query, context.sink)

    def known(self, names: Names) -> Collection[str]:
        return self.books.applied(names)

    def note(self, origin: Origin, names: Collection[str], *, since: int) -> int | None:
        return self.books.note(origin, names, since=since)

    def newest(self, query: str, sink: str) -> int | None:
        return self.books.newest(query, sink)

    def generation(self, query: str, sink: str, *, above: int = 0) -> int:
        return self.books.generation(query, sink, above)

    def generations(self) -> int:
        return self.books.generations()

    def _require_same(self, query: str, sink: str) -> None:
        """See that the rows' place is that of the newest epoch in the books. Raises ``TargetBehindError``."""
        then = self.books.life(query, sink)
        if then and self.id_now() not in {"", then}:
            behind.refuse(
                self._another(f"since chk-{self.newest(query, sink)}"),
                WRITE_AGAIN,
                goes_on=self.options[behind.OPTION] == behind.GO_ON,
            )

    def _another(self, since: str) -> str:
        return (
            f"{self.shown} has become another one {since}: it was removed and made anew, or restored. What the query "
            "had written by then went with the former one, unless somebody has brought it back"
        )


def who(query: str, sink: str) -> str:
    """Name a query's sink in the books."""
    return f"{query}/{sink}"


def given_up(names: Collection[str]) -> UnavailableError:
    """Return what it means that a name is void when it is to be noted as applied."""
    return UnavailableError(
        f"{', '.join(sorted(names))} was given up while it was applied",
        next_step="nothing: it is written again",
    )
