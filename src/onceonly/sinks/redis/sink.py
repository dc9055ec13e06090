"""The Redis sink: a hash for each row, with its version in a field of its own. On a cluster, see ``witnesses``."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from onceonly.errors import RecordRefusedError, UnavailableError
from onceonly.families import behind
from onceonly.families.keyed import KeyedSink, Newer
from onceonly.families.keyed.books import given_up, who
from onceonly.families.keyed.reading_back import by_version
from onceonly.families.keyed.rows import KEY
from onceonly.families.keyed.sink import BOOKS_EPOCHS, WRITE_AGAIN
from onceonly.families.keyed.versions import try_of
from onceonly.families.staged.names import by_query
from onceonly.ports import Refused
from onceonly.sinks.redis import scripts, types
from onceonly.sinks.redis.columns import Column
from onceonly.sinks.redis.options import DECLARED, OF_SPARK_REDIS, RedisOptions
from onceonly.sinks.redis.reading_back import sum_of
from onceonly.sinks.redis.slots import by_slot, slot_of
from onceonly.sinks.redis.target import VALUE_BYTES_MAX, Target, digits
from onceonly.sinks.redis.witnesses import Witnesses
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from onceonly.families.keyed import KeyedRows, Origin
    from onceonly.families.keyed.attempt import KeyedAttempt
    from onceonly.families.keyed.reading_back import Sum
    from onceonly.families.staged import StagedRows
    from onceonly.families.staged.area import Names
    from onceonly.model import Handle
    from onceonly.options import Option
    from onceonly.ports import QueryContext, WriteContext
    from onceonly.ports.standing import Held
    from onceonly.sinks.redis.witnesses import Lacking

_OWN = "onceonly:"
"""What keys of the sink's own begin with, behind the prefix."""
_CLUSTER = "cluster"
"""The fact that the target is one."""
_VALUE_MAX = "value_max"
"""The fact how many bytes the server takes as one value."""
_GROWTH = 8
"""A value's text is not so many times as long as Arrow has it: of a byte, JSON makes six at most."""


