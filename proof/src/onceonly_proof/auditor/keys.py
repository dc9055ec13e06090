"""Reading the keys of a Redis as any program would, by the client of Redis's own makers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly_proof.auditor.world import Seen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onceonly_proof.auditor.world import Orphan

_BATCH = 500


class RedisReader:
    """Reads the hashes whose keys begin with ``prefix``, by their fields ``key`` and ``value``; fulfils ``Reader``.

    One connection a look; of a cluster, one to each of its nodes, the ``others`` too. What the client raises is not
    changed.
    """

    def __init__(self, sink: str, port: int, prefix: str, *, others: Sequence[int] = ()) -> None:
        self._sink = sink
        self._ports = (port, *others)
        self._prefix = prefix

    def rows(self) -> Iterator[Seen]:
        """Yield the rows of all keys that are there from the beginning of the look to its end, each once."""
        for port in self._ports:
            yield from self._rows_of(port)

    def _rows_of(self, port: int) -> Iterator[Seen]:
        import redis

        with redis.Redis(port=port, socket_timeout=30) as server:
            # A scan may give a key twice.
            keys = sorted(set(server.scan_iter(match=f"{self._prefix}*", count=_BATCH, _type="hash")))
            for first in range(0, len(keys), _BATCH):
                asked = server.pipeline(transaction=False)
                for key in keys[first : first + _BATCH]:
                    asked.hmget(key, ["key", "value"])
                for key, value in asked.execute():
                    if value is not None:  # else it is no row: the sink's own books
                        yield Seen(self._sink, key, value)

    def orphans(self) -> list[Orphan]:
        """Nothing is left open in a Redis."""
        return []

    def close(self) -> None:
        """Nothing is kept open between calls."""
