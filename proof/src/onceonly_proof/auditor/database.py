"""Reading a table as any program would, through the Python database interface (DB-API 2.0, PEP 249)."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from onceonly.errors import ConfigurationError
from onceonly_proof.auditor.world import Orphan, Seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_COLUMNS = ("key", "value", "place", "order", "transaction")


class DatabaseReader:
    """Reads the rows of a query; fulfils ``Reader``. Works with sqlite3, psycopg and what else follows PEP 249.

    ``connect`` gives a new connection, which is closed after each reading. ``query`` gives columns by the names of
    :class:`Seen`: ``value``, and if there are any ``key``, ``place``, ``order``, ``transaction``. ``prepared`` is a
    query for the ids of our prepared transactions that are left, its first column is shown. What the driver raises
    is not changed.
    """

    def __init__(self, sink: str, connect: Callable[[], Any], query: str, *, prepared: str = "") -> None:
        self._sink = sink
        self._connect = connect
        self._query = query
        self._prepared = prepared

    def rows(self) -> Iterator[Seen]:
        """Yield the rows that a new connection sees. Raises ``ConfigurationError`` for a query without ``value``."""
        names, rows = self._fetch(self._query)
        at = {name: names.index(name) for name in _COLUMNS if name in names}
        if "value" not in at:
            raise ConfigurationError(
                f"the query gives the columns {names}, and none of them is named value",
                next_step='name them: SELECT k AS "key", v AS "value" FROM …',
            )
        for row in rows:
            told = {name: row[place] for name, place in at.items()}
            yield Seen(
                self._sink,
                _bytes(told.get("key")),
                _bytes(told["value"]),
                str(told.get("place", "")),
                int(told.get("order", -1)),
                str(told.get("transaction") or ""),
            )

    def orphans(self) -> list[Orphan]:
        """Return the prepared transactions that ``prepared`` finds."""
        if not self._prepared:
            return []
        return [
            Orphan(self._sink, f"prepared transaction {row[0]}") for row in self._fetch(self._prepared)[1]
        ]

    def close(self) -> None:
        """Nothing is kept open between calls."""

    def _fetch(self, query: str) -> tuple[list[str], list[Any]]:
        with closing(self._connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(query)
            rows = cursor.fetchall()
            return [column[0].lower() for column in cursor.description or ()], rows


def _bytes(value: object) -> bytes | None:
    """Return a column as bytes; numbers as people write them."""
    if value is None:
        return None
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return str(value).encode()