class RedisSink(KeyedSink):
    """Rows into Redis or Valkey, exactly once by key; one server, or a cluster."""

    name: ClassVar[str] = "redis"
    declared: ClassVar[tuple[Option, ...]] = DECLARED
    instead: ClassVar[Mapping[str, str]] = OF_SPARK_REDIS

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._redis = RedisOptions.of(self.options)
        self._target = Target(self._redis)
        self._value_max = VALUE_BYTES_MAX
        # Of a cluster: its life when all that it must have was seen, and what the books are to have of witnesses.
        self._life = ""
        self._sealed = ("", "")
        self._sealing = threading.Lock()

    def identity(self) -> Mapping[str, str | int]:
        given = self._redis
        servers = ",".join(sorted(given.where.split(",")))
        return {"server": servers, "database": given.database, "prefix": given.prefix}

    def look(self, context: QueryContext) -> Mapping[str, str | int]:
        types.check(context.columns)
        value_max = self._target.look()
        return {_VALUE_MAX: value_max, **({_CLUSTER: 1} if self._target.is_cluster else {})}

    def refresh(self, facts: Mapping[str, str | int]) -> Mapping[str, str | int]:
        self._target.look_again()
        return facts

    def require_rights(self, context: QueryContext, *, user: int | None = None) -> str:  # noqa: ARG002  the server's users
        """Ask the server for what it would refuse."""
        self._target.require_rights()
        return ""

    def begin_transaction(self, context: WriteContext) -> KeyedAttempt:
        self._target.is_cluster = bool(context.facts.get(_CLUSTER))
        self._value_max = int(context.facts.get(_VALUE_MAX, VALUE_BYTES_MAX))
        return super().begin_transaction(context)

    def unfit(self, rows: KeyedRows) -> Iterator[Refused]:
        for row, key in enumerate(rows.keys):
            named = self._named(key) if key.startswith(_OWN) else ""
            is_witness = self._target.is_cluster and named.startswith(self._redis.witnesses)
            if is_witness or f"{named}:".startswith(self._redis.books_of("")):
                yield Refused(
                    row=row,
                    code="KEY_TAKEN",
                    why=f"{named} is where the sink notes what it has committed",
                    next_step="filter such rows out, or set the option prefix",
                )
        yield from self._too_large(rows)

    def _too_large(self, rows: KeyedRows) -> Iterator[Refused]:
        """Yield the rows at whose values the server would close the connection."""
        import pyarrow.compute as pc

        if rows.rows.nbytes * _GROWTH <= self._value_max:
            return
        for name, column in zip(rows.rows.schema.names, rows.rows.columns, strict=True):
            for row, size in enumerate(pc.binary_length(types.texts(column)).to_pylist()):
                if size is not None and size > self._value_max:
                    why = f"its {name} has {size} bytes, and the server takes {self._value_max} (proto-max-bulk-len)"
                    yield Refused(row=row, code="TOO_LARGE", why=why)

    def put(self, rows: KeyedRows, version: int) -> tuple[Sequence[Refused], Newer | None]:
        bounds: Sequence[tuple[int, int]] = ()
        if self._target.is_cluster:
            order, bounds = by_slot([self._named(key) for key in rows.keys])
            rows = rows.taken(order)
        held = zip(rows.rows.schema.names, rows.rows.columns, strict=True)
        columns = [Column.of(name, types.texts(column)) for name, column in held]
        named = [self._named(key) for key in rows.keys]
        found = self._target.put(named, bytes(rows.deleted), columns, digits(version), bounds)
        return (), None if found is None else Newer(found[0], int(found[1]))

    def examine(self, rows: KeyedRows, version: int) -> Newer | None:
        found = self._target.examine([self._named(key) for key in rows.keys], digits(version))
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
        return self._target.lost([self._named(key) for key in keys], digits(version))

    def versions(self) -> Mapping[int, int]:
        counts = self._target.versions()
        return {int(text): count for text, count in counts.items() if text.isdigit()}

    def read_by_version(self, columns: Sequence[tuple[str, str]]) -> Mapping[int, Held]:
        sums: dict[int, Sum] = {}
        for some in self._target.read([name for name, _ in columns]):
            ours = [(int(text), values) for text, values in some if text.isdigit()]
            by_version(ours, sums, partial(sum_of, columns))
        return {version: each.held() for version, each in sums.items()}

    # --- books ----------------------------------------------------------------------------------------------

    def known(self, names: Names) -> set[str]:
        found: set[str] = set()
        for query, mine in by_query(names).items():
            held = zip(mine, self._target.noted(query, list(mine)), strict=True)
            found |= {name for name, both in held if set(both) - {None, scripts.VOID}}
        return found

    def void(self, names: Names) -> Collection[str]:
        known = self.known(names)
        return {
            name.decode()
            for query, mine in by_query(names).items()
            for name in self._target.book(query, scripts.VOIDED, *(mine - known))
        }

    def note(self, origin: Origin, names: Collection[str], *, since: int) -> int | None:
        told = (who(origin.query, origin.sink), origin.epoch, since, BOOKS_EPOCHS, origin.life, *self._sealed)
        word, *more = self._target.book(origin.query, scripts.NOTE, *told, *names)
        if word == scripts.ANEW.encode():
            raise self._anew(origin)
        if word == scripts.AGAIN.encode():
            raise UnavailableError(
                f"another driver has noted what it wrote while rows of chk-{origin.epoch} were written",
                next_step="nothing: they are written again",
            )
        if word == b"behind":
            return int(more[0])
        if word == scripts.VOID.encode():
            raise given_up([more[0].decode()])
        return None

    def newest(self, query: str, sink: str) -> int | None:
        [both] = self._target.noted(query, [f"newest:{who(query, sink)}"])
        return max((int(each) for each in both if each is not None), default=None)

    def generation(self, query: str, sink: str, *, above: int = 0) -> int:
        name = f"generation:{who(query, sink)}"
        [both] = self._target.noted(query, [name])
        held = max(int(each or 0) for each in both)
        if held > above:
            return held
        # Who is quicker with the query's books has it; what the other one has drawn then is nobody's.
        found: int = self._target.book(query, scripts.TAKE, name, above, self._target.draw(above))
        return found

    def generations(self) -> int:
        return self._target.drawn()

    # --- witnesses ------------------------------------------------------------------------------------------

    def apply(self, staged: Mapping[str, StagedRows]) -> None:
        # Of two at once, one would find that the books of witnesses are not as it has read them.
        with self._sealing if self._target.is_cluster else nullcontext():
            super().apply(staged)

    def seal(self, staged: Mapping[str, StagedRows], origin: Origin) -> None:
        if not self._target.is_cluster:
            return
        witnesses = Witnesses(self._target, origin.query, origin.sink)
        if self._life != origin.life:
            self._require_all(witnesses, witnesses.lacking(), origin.query)
            self._life = origin.life
        slots = {
            slot_of(self._named(key))
            for rows in staged.values()
            for batch in rows.batches()
            for key in batch.column(KEY).to_pylist()
        }
        lacking = witnesses.seal(slots, origin.version)
        if lacking is not None:
            self._require_all(witnesses, lacking, origin.query)
            witnesses.seal(slots, origin.version)
        if self._target.life() != origin.life:
            raise self._anew(origin)
        self._sealed = witnesses.noted(slots, origin.version)

    def look_back(self, context: QueryContext, epoch: int, handles: Sequence[Handle]) -> None:
        super().look_back(context, epoch, handles)
        if self._target.is_cluster:
            life = self._target.life()
            witnesses = Witnesses(self._target, context.query, context.sink)
            self._require_all(witnesses, witnesses.lacking(), context.query)
            self._life = life

    def _require_all(self, witnesses: Witnesses, lacking: Lacking | None, query: str) -> None:
        """See that no node of a cluster lacks rows that the books have. Raises ``TargetBehindError``."""
        if lacking is None:
            return
        since = f"behind chk-{try_of(lacking.has)[0]} " if lacking.has else ""
        behind.refuse(
            f"A node of the cluster {self._redis.where} lacks rows of query {query} {since}up to "
            f"chk-{try_of(lacking.must_have)[0]}, in {n(len(lacking.slots), 'slot')}: an older dump was restored "
            "there, a replica that was behind has taken over, or it keeps nothing through a restart",
            WRITE_AGAIN,
            goes_on=self.options[behind.OPTION] == behind.GO_ON,
        )
        witnesses.forgive(lacking)

    def close(self) -> None:
        self._target.close()

    def _anew(self, origin: Origin) -> UnavailableError:
        return UnavailableError(
            f"the server {self._redis.where} was started anew, or another one has taken over, while rows of "
            f"chk-{origin.epoch} were written: it may have lost some",
            next_step="nothing: they are written again",
        )

    def _named(self, key: str) -> str:
        return self._redis.prefix + key
