"""The books: an index that says which names were applied, how far each query is, and which queries have come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from onceonly.errors import UnavailableError
from onceonly.families.keyed.books import given_up, who
from onceonly.families.keyed.sink import BOOKS_EPOCHS
from onceonly.families.staged.names import epoch_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from onceonly.families.keyed import Origin
    from onceonly.families.staged.area import Names
    from onceonly.sinks.opensearch.target import Target

_MAPPING = {
    "settings": {"number_of_shards": 1, "auto_expand_replicas": "0-1"},
    "mappings": {
        "dynamic": False,
        "properties": {"who": {"type": "keyword"}, "epoch": {"type": "long"}, "applied": {"type": "boolean"}},
    },
}
_EXISTS = 400
_TRIES = 20


class Books:
    """Those of one index that rows are written to. Driver; asked by id alone, so that nothing waits for a refresh."""

    def __init__(self, target: Target, *, index: str, of: str) -> None:
        self._target = target
        self._index = index
        self._of = of

    def open(self) -> None:
        """Make the index where it is not there. Idempotent."""
        status, _ = self._target.ask("HEAD", f"/{self._index}", fine=(404,))
        if status == 404:  # noqa: PLR2004  not found
            self._target.ask("PUT", f"/{self._index}", _MAPPING, fine=(_EXISTS,))

    def applied(self, names: Collection[str]) -> set[str]:
        """Return the names that are noted as applied."""
        return {name for name, is_applied in self._noted(names).items() if is_applied}

    def void(self, names: Names) -> set[str]:
        """Note as void those of the names that are not there; return all that are void."""
        for name, data in names.items():
            document = {"who": f"{self._of}/{data['folder']}", "epoch": epoch_of(name), "applied": False}
            self._target.create(self._index, name, document)
        return {name for name, is_applied in self._noted(names).items() if not is_applied}

    def note(self, origin: Origin, names: Collection[str], *, since: int) -> int | None:
        """See ``KeyedSink.note``."""
        before = self._newest(origin.query, origin.sink)
        newest = None if before is None else int(before["epoch"])
        if (-1 if newest is None else newest) < since:
            return -1 if newest is None else newest
        if self._void(names):
            raise given_up(names)
        whose, listed = self._who(origin.query, origin.sink), list(names)
        # A later epoch stays; names come last, as they alone say that rows were applied: until the first is there, the
        # newest epoch is that of before.
        document = {"epoch": origin.epoch, "index": origin.life, "first": listed[0], "before": before}
        self._target.put(self._index, f"newest:{whose}", document, origin.epoch + 1)
        for name in listed:
            self._target.create(self._index, name, {"who": whose, "epoch": origin.epoch, "applied": True})
        if self._void(names):
            raise given_up(names)
        return None

    def newest(self, query: str, sink: str) -> int | None:
        """See ``KeyedSink.newest``."""
        found = self._newest(query, sink)
        return None if found is None else int(found["epoch"])

    def life(self, query: str, sink: str) -> str:
        """See ``families.keyed.books.Books``."""
        return str((self._newest(query, sink) or {}).get("index", ""))

    def generation(self, query: str, sink: str, above: int) -> int:
        """See ``KeyedSink.generation``."""
        name = f"generation:{self._who(query, sink)}"
        for _ in range(_TRIES):
            found = self._target.documents(self._index, [name]).get(name)
            if found is not None and found["_source"]["number"] > above:
                return int(found["_source"]["number"])
            drawn = self._draw(above)
            document = {"number": drawn}
            if drawn and (
                self._target.create(self._index, name, document)
                if found is None
                else self._target.replace(self._index, found, document)
            ):
                return drawn
        raise UnavailableError(
            f"the number of {name} could not be drawn, as others draw all the time",
            next_step="start the query again",
        )

    def generations(self) -> int:
        """See ``KeyedSink.generations``."""
        found = self._target.documents(self._index, [self._counter]).get(self._counter)
        return 0 if found is None else int(found["_source"]["number"])

    def forget(self, query: str, sink: str) -> None:
        """Remove names of old epochs."""
        newest = self.newest(query, sink)
        if newest is None or newest <= BOOKS_EPOCHS:
            return
        own = {"term": {"who": self._who(query, sink)}}
        old = {"bool": {"filter": [own, {"range": {"epoch": {"lt": newest - BOOKS_EPOCHS}}}]}}
        self._target.remove(self._index, old)

    @property
    def _counter(self) -> str:
        return f"generation:{self._of}"

    def _draw(self, above: int) -> int:
        """Return a number that nobody else gets, 0 where somebody was quicker."""
        found = self._target.documents(self._index, [self._counter]).get(self._counter)
        if found is None:
            return above + 1 if self._target.create(self._index, self._counter, {"number": above + 1}) else 0
        number = max(int(found["_source"]["number"]), above) + 1
        return number if self._target.replace(self._index, found, {"number": number}) else 0

    def _newest(self, query: str, sink: str) -> Mapping[str, Any] | None:
        name = f"newest:{self._who(query, sink)}"
        found = self._target.documents(self._index, [name]).get(name)
        if found is None:
            return None
        told = found["_source"]
        # Who was killed before the first name has applied nothing. An older version did not note which is the first.
        if "first" in told and not self.applied([told["first"]]):
            return cast("Mapping[str, Any] | None", told["before"])
        return {"epoch": told["epoch"], "index": told.get("index", "")}

    def _void(self, names: Collection[str]) -> bool:
        return any(not is_applied for is_applied in self._noted(names).values())

    def _noted(self, names: Collection[str]) -> dict[str, bool]:
        found = self._target.documents(self._index, list(names)) if names else {}
        return {name: bool(each["_source"]["applied"]) for name, each in found.items()}

    def _who(self, query: str, sink: str) -> str:
        return f"{self._of}/{who(query, sink)}"
