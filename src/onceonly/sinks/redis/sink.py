"""The Redis sink: a hash for each row, with its version in a field of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from onceonly.errors import RecordRefusedError, UnavailableError
from onceonly.families.keyed import KeyedSink, Newer
from onceonly.families.keyed.books import given_up, who
from onceonly.families.keyed.sink import BOOKS_EPOCHS
from onceonly.ports import Refused
from onceonly.sinks.redis import scripts, types
from onceonly.sinks.redis.columns import Column
from onceonly.sinks.redis.options import DECLARED, OF_SPARK_REDIS, RedisOptions
from onceonly.sinks.redis.target import Target

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from onceonly.families.keyed import KeyedRows, Origin
    from onceonly.options import Option
    from onceonly.ports import QueryContext

_VERSION_DIGITS = 19


class RedisSink(KeyedSink):
    """Rows into Redis or Valkey, exactly once by key. One server, not a cluster."""

    name: ClassVar[str] = "redis"
    declared: ClassVar[tuple[Option, ...]] = DECLARED
    instead: ClassVar[Mapping[str, str]] = OF_SPARK_REDIS

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._redis = RedisOptions.of(self.options)
        self._target = Target(self._redis)

    def identity(self) -> Mapping[str, str | int]:
        given = self._redis
        return {"server": given.where, "database": given.database, "prefix": given.prefix}

    def look(self, context: QueryContext) -> Mapping[str, str | int]:
        types.check(context.columns)
        self._target.look()
        return {}

    def unfit(self, rows: KeyedRows) -> Iterator[Refused]:
        for row, key in enumerate(rows.keys):
            if self._named(key) == self._redis.books:
                yield Refused(
                    row=row,
                    code="KEY_TAKEN",
                    why=f"{self._redis.books} is where the sink notes what it has committed",
                    next_step="filter such rows out, or set the option prefix",
                )

    def put(self, rows: KeyedRows, version: int) -> tuple[Sequence[Refused], Newer | None]:
        held = zip(rows.rows.schema.names, rows.rows.columns, strict=True)
        columns = [Column.of(name, types.texts(column)) for name, column in held]
        named = [self._named(key) for key in rows.keys]
        found = self._target.put(named, bytes(rows.deleted), columns, _digits(version))
        return (), None if found is None else Newer(found[0], int(found[1]))

    def examine(self, rows: KeyedRows, version: int) -> Newer | None:
        found = self._target.examine([self._named(key) for key in rows.keys], _digits(version))
        if found is None:
            return None
        key, held = found
        if held.isdigit():
            return Newer(key, int(held))
        raise RecordRefusedError(
            f"the key {key} on {self._redis.where} is a {held} of somebody else, and no row",
            next_step="remove or rename it, or set the option prefix",
        )

    def life(self) -> str:
        return self._target.life()

    def lost(self, keys: Sequence[str], version: int) -> str | None:
        return self._target.lost([self._named(key) for key in keys], _digits(version))

    def versions(self) -> Mapping[int, int]:
        counts = self._target.versions()
        return {int(text): count for text, count in counts.items() if text.isdigit()}

    # --- books ----------------------------------------------------------------------------------------------

    def known(self, names: Collection[str]) -> Collection[str]:
        asked = list(names)
        held = self._target.noted(asked) if asked else []
        return [name for name, each in zip(asked, held, strict=True) if each not in {None, scripts.VOID}]

    def void(self, names: Collection[str]) -> Collection[str]:
        return self._target.void(list(names))

    def note(self, origin: Origin, names: Collection[str], *, since: int) -> int | None:
        whose = who(origin.query, origin.sink)
        word, *more = self._target.note(
            whose, origin.epoch, list(names), since=since, keep=BOOKS_EPOCHS, life=origin.life
        )
        if word == scripts.ANEW.encode():
            raise UnavailableError(
                f"the server {self._redis.where} was started anew, or another one has taken over, while rows of "
                f"chk-{origin.epoch} were written: it may have lost some",
                next_step="nothing: they are written again",
            )
        if word == b"behind":
            return int(more[0])
        if word == scripts.VOID.encode():
            raise given_up([more[0].decode()])
        return None

    def newest(self, query: str, sink: str) -> int | None:
        [held] = self._target.noted([f"newest:{who(query, sink)}"])
        return None if held is None else int(held)

    def generation(self, query: str, sink: str, *, above: int = 0) -> int:
        return self._target.generation(who(query, sink), above)

    def generations(self) -> int:
        [held] = self._target.noted(["generation"])
        return int(held or 0)

    def close(self) -> None:
        self._target.close()

    def _named(self, key: str) -> str:
        return self._redis.prefix + key


def _digits(version: int) -> str:
    """Return a version as scripts compare it: as text."""
    return str(version).zfill(_VERSION_DIGITS)
